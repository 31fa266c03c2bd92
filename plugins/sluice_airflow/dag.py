"""The DAG that tiers lake tables: claims, leases and reports survive a killed or failed task.

    open_job -> acquire_lease -> per_table[entry]: tier -> settle -> drop_lease

open_job and acquire_lease are setups, settle and drop_lease teardowns. With acquire_lease as the
only setup a half-acquired job would leak: a teardown runs if at least one of its setups succeeded.
There is no dagrun_timeout, because it skips all teardowns.
"""

from __future__ import annotations

import logging
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, Param, get_current_context, setup, task_group, teardown

from sluice.client.lease_ids import lease_id
from sluice.errors import SluiceError
from sluice_airflow import acquire as acquiring
from sluice_airflow import settle as settling
from sluice_airflow.airflow_names import AirflowException, AirflowFailException
from sluice_airflow.claims import Entry
from sluice_airflow.hooks.fluss import FlussHook
from sluice_airflow.operators.tier import SluiceTierOperator
from sluice_airflow.settings import Settings, load_settings, slots_at_once

if TYPE_CHECKING:
    from airflow.sdk import Context

log = logging.getLogger(__name__)

TIER = "per_table.tier"
SETTLE = "per_table.settle"
ACQUIRE = "acquire_lease"
REFUSED = "refused"
"""XCom of acquire_lease: tables whose KV snapshots could not be leased, and why."""
TABLES_MAX = 1000
"""Below Airflow's max_map_length of 1024."""


def params() -> dict[str, Param]:
    """What a run can be asked for; Airflow checks it and draws a form."""
    return {
        "tables": Param(
            ["*"],
            type="array",
            items={"type": "string", "minLength": 1, "maxLength": 401},
            minItems=1,
            maxItems=TABLES_MAX,
            title="Tables",
            description="Names or patterns of tables, such as sales.orders, sales.* or *.",
        ),
        "max_tables": Param(
            100,
            type="integer",
            minimum=1,
            maximum=TABLES_MAX,
            title="Most tables",
            description="Most tables of one run. It claims no more than the pool starts at once.",
        ),
        "spark_conf": Param(
            {},
            type="object",
            propertyNames={"pattern": "^spark\\."},
            additionalProperties={"type": ["string", "number", "boolean"]},
            title="Spark properties",
            description='Of every driver of the run, such as {"spark.executor.memory": "2g"}.'
            " The lake of the connection has the last word.",
        ),
    }


def lake_tiering_dag(dag_id: str = "sluice_lake_tiering", **dag_arguments: Any) -> DAG:
    """Builds the DAG from the section [sluice] of Airflow's configuration.

    :param dag_arguments: further arguments of DAG, such as tags.
    """
    settings = load_settings()
    arguments: dict[str, Any] = {
        "schedule": settings.cron,
        "catchup": False,
        "max_active_runs": 1,
        "description": "Tiers tables of Apache Fluss into the lake.",
        "tags": ["sluice"],
        "on_failure_callback": DropOfFailedRun(settings.connection),
        "params": params(),
        **dag_arguments,
    }
    with DAG(dag_id=dag_id, **arguments) as dag:
        _tasks(dag, settings)
    return dag


class DropOfFailedRun:
    """The DAG's failure callback: drops what a run holds if its teardowns could not."""

    def __init__(self, connection_id: str) -> None:
        self.connection_id = connection_id

    def __call__(self, context: Context) -> None:
        dag_id, run_id = context["dag"].dag_id, str(context["run_id"])
        log.info("run %s failed: %s", run_id, context.get("reason"))
        hook = FlussHook(self.connection_id)
        connection = hook.config()
        job = lease_id(connection.deployment_id, dag_id, run_id)
        with hook.get_client() as client:
            settling.drop(client, connection.require_work_uri(), job)


def _tasks(dag: DAG, settings: Settings) -> None:
    hook = FlussHook(settings.connection)

    @setup
    def open_job() -> str:
        """Names the job and touches nothing, so that drop_lease runs whatever acquire does."""
        context = get_current_context()
        deployment = hook.config().deployment_id
        return lease_id(deployment, context["dag"].dag_id, str(context["run_id"]))

    @setup
    def acquire_lease(job: str) -> list[Entry]:
        """Claims tables, leases their KV snapshots and writes their plans."""
        return _acquire(hook, settings, job)

    @teardown
    def settle(entry: Entry) -> dict[str, str]:
        """Tells the coordinator how the table ended, and lets go of its KV snapshots."""
        return _settle(hook, entry)

    @teardown
    def drop_lease(job: str) -> None:
        """Lets go of all that the run holds, its lease too; fails if a table was not tiered."""
        _drop(hook, job)

    job = open_job()
    entries = acquire_lease(job)
    setups = [job.operator, entries.operator]

    @task_group
    def per_table(entry: Any) -> None:
        tier = SluiceTierOperator(task_id="tier", entry=entry, **_tier_arguments(settings))
        tier >> settle(entry).as_teardown(setups=setups)

    per_table.expand(entry=entries)
    drop = drop_lease(job).as_teardown(setups=setups, on_failure_fail_dagrun=True)
    # Not `group >> drop`: that ignores the group's teardowns, and drop would race with them.
    dag.get_task(SETTLE) >> drop.operator


def _tier_arguments(settings: Settings) -> dict[str, Any]:
    iceberg = {"jars": settings.jars} if settings.jars else {"packages": settings.packages}
    return {
        "fluss_conn_id": settings.connection,
        "acquire_task_id": ACQUIRE,
        "heartbeat_interval_s": float(settings.heartbeat_interval_seconds),
        "conn_id": settings.spark_connection,
        "application": settings.script,
        "py_files": settings.py_files or None,
        "spark_binary": settings.spark_binary or None,
        "pool": settings.pool,
        "retries": settings.tier_retries,
        "retry_delay": settings.tier_retry_delay,
        "execution_timeout": settings.tier_timeout,
        # Known at once by the task; in Airflow 3.1 only by what the task says while it runs.
        "map_index_template": "{{ table | default(task.entry['table']) }}",
        **iceberg,
    }


def _acquire(hook: FlussHook, settings: Settings, job: str) -> list[Entry]:
    # They load pyarrow, which a DAG file does not need.
    from sluice_airflow import preflight
    from sluice_airflow.submission import submission_of

    context = get_current_context()
    asked, ti = context["params"], context["ti"]
    try:
        acquiring.refuse_unknown(context["dag_run"].conf, params())
        connection = hook.config()
        submission = submission_of(settings, asked["spark_conf"] or {})
        if obstacle := preflight.before_run(connection, submission):
            kind = AirflowException if obstacle.may_pass else AirflowFailException
            raise kind(obstacle.reason)
        busy = ti.get_ti_count(dag_id=ti.dag_id, task_ids=[TIER], states=["running", "queued"])
        tables_max = min(asked["max_tables"], slots_at_once(settings) - busy)
        refused: dict[str, str] = {}
        with hook.get_client() as client:
            entries = acquiring.acquire(
                client,
                connection,
                job,
                asked["tables"],
                tables_max,
                settings.heartbeat_interval_seconds,
                lambda claim, reason: refused.update({str(claim.path): reason[:200]}),
            )
        if refused:  # the tables go on that could be leased; drop_lease fails the run
            ti.xcom_push(key=REFUSED, value=refused)
        return entries
    except SluiceError as error:
        if error.retryable:
            raise
        raise AirflowFailException(f"{type(error).__name__}: {error}") from error


def _settle(hook: FlussHook, entry: Entry) -> dict[str, str]:
    ti = get_current_context()["ti"]
    result = ti.xcom_pull(task_ids=TIER, map_indexes=ti.map_index)
    failure = ti.xcom_pull(task_ids=TIER, key="failure", map_indexes=ti.map_index)
    with hook.get_client() as client:
        verdict = settling.settle(client, entry, result, failure)
    log.info("%s: reported %s %s", verdict.table, verdict.reported, verdict.reason)
    return {**asdict(verdict), "reason": verdict.reason[:200]}


def _drop(hook: FlussHook, job: str) -> None:
    ti = get_current_context()["ti"]
    entries = ti.xcom_pull(task_ids=ACQUIRE) or []
    with hook.get_client() as client:
        verdicts = settling.drop(client, hook.config().require_work_uri(), job, entries)
    for verdict in verdicts:
        log.warning("%s: reported %s %s", verdict.table, verdict.reported, verdict.reason)
    acquired = _states(ti, ACQUIRE).get(ACQUIRE)
    if acquired != "success":
        raise AirflowFailException(f"tables were not acquired: {ACQUIRE} is {acquired}")
    refused = ti.xcom_pull(task_ids=ACQUIRE, key=REFUSED) or {}
    if not entries and not refused:
        return
    # Trust the result, not the state: a tier marked success by hand has none.
    indexes = list(range(len(entries)))
    settled = (ti.xcom_pull(task_ids=SETTLE, map_indexes=indexes) if entries else None) or []
    told = {v["table"]: v["reported"] for v in settled if v}
    told.update({verdict.table: verdict.reported for verdict in verdicts})
    left = [e["table"] for e in entries if told.get(e["table"]) not in ("finished", "nothing")]
    left += refused
    if left:
        names = ", ".join(left[:20]) + (", ..." if len(left) > 20 else "")
        tables = len(entries) + len(refused)
        raise AirflowFailException(f"{len(left)} of {tables} tables not tiered: {names}")
    ended = [state for state in _states(ti, TIER).values() if state != "success"]
    if ended:
        raise AirflowFailException(
            f"every table was tiered, but {len(ended)} of {len(entries)} tier tasks did not succeed"
        )


def _states(ti: Any, task_id: str) -> dict[str, Any]:
    """States of a task of this run; of a mapped one by TASK_INDEX."""
    found = ti.get_task_states(dag_id=ti.dag_id, run_ids=[ti.run_id], task_ids=[task_id])
    return dict(found.get(ti.run_id, {}))
