"""One round on Spark: executors copy, the driver's JVM commits.

The Spark context is an argument: this package does not import PySpark. Executors return results as
values, because an exception would lose its type in transit.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from py4j.protocol import Py4JError

from sluice.checks.lake import check_lake
from sluice.client import connect
from sluice.client.tiering.log_source import ClientLogSource
from sluice.config import Config, load_config
from sluice.driver.lakes.open_lake import open_lake
from sluice.driver.python_worker import lighten
from sluice.driver.round_options import round_options
from sluice.driver.spark.phase_log import PhaseLog
from sluice.driver.spark.size_file import write_size
from sluice.driver.threads import ThreadRunner
from sluice.driver.without_pandas import leave_pandas_out
from sluice.errors import (
    ClaimLost,
    DriverLost,
    SluiceError,
    SparkJobFailed,
    UnknownFileVersion,
)
from sluice.lake.iceberg.catalog.java import JavaThrew, java_errors
from sluice.model import Claim, TableInfo
from sluice.rounds.copy.parts import in_copy_order
from sluice.rounds.copy.split import copy_split
from sluice.rounds.records.copy_size import size_uri
from sluice.rounds.records.json_files import read_json, write_json
from sluice.rounds.records.log_line import failure_line, result_line
from sluice.rounds.records.plan_file import PlanFile
from sluice.rounds.records.result import RoundResult, failure_uri, result_uri
from sluice.rounds.records.run_files import keys_uri
from sluice.rounds.round.round import run_round
from sluice.rounds.values.attempt import RoundPorts
from sluice.rounds.values.ports import LogSource, SplitRunner, SplitWriterFactory
from sluice.rounds.values.reasons import failure_of
from sluice.rounds.values.types import Split, SplitFailure, SplitResult

_LOG = logging.getLogger(__name__)
CONF_PREFIX = "spark.sluice."
DRIVER_THREADS = "driver threads"
EXECUTORS = "executors"
LOCAL_FACTOR = 10
"""How many more rows the driver copies itself if its master is local. Up to 10M rows, executors
cost about three core-seconds more there (`python -m bench packs`)."""
_TASKS_MAX = 10_000
_LOCAL_CORES = re.compile(r"local(?:\[(\d+)(?:,\s*\d+)?\])?")
"""Spark's local masters with a number of threads. ``local[*]`` has as many as Java counts."""


def config_of(
    context: Any, path: str | None = None, environment: Mapping[str, str] | None = None
) -> Config:
    """The configuration of a driver: ``spark.sluice.SECTION.KEY`` overrides file and environment.

    :raises ConfigurationError: names the key.
    """
    pairs = context.getConf().getAll()
    found = {k.removeprefix(CONF_PREFIX): v for k, v in pairs if k.startswith(CONF_PREFIX)}
    return load_config(path, environment, found, overrides_prefix=CONF_PREFIX)


def run(
    context: Any,
    plan_uri: str,
    attempt: str,
    config: Config,
    task_id: Callable[[], int] | None = None,
    stopped: threading.Event | None = None,
    threads: int | None = None,
) -> int:
    """Runs the round of a plan file, and writes a result or failure file next to the plan.

    Several threads may run a round each: a round's Spark job has a group of its own, named after
    the table.

    :param context: the SparkContext. A round needs no session, whose start costs a CPU second.
    :param task_id: returns, on an executor, a number that is unique to this execution of a split.
        File names contain it, so that a lost executor and its successor never write the same file.
    :param stopped: once set, the round ends before its next job, or batch that the driver copies.
    :param threads: splits of a small round that the driver copies at once; by default as many as it
        has cores.
    :returns: the exit code: 0 for every outcome, including a lost claim; 1 for a failure.
    :raises DriverLost: the driver's JVM was killed. Nothing is written: that is no failure of the
        table, unless it has caused it.
    """
    try:
        stopped = stopped or threading.Event()
        threads = threads or driver_cores(context)
        result = _run(context, plan_uri, attempt, config, task_id or _zero, stopped, threads)
        result = result.checked(config.secrets())
    except Exception as error:
        if jvm_is_lost(context):
            raise DriverLost("the JVM of the Spark driver does not answer any more") from error
        failure = failure_of(error, config.secrets())
        _LOG.error("%s", failure_line(_table_of(plan_uri), failure))
        if not isinstance(error, SluiceError):
            _LOG.error("traceback of the unexpected error", exc_info=error)
        write_json(failure_uri(plan_uri, attempt), failure.to_json(config.secrets()))
        return 1
    write_json(result_uri(plan_uri, attempt), result.to_json())
    _LOG.info("%s", result_line(result))
    if result.forced:
        _LOG.info("%s: the round ended early: %s", result.table, result.forced)
    return 0


def _table_of(plan_uri: str) -> str:
    """The table of a plan; the plan's address if it cannot be read."""
    try:
        return str((read_json(plan_uri) or {})["table"])
    except Exception:  # the failure itself says why
        return f"plan {plan_uri}"


def _run(
    context: Any,
    plan_uri: str,
    attempt: str,
    config: Config,
    task_id: Callable[[], int],
    stopped: threading.Event,
    threads: int,
) -> RoundResult:
    check_lake(config)
    content = read_json(plan_uri)
    if content is None:
        raise UnknownFileVersion(
            f"plan file {plan_uri} does not exist here: Airflow and this driver must share work_uri"
        )
    plan = PlanFile.from_json(content)
    client_config = replace(config.client, bootstrap=plan.bootstrap)
    phases = PhaseLog(str(plan.claim.path))
    rows_max = driver_copy_rows(context, config)

    def runner(info: TableInfo, writers: SplitWriterFactory) -> SplitRunner:
        source = ClientLogSource(client_config, plan.claim.path, info)
        secrets = config.secrets()
        on_executors = SparkRunner(context, source, writers, task_id, secrets, plan.claim, stopped)
        in_driver = ThreadRunner(source, writers, threads, cancelled=stopped, secrets=secrets)

        def copy_measured(splits: Sequence[Split]) -> Iterator[SplitResult | SplitFailure]:
            write_size(client, plan.claim.path, splits, size_uri(plan_uri, attempt))
            is_small = sum(split.cost for split in splits) <= rows_max
            by = DRIVER_THREADS if is_small else EXECUTORS
            phases.copied_by = phases.copied_by or by  # not who looks up rows again
            return in_driver(splits) if is_small else on_executors(splits)

        return copy_measured

    with (
        connect(client_config) as client,
        open_lake(
            config,
            context._gateway,
            context._jsc.hadoopConfiguration(),
            keys_uri(plan_uri, attempt),
        ) as lake,
    ):
        result = run_round(
            plan.claim,
            RoundPorts(client.tiering, lake, runner),
            attempt,
            round_options(config, plan.snapshots, context.defaultParallelism),
            phases,
        )
    return replace(result, copied_by=phases.copied_by)


def driver_copy_rows(context: Any, config: Config) -> int:
    """The most rows of a round that the driver copies itself."""
    rows = config.tiering.driver_copy_rows
    return rows * LOCAL_FACTOR if str(context.master).startswith("local") else rows


def driver_cores(context: Any) -> int:
    """The cores that the driver may use.

    A driver on the cluster has those that it asked for. Its machine may have many more. Elsewhere
    Java counts them: unlike Python, it heeds the limits of a container. A local master may name
    fewer.
    """
    conf = context.getConf()
    on_yarn = conf.get("spark.submit.deployMode", "client") == "cluster"
    on_kubernetes = conf.get("spark.kubernetes.submitInDriver", "false") == "true"
    if on_yarn or on_kubernetes:
        return max(1, int(conf.get("spark.driver.cores", "1")))
    found = int(context._jvm.Runtime.getRuntime().availableProcessors())
    local = _LOCAL_CORES.fullmatch(str(context.master))
    return found if local is None else min(found, max(1, int(local[1] or 1)))


def jvm_is_lost(context: Any) -> bool:
    """Whether the driver's JVM has ended, for instance because it was out of memory."""
    try:
        context._jvm.System.currentTimeMillis()
    except (Py4JError, OSError):
        return True
    return False


class SparkRunner:
    """A SplitRunner that runs each split in a Spark task.

    If the Spark job fails (too many lost executors, a killed worker), the results of finished tasks
    are yielded before SparkJobFailed is raised. A task that Spark kills leaves its files behind.
    """

    def __init__(
        self,
        context: Any,
        source: LogSource,
        writers: SplitWriterFactory,
        task_id: Callable[[], int],
        secrets: Sequence[str] = (),
        claim: Claim | None = None,
        stopped: threading.Event | None = None,
    ) -> None:
        """:param secrets: values to mask in the reason of a failure, on executors.
        :param claim: names the jobs in Spark and its UI; None: they have no name.
        :param stopped: once set, no job begins.
        """
        self._context = context
        self._claim = claim
        self._stopped = stopped or threading.Event()
        self._finished = context.accumulator([], _Gathered())  # updated after each task
        self._copy = CopyPartition(source, writers, task_id, self._finished, secrets)

    def __call__(self, splits: Sequence[Split]) -> Iterator[SplitResult | SplitFailure]:
        ordered = in_copy_order(splits)
        if self._claim is not None:  # for the jobs that this thread submits from now on
            group = str(self._claim.path)
            text = f"tier {group}, tiering epoch {self._claim.tiering_epoch}: {len(ordered)} splits"
            self._context.setJobGroup(group, text)
            self._context.setLocalProperty("spark.scheduler.pool", group)
        if self._stopped.is_set():
            raise ClaimLost("the round was cancelled before its Spark job")
        rdd = self._context.parallelize(ordered, min(len(ordered), _TASKS_MAX))
        try:
            with java_errors():
                outcomes = rdd.mapPartitions(self._copy).collect()
        except JavaThrew as thrown:
            yield from self._finished.value
            # Splits return their errors as values, so this is none of the table's data.
            raise SparkJobFailed("Spark gave up the job of this round") from thrown
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
        leave_pandas_out()
        task = self._task_id()
        for split in splits:
            outcome = copy_split(
                split, self._source, self._writers, task=task, secrets=self._secrets
            )
            self._finished.add([outcome])
            yield outcome
        lighten()


def _zero() -> int:
    return 0
