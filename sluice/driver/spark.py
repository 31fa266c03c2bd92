"""One round on Spark: executors copy, the session's JVM commits.

The session is an argument: this package does not import PySpark. Executors return results as
values, because an exception would lose its type in transit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sluice.checks.lake import check_lake
from sluice.client import connect
from sluice.client.log_source import ClientLogSource
from sluice.config import Config, load_config
from sluice.driver.local import keyed_round_options, round_limits
from sluice.driver.open_lake import open_lake
from sluice.driver.size_file import write_size
from sluice.errors import SluiceError, UnknownFileVersion
from sluice.model import TableInfo
from sluice.rounds.copy import copy_split
from sluice.rounds.copy_size import size_uri
from sluice.rounds.files import (
    PlanFile,
    RoundResult,
    failure_uri,
    read_json,
    result_uri,
    write_json,
)
from sluice.rounds.parts import PartRules, in_copy_order
from sluice.rounds.ports import LogSource, SplitRunner, SplitWriterFactory
from sluice.rounds.reasons import failure_of
from sluice.rounds.round import run_round
from sluice.rounds.types import Split, SplitFailure, SplitResult

_LOG = logging.getLogger(__name__)
CONF_PREFIX = "spark.sluice."
_TASKS_MAX = 10_000


def config_of(
    spark: Any, path: str | None = None, environment: Mapping[str, str] | None = None
) -> Config:
    """The configuration of a driver: ``spark.sluice.SECTION.KEY`` overrides file and environment.

    :raises ConfigurationError: names the key.
    """
    pairs = spark.sparkContext.getConf().getAll()
    found = {k.removeprefix(CONF_PREFIX): v for k, v in pairs if k.startswith(CONF_PREFIX)}
    return load_config(path, environment, found, overrides_prefix=CONF_PREFIX)


def run(
    spark: Any,
    plan_uri: str,
    attempt: str,
    config: Config,
    task_id: Callable[[], int] | None = None,
) -> int:
    """Runs the round of a plan file, and writes a result or failure file next to the plan.

    :param task_id: returns, on an executor, a number that is unique to this execution of a split.
        File names contain it, so that a lost executor and its successor never write the same file.
    :returns: the exit code: 0 for every outcome, including a lost claim; 1 for a failure.
    """
    try:
        result = _run(spark, plan_uri, attempt, config, task_id or _zero).checked(config.secrets())
    except Exception as error:
        failure = failure_of(error, config.secrets())
        _LOG.error("round of plan %s failed: %s", plan_uri, failure.reason)
        if not isinstance(error, SluiceError):
            _LOG.error("traceback of the unexpected error", exc_info=error)
        write_json(failure_uri(plan_uri, attempt), failure.to_json(config.secrets()))
        return 1
    write_json(result_uri(plan_uri, attempt), result.to_json())
    _LOG.info("round of table %s: %s, %d rows", result.table, result.outcome, result.rows)
    if result.forced:
        _LOG.info("round of table %s: %s", result.table, result.forced)
    return 0


def _run(
    spark: Any, plan_uri: str, attempt: str, config: Config, task_id: Callable[[], int]
) -> RoundResult:
    check_lake(config)
    content = read_json(plan_uri)
    if content is None:
        raise UnknownFileVersion(
            f"plan file {plan_uri} does not exist here: Airflow and this driver must share work_uri"
        )
    plan = PlanFile.from_json(content)
    client_config = replace(config.client, bootstrap=plan.bootstrap)
    context = spark.sparkContext

    def runner(info: TableInfo, writers: SplitWriterFactory) -> SplitRunner:
        source = ClientLogSource(client_config, plan.claim.path, info)
        copy = SparkRunner(context, source, writers, task_id, config.secrets())

        def copy_measured(splits: Sequence[Split]) -> Iterator[SplitResult | SplitFailure]:
            write_size(client, splits, size_uri(plan_uri, attempt))
            return copy(splits)

        return copy_measured

    with (
        connect(client_config) as client,
        open_lake(config, context._gateway, context._jsc.hadoopConfiguration()) as lake,
    ):
        return run_round(
            plan.claim,
            client.tiering,
            lake,
            runner,
            attempt=attempt,
            limits=round_limits(config),
            keyed=keyed_round_options(config, plan.snapshots),
            parts=PartRules(context.defaultParallelism, config.tiering.part_offsets),
        )


class SparkRunner:
    """A SplitRunner that runs each split in a Spark task.

    If the Spark job fails (too many lost executors, a killed worker), the results of finished tasks
    are yielded before the error is raised. A task that Spark kills leaves its files behind.
    """

    def __init__(
        self,
        context: Any,
        source: LogSource,
        writers: SplitWriterFactory,
        task_id: Callable[[], int],
        secrets: Sequence[str] = (),
    ) -> None:
        """:param secrets: values to mask in the reason of a failure, on executors."""
        self._context = context
        self._finished = context.accumulator([], _Gathered())  # updated after each task
        self._copy = CopyPartition(source, writers, task_id, self._finished, secrets)

    def __call__(self, splits: Sequence[Split]) -> Iterator[SplitResult | SplitFailure]:
        ordered = in_copy_order(splits)
        rdd = self._context.parallelize(ordered, min(len(ordered), _TASKS_MAX))
        try:
            outcomes = rdd.mapPartitions(self._copy).collect()
        except Exception:
            yield from self._finished.value
            raise
        yield from outcomes


class _Gathered:
    """Combines the outcomes of tasks (Spark's AccumulatorParam)."""

    def zero(self, value: list[Any]) -> list[Any]:  # noqa: ARG002  (Spark's method)
        return []

    def addInPlace(self, one: list[Any], other: list[Any]) -> list[Any]:  # noqa: N802
        one.extend(other)
        return one


class CopyPartition:
    """Copies the splits of a partition, on an executor. Picklable."""

    def __init__(
        self,
        source: LogSource,
        writers: SplitWriterFactory,
        task_id: Callable[[], int],
        finished: Any,
        secrets: Sequence[str],
    ) -> None:
        """:param finished: the Spark accumulator of outcomes."""
        self._source, self._writers, self._task_id = source, writers, task_id
        self._finished, self._secrets = finished, secrets

    def __call__(self, splits: Iterable[Split]) -> Iterator[SplitResult | SplitFailure]:
        task = self._task_id()
        for split in splits:
            outcome = copy_split(
                split, self._source, self._writers, task=task, secrets=self._secrets
            )
            self._finished.add([outcome])
            yield outcome


def _zero() -> int:
    return 0
