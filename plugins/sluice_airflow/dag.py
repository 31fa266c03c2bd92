"""The DAG that tiers lake tables. Its claims, leases and reports survive a killed or failed task.

    open_job -> acquire_lease -> per_table[entry]: tier -> settle -> drop_lease
             -> keep_claims

open_job and acquire_lease are setups, settle and drop_lease teardowns. Airflow runs a teardown if
at least one of its setups succeeded. Without open_job, a failed acquire_lease would skip drop_lease
and leave claims open. There is no dagrun_timeout, because it skips all teardowns.
keep_claims sends the heartbeats of the claims from the triggerer until drop_lease starts.
"""

from __future__ import annotations

import logging
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, Param, get_current_context, setup, task_group, teardown
from airflow.sdk.execution_time.xcom import XCom

from sluice.errors import SluiceError
from sluice_airflow import acquire as acquiring
from sluice_airflow import settle as settling
from sluice_airflow.airflow_names import AirflowException, AirflowFailException
from sluice_airflow.claims import ClaimedTable
from sluice_airflow.deployment import lease_of_run
from sluice_airflow.hooks.fluss import FlussHook
from sluice_airflow.operators.keep import KeepClaimsOperator, end_keeper
from sluice_airflow.operators.tier import SluiceTierOperator
from sluice_airflow.settings import Settings, load_settings, slots_at_once
from sluice_airflow.task_states import state_of, states_of

if TYPE_CHECKING:
    from airflow.sdk import Context

log = logging.getLogger(__name__)

OPEN = "open_job"
TIER = "per_table.tier"
SETTLE = "per_table.settle"
ACQUIRE = "acquire_lease"
KEEP = "keep_claims"
KEEP_FIRST = 100
"""Priority of keep_claims: above acquire_lease, whose own includes the tasks after it."""
DROP = "drop_lease"
REFUSED = "refused"
"""XCom key of acquire_lease: table -> reason why its KV snapshots could not be leased."""
TABLES_MAX = 1000
"""Below Airflow's max_map_length of 1024."""


def params() -> dict[str, Param]:
    """Returns the parameters of a run. Airflow checks them and shows them as a form."""
    return {
        "tables": Param(
            ["*"],
            type="array",
            items={"type": "string", "minLength": 1, "maxLength": 401},
            minItems=1,
            maxItems=TABLES_MAX,
            title="Tables",
            description="Tables to tier: names or patterns, such as sales.orders, sales.* or *.",
        ),
        "max_tables": Param(
            100,
            type="integer",
            minimum=1,
            maximum=TABLES_MAX,
            title="Maximum number of tables",
            description="The run claims no more tables than this, nor more than the pool runs at"
            " once.",
        ),
        "spark_conf": Param(
            {},
            type="object",
            propertyNames={"pattern": "^spark\\."},
            additionalProperties={"type": ["string", "number", "boolean"]},
            title="Spark properties",
            description="Spark properties of every driver of the run, such as"
            ' {"spark.executor.memory": "2g"}. Lake options of the Fluss connection override them.',
        ),
    }


def lake_tiering_dag(dag_id: str = "sluice_lake_tiering", **dag_arguments: Any) -> DAG:
    """Builds the DAG from the section [sluice] of Airflow's configuration.

    :param dag_arguments: more arguments of DAG, such as tags.
    """
    settings = load_settings()
    arguments: dict[str, Any] = {
        "schedule": settings.cron,
        "catchup": False,
        "max_active_runs": 1,
        "description": "Tiers Apache Fluss tables into the lake.",
        "tags": ["sluice"],
        "on_failure_callback": ReleaseOfFailedRun(settings.connection),
        "params": params(),
        **dag_arguments,
    }
    with DAG(dag_id=dag_id, **arguments) as dag:
        _tasks(dag, settings)
    return dag


class ReleaseOfFailedRun:
    """Failure callback of the DAG: releases what a run still holds if its teardowns did not."""

    def __init__(self, connection_id: str) -> None:
        self.connection_id = connection_id

    def __call__(self, context: Context) -> None:
        dag_id, run_id = context["dag"].dag_id, str(context["run_id"])
        log.info("run %s failed: %s", run_id, context.get("reason"))
        hook = FlussHook(self.connection_id)
        connection = hook.config()
        job, entries = (
            XCom.get_one(key="return_value", dag_id=dag_id, task_id=task, run_id=run_id)
            for task in (OPEN, ACQUIRE)
        )
        job = job or lease_of_run(connection, dag_id, run_id)
        log.info("run %s: releasing the claims and the lease of %s", run_id, job)
        with hook.get_client() as client:
            settling.drop(client, connection.require_work_uri(), job, entries or ())


def _tasks(dag: DAG, settings: Settings) -> None:
    hook = FlussHook(settings.connection)

    @setup
    def open_job() -> str:
        """Computes the lease id of the run. drop_lease then runs even if acquire_lease fails."""
        context = get_current_context()
        return lease_of_run(hook.config(), context["dag"].dag_id, str(context["run_id"]))

    @setup
    def acquire_lease(job: str) -> list[ClaimedTable]:
        """Claims tables that are due, leases their KV snapshots and writes their plans."""
        return _acquire(hook, settings, job)

    @teardown
    def settle(entry: ClaimedTable) -> dict[str, str]:
        """Reports the outcome of the table to the coordinator and releases its KV snapshots."""
        return _settle(hook, entry)

    @teardown
    def drop_lease(job: str) -> None:
        """Releases all claims and the lease of the run. Fails if a table was not tiered."""
        _drop(hook, job)

    job = open_job()
    keep = KeepClaimsOperator(
        task_id=KEEP,
        lease_id=job,
        drop_task_id=DROP,
        fluss_conn_id=settings.connection,
        heartbeat_interval_s=float(settings.heartbeat_interval_seconds),
        priority_weight=KEEP_FIRST,
        retries=0,
    )
    # A teardown, although nothing ends: its state then says nothing about the run, it continues
    # when the run is marked, and clearing a table starts it again.
    keep.as_teardown(setups=job.operator)
    entries = acquire_lease(job)
    setups = [job.operator, entries.operator]

    @task_group
    def per_table(entry: Any) -> None:
        tier = SluiceTierOperator(task_id="tier", entry=entry, **_tier_arguments(settings))
        tier >> settle(entry).as_teardown(setups=setups)

    per_table.expand(entry=entries)
    drop = drop_lease(job).as_teardown(setups=setups, on_failure_fail_dagrun=True)
    # Not `group >> drop`: it ignores the group's teardowns, so drop would not wait for them.
    dag.get_task(SETTLE) >> drop.operator


def _tier_arguments(settings: Settings) -> dict[str, Any]:
    iceberg = {"jars": settings.jars} if settings.jars else {"packages": settings.packages}
    return {
        "fluss_conn_id": settings.connection,
        "acquire_task_id": ACQUIRE,
        "keep_task_id": KEEP,
        "heartbeat_interval_s": float(settings.heartbeat_interval_seconds),
        "conn_id": settings.spark_connection,
        "application": settings.script,
        "py_files": settings.py_files or None,
        "spark_binary": settings.spark_binary or None,
        "pool": settings.pool,
        "retries": settings.tier_retries,
        "retry_delay": timedelta(seconds=settings.tier_retry_delay_seconds),
        "time_limit_s": float(settings.tier_timeout_seconds),
        # Before the task starts, the name comes from entry. Airflow 3.1 has only the value that the
        # running task sets.
        "map_index_template": "{{ table | default(task.entry['table']) }}",
        **iceberg,
    }


def _acquire(hook: FlussHook, settings: Settings, job: str) -> list[ClaimedTable]:
    # Imported here because they load pyarrow, which the DAG file itself does not need.
    from sluice_airflow import preflight
    from sluice_airflow.submission import submission_of

    context = get_current_context()
    chosen, ti = context["params"], context["ti"]
    try:
        acquiring.check_conf_keys(context["dag_run"].conf, params())
        connection = hook.config()
        submission = submission_of(settings, chosen["spark_conf"] or {})
        if obstacle := preflight.find_obstacle(connection, submission):
            kind = AirflowException if obstacle.may_pass else AirflowFailException
            raise kind(obstacle.reason)
        busy = ti.get_ti_count(dag_id=ti.dag_id, task_ids=[TIER], states=["running", "queued"])
        tables_max = min(chosen["max_tables"], slots_at_once(settings) - busy)
        refused: dict[str, str] = {}
        with hook.get_client() as client:
            entries = acquiring.acquire(
                client,
                connection,
                job,
                chosen["tables"],
                tables_max,
                settings.heartbeat_interval_seconds,
                lambda claim, reason: refused.update({str(claim.path): str(reason)[:200]}),
            )
        if refused:  # the other tables continue; drop_lease fails the run
            ti.xcom_push(key=REFUSED, value=refused)
        return entries
    except SluiceError as error:
        if error.retryable:
            raise
        raise AirflowFailException(f"{type(error).__name__}: {error}") from error


def _settle(hook: FlussHook, entry: ClaimedTable) -> dict[str, str]:
    ti = get_current_context()["ti"]
    result = ti.xcom_pull(task_ids=TIER, map_indexes=ti.map_index)
    failure = state = None
    if not result:  # Airflow logs an error for an XCom that does not exist
        failure = ti.xcom_pull(task_ids=TIER, key="failure", map_indexes=ti.map_index)
        state = state_of(ti, TIER, ti.map_index)
    with hook.get_client() as client:
        verdict = settling.settle(client, entry, result, failure, state)
    _log_verdict(logging.INFO, verdict)
    return {**asdict(verdict), "reason": verdict.reason[:200]}


def _drop(hook: FlussHook, job: str) -> None:
    ti = get_current_context()["ti"]
    entries = ti.xcom_pull(task_ids=ACQUIRE) or []
    end_keeper(ti, KEEP)  # first: until it has ended, it may lease snapshots
    with hook.get_client() as client:
        verdicts = settling.drop(client, hook.config().require_work_uri(), job, entries)
    for verdict in verdicts:
        _log_verdict(logging.WARNING, verdict)
    acquired = state_of(ti, ACQUIRE)
    if acquired != "success":
        raise AirflowFailException(
            f"no table was tiered: the task {ACQUIRE} ended as {acquired}; see its log"
        )
    refused = ti.xcom_pull(task_ids=ACQUIRE, key=REFUSED) or {}
    if not entries and not refused:
        return
    # Trust the result, not the state: a tier marked success by hand has none.
    indexes = list(range(len(entries)))
    settled = (ti.xcom_pull(task_ids=SETTLE, map_indexes=indexes) if entries else None) or []
    reported = {v["table"]: v["reported"] for v in settled if v}
    reported.update({verdict.table: verdict.reported for verdict in verdicts})
    left = [e["table"] for e in entries if reported.get(e["table"]) not in ("finished", "nothing")]
    left += refused
    if left:
        names = ", ".join(left[:20]) + (", ..." if len(left) > 20 else "")
        tables = len(entries) + len(refused)
        raise AirflowFailException(
            f"{len(left)} of {tables} tables were not tiered: {names}; `sluice status` shows why"
        )
    ended = [state for state in states_of(ti, TIER).values() if state != "success"]
    if ended:
        raise AirflowFailException(
            f"all tables were tiered, but {len(ended)} of {len(entries)} tier tasks did not"
            " succeed; see their logs"
        )


def _log_verdict(level: int, verdict: settling.Verdict) -> None:
    reason = f" ({verdict.reason})" if verdict.reason else ""
    log.log(level, "%s: reported to the coordinator: %s%s", verdict.table, verdict.reported, reason)
