"""The tiering tasks: in a DAG of their own (dag.py), or as a task group in a DAG of yours.

    open_job -> acquire_lease -> per_application[pack]: tier -> settle -> drop_lease
             -> keep_claims

open_job and acquire_lease are setups, settle and drop_lease teardowns. Airflow runs a teardown if
at least one of its setups succeeded. Without open_job, a failed acquire_lease would skip drop_lease
and leave claims open. There is no dagrun_timeout, because it skips all teardowns.
keep_claims sends the heartbeats of the claims from the triggerer until drop_lease starts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

from airflow.sdk import DAG, TaskGroup, task_group
from airflow.sdk.definitions._internal.contextmanager import DagContext

from sluice.errors import ConfigurationError
from sluice_airflow.config.arguments import Tiering, TieringArguments, check_known
from sluice_airflow.config.deployment import OPEN
from sluice_airflow.operators.acquire import SluiceAcquireOperator
from sluice_airflow.operators.check import SluiceCheckOperator
from sluice_airflow.operators.drop import SluiceDropOperator
from sluice_airflow.operators.keep import SluiceKeepOperator
from sluice_airflow.operators.open import SluiceOpenOperator
from sluice_airflow.operators.settle import SluiceSettleOperator
from sluice_airflow.operators.tier import SluiceTierOperator
from sluice_airflow.release import ReleaseOfFailedRun

ACQUIRE = "acquire_lease"
KEEP = "keep_claims"
DROP = "drop_lease"
CHECK = "check_tables"
TIER = "per_application.tier"
SETTLE = "per_application.settle"

DOCS = {
    OPEN: "Names the run. So Airflow runs `drop_lease` even if `acquire_lease` fails.",
    ACQUIRE: "Claims the tables that are due and have new rows, leases their KV snapshots, and"
    " packs them into Spark applications. The log has a line for each table.",
    KEEP: "Keeps the claims of tables that wait for their tier task. It runs in the triggerer:"
    " the state is `deferred` until `drop_lease` starts. It never fails the run.",
    "tier": "One Spark application for the tables of a pack: the label names them. The log has a"
    " line for each table and phase, with rows and rates. A retry tiers only what has no result.",
    "settle": "Reports what became of the tables, releases their KV snapshots, and updates their"
    " assets.",
    CHECK: "Fails if a table was not tiered that the run must tier. The tasks after the group wait"
    " for it.",
    DROP: "Releases what the run still holds. **Its log has what became of each table.** It fails"
    " the run if a table was not tiered; the error names the tables and the reasons.",
}


class GroupArguments(TieringArguments, total=False):
    """The arguments of :func:`lake_tiering_group`."""

    force: Any
    """Tier the tables even if they are not due. (templated)"""
    wait: Any
    """Tier the tables up to their ends when the task begins to claim, or fail. (templated)"""


def lake_tiering_group(
    group_id: str = "lake_tiering", **arguments: Unpack[GroupArguments]
) -> TaskGroup:
    """Adds the tiering tasks to the current DAG, as a task group.

    What follows the group waits for its last ordinary task, ``check_tables``. That task fails if a
    table was not tiered that the run must tier, and succeeds if nothing was new.

    The DAG gets a failure callback that releases the claims of a run whose teardowns were skipped.

    :param arguments: see :class:`GroupArguments`. ``tables``, ``max_tables``, ``spark_conf``,
        ``force`` and ``wait`` are templated.
    :raises ConfigurationError: names the argument and its value, or there is no current DAG.
    """
    check_known("lake_tiering_group", arguments, [*GroupArguments.__annotations__])
    tiering = Tiering.of(arguments)
    dag = DagContext.get_current()
    if dag is None:
        raise ConfigurationError(
            "lake_tiering_group: there is no current DAG; call it inside `with DAG(...):` or a"
            " function with @dag"
        )
    with TaskGroup(group_id) as group:
        release = add_tasks(dag, tiering)
        check = SluiceCheckOperator(
            task_id=CHECK, acquire_task_id=release.acquire_task_id, doc_md=DOCS[CHECK]
        )
        dag.get_task(f"{group.group_id}.{TIER}") >> check
    add_failure_callback(dag, release)
    return group


def add_failure_callback(dag: DAG, callback: Callable[[Any], None]) -> None:
    """Adds a failure callback before those that a DAG has: Airflow limits the time of all."""
    before = dag.on_failure_callback or []
    callbacks = list(before) if isinstance(before, list | tuple) else [before]
    dag.on_failure_callback = [callback, *callbacks]
    dag.has_on_failure_callback = True


def add_tasks(dag: DAG, tiering: Tiering) -> ReleaseOfFailedRun:
    """Adds the tasks to the current DAG and task group.

    :returns: the failure callback that the DAG needs.
    """
    settings = tiering.settings
    connection = settings.connection
    opened = SluiceOpenOperator(task_id=OPEN, fluss_conn_id=connection, doc_md=DOCS[OPEN])
    opened.as_setup()
    prefix = opened.task_id.removesuffix(OPEN)  # of a task group around
    lease_id = opened.output
    keep = SluiceKeepOperator(
        task_id=KEEP,
        lease_id=lease_id,
        drop_task_id=prefix + DROP,
        fluss_conn_id=connection,
        heartbeat_interval_seconds=settings.heartbeat_interval_seconds,
        doc_md=DOCS[KEEP],
    )
    # A teardown, although nothing ends: its state then says nothing about the run, it continues
    # when the run is marked, and clearing a table starts it again.
    keep.as_teardown(setups=opened)
    acquired = _acquire(tiering, lease_id, prefix)
    acquired.as_setup()
    setups = [opened, acquired]

    @task_group
    def per_application(entry: Any) -> None:
        tier = SluiceTierOperator(
            task_id="tier", entry=entry, doc_md=DOCS["tier"], **_tier_arguments(tiering, prefix)
        )
        settled = SluiceSettleOperator(
            task_id="settle",
            entry=entry,
            fluss_conn_id=connection,
            tier_task_id=prefix + TIER,
            doc_md=DOCS["settle"],
        )
        tier >> settled.as_teardown(setups=setups)

    per_application.expand(entry=acquired.output)
    callback = tiering.on_tables_failed  # else default_args of the DAG decide
    drop = SluiceDropOperator(
        task_id=DROP,
        lease_id=lease_id,
        fluss_conn_id=connection,
        acquire_task_id=acquired.task_id,
        tier_task_id=prefix + TIER,
        settle_task_id=prefix + SETTLE,
        keep_task_id=keep.task_id,
        doc_md=DOCS[DROP],
        **({} if callback is None else {"on_failure_callback": callback}),
    )
    drop.as_teardown(setups=setups, on_failure_fail_dagrun=True)
    # Not `group >> drop`: it ignores the group's teardowns, so drop would not wait for them.
    dag.get_task(prefix + SETTLE) >> drop
    return ReleaseOfFailedRun(connection, opened.task_id, acquired.task_id, drop.task_id)


def _acquire(tiering: Tiering, lease_id: Any, prefix: str) -> SluiceAcquireOperator:
    return SluiceAcquireOperator(
        task_id=ACQUIRE,
        lease_id=lease_id,
        tables=tiering.tables,
        max_tables=tiering.max_tables,
        force=tiering.force,
        wait=tiering.wait,
        dry_run=tiering.dry_run,
        spark_conf=tiering.spark_conf,
        datalake=tiering.datalake,
        tier_task_id=prefix + TIER,
        conf_keys=tiering.conf_keys,
        doc_md=DOCS[ACQUIRE],
        **tiering.settings.arguments(
            "pool_slots",
            "tables_per_application",
            "rows_per_application",
            "heartbeat_interval_seconds",
        ),
    )


def _tier_arguments(tiering: Tiering, prefix: str) -> dict[str, Any]:
    settings = tiering.settings
    return {
        "datalake": tiering.datalake,
        "spark_conf": tiering.spark_conf,
        "acquire_task_id": prefix + ACQUIRE,
        "keep_task_id": prefix + KEEP,
        **settings.of_tier_task(),
        **settings.arguments(
            "heartbeat_interval_seconds",
            "tier_timeout_seconds",
            "spark_history_url",
            "lake_table_url",
            "health_url",
        ),
    }
