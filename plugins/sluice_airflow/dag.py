"""The DAG that tiers lake tables. Its claims, leases and reports survive a killed or failed task.

    open_job -> acquire_lease -> per_application[pack]: tier -> settle -> drop_lease
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

from airflow.sdk import DAG, Param, get_current_context, setup, task, task_group, teardown
from airflow.sdk.execution_time.xcom import XCom

from sluice.errors import SluiceError
from sluice_airflow import account
from sluice_airflow import acquire as acquiring
from sluice_airflow import settle as settling
from sluice_airflow.airflow_names import AirflowException, AirflowFailException, conf
from sluice_airflow.deployment import lease_of_run
from sluice_airflow.hooks.fluss import FlussHook
from sluice_airflow.operators.keep import KeepClaimsOperator, end_keeper
from sluice_airflow.operators.tier import SluiceTierOperator
from sluice_airflow.packs import Pack, PackLimits, tables_of
from sluice_airflow.run_names import RunName
from sluice_airflow.settings import Settings, load_settings, slots_at_once
from sluice_airflow.task_states import mapped_states_of, state_of, states_of

if TYPE_CHECKING:
    from airflow.sdk import Context

log = logging.getLogger(__name__)

OPEN = "open_job"
TIER = "per_application.tier"
SETTLE = "per_application.settle"
ACQUIRE = "acquire_lease"
KEEP = "keep_claims"
KEEP_FIRST = 100
"""Priority of keep_claims: above acquire_lease, whose own includes the tasks after it."""
DROP = "drop_lease"
VERDICTS = "verdicts"
"""XCom key of settle: the reports of its tables."""
ACCOUNT = "account"
"""XCom key of acquire_lease: the account of the tables that no tier task has. Of drop_lease: what
became of each table that the run was asked for."""
TABLES_MAX = 10_000
PATTERNS_MAX = 1000


def params() -> dict[str, Param]:
    """Returns the parameters of a run. Airflow checks them and shows them as a form."""
    return {
        "tables": Param(
            ["*"],
            type="array",
            items={"type": "string", "minLength": 1, "maxLength": 401},
            minItems=1,
            maxItems=PATTERNS_MAX,
            title="Tables",
            description="Tables to tier: names or patterns, such as sales.orders, sales.* or *.",
        ),
        "max_tables": Param(
            TABLES_MAX,
            type="integer",
            minimum=1,
            maximum=TABLES_MAX,
            title="Maximum number of tables",
            description="The run claims no more tables than this.",
        ),
        "force": Param(
            False,
            type="boolean",
            title="Force",
            description="Tier the tables now, even if they are not due. A table that is named"
            " without a wildcard in a manual run is always tiered now.",
        ),
        "wait": Param(
            False,
            type="boolean",
            title="Wait",
            description="Tier the tables now, up to their ends at the time of the trigger, or fail."
            " Rounds repeat for that. A table that is named without a wildcard in a manual run is"
            " always tiered up to its end.",
        ),
        "dry_run": Param(
            False,
            type="boolean",
            title="Dry run",
            description="Claim nothing. The log of drop_lease has what the run would tier.",
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
        try:
            job, packs = (
                XCom.get_one(key="return_value", dag_id=dag_id, task_id=task, run_id=run_id)
                for task in (OPEN, ACQUIRE)
            )
        except ImportError:  # `airflow dags test` has no XComs and Variables for callbacks
            log.info("run %s is a test run: only its task %s releases claims", run_id, DROP)
            return
        job = job or lease_of_run(connection, dag_id, run_id)
        log.info("run %s: releasing the claims and the lease of %s", run_id, job)
        with hook.get_client() as client:
            settling.drop(client, connection.require_work_uri(), job, tables_of(packs))


def _tasks(dag: DAG, settings: Settings) -> None:
    hook = FlussHook(settings.connection)

    @setup
    def open_job() -> str:
        """Computes the lease id of the run. drop_lease then runs even if acquire_lease fails."""
        context = get_current_context()
        return lease_of_run(hook.config(), context["dag"].dag_id, str(context["run_id"]))

    @setup
    @task(show_return_value_in_logs=False)  # it would be one line for all tables
    def acquire_lease(job: str) -> list[Pack]:
        """Claims tables that are due, leases their KV snapshots, and packs them."""
        return _acquire(hook, settings, job)

    @teardown
    def settle(entry: Pack) -> None:
        """Reports outcomes of tables to the coordinator and releases their KV snapshots."""
        _settle(hook, entry)

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
    def per_application(entry: Any) -> None:
        tier = SluiceTierOperator(task_id="tier", entry=entry, **_tier_arguments(settings))
        tier >> settle(entry).as_teardown(setups=setups)

    per_application.expand(entry=entries)
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
        "map_index_template": "{{ label | default(task.entry['label']) }}",
        **iceberg,
    }


def _acquire(hook: FlussHook, settings: Settings, job: str) -> list[Pack]:
    # Imported here because they load pyarrow, which the DAG file itself does not need.
    from sluice_airflow import preflight
    from sluice_airflow.earlier_packs import NOTHING_EARLIER, Earlier
    from sluice_airflow.requests import Request, acquire_request
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
        slots = max(1, slots_at_once(settings) - busy)
        limits = PackLimits(settings.tables_per_application, settings.rows_per_application)
        run_type = context["dag_run"].run_type
        is_manual = getattr(run_type, "value", run_type) == "manual"
        run = RunName(ti.dag_id, str(context["run_id"]))
        is_again = ti.try_number > 1
        earlier = NOTHING_EARLIER
        if is_again:  # a retry, or a user has cleared this task, alone or with tier tasks
            earlier = Earlier.read(connection.require_work_uri(), job, mapped_states_of(ti, TIER))
        request = Request.of(chosen, is_manual=is_manual, run=run, earlier=earlier)
        with hook.get_client() as client:
            found = acquire_request(
                client,
                connection,
                job,
                request,
                limits,
                slots,
                settings.heartbeat_interval_seconds,
                tasks_max=conf.getint("core", "max_map_length"),
            )
        # Scheduled runs leave no name of an idle table: they would fill Airflow's database.
        told = found.to_xcom(names=is_manual)
        ti.xcom_push(key=ACCOUNT, value={**told, "again": is_again})
        return found.packs
    except SluiceError as error:
        if error.retryable:
            raise
        raise AirflowFailException(f"{type(error).__name__}: {error}") from error


def _settle(hook: FlussHook, pack: Pack) -> None:
    ti = get_current_context()["ti"]
    state = state_of(ti, TIER, ti.map_index)
    results, failures = (
        ti.xcom_pull(task_ids=TIER, key=key, map_indexes=ti.map_index) or {}
        for key in ("results", "failures")
    )
    with hook.get_client() as client:
        verdicts, errors = settling.settle_pack(client, pack["tables"], results, failures, state)
    for verdict in verdicts:
        _log_verdict(logging.INFO, verdict)
    told = [
        {**asdict(verdict), "reason": verdict.reason[: account.REASON_MAX]} for verdict in verdicts
    ]
    ti.xcom_push(key=VERDICTS, value=told)  # also if this task fails
    if errors:
        raise errors[0]


def _drop(hook: FlussHook, job: str) -> None:
    ti = get_current_context()["ti"]
    packs = ti.xcom_pull(task_ids=ACQUIRE) or []
    entries = tables_of(packs)
    end_keeper(ti, KEEP)  # first: until it has ended, it may lease snapshots
    work_uri = hook.config().require_work_uri()
    with hook.get_client() as client:
        verdicts = settling.drop(client, work_uri, job, entries)
    for verdict in verdicts:
        _log_verdict(logging.WARNING, verdict)
    acquired = state_of(ti, ACQUIRE)
    if acquired != "success":
        raise AirflowFailException(
            f"no table was tiered: the task {ACQUIRE} ended as {acquired}; see its log"
        )
    # Trust the result, not the state: a tier marked success by hand has none.
    indexes = list(range(len(packs)))
    settled = ti.xcom_pull(task_ids=SETTLE, key=VERDICTS, map_indexes=indexes) if packs else None
    told = [settling.Verdict(**verdict) for found in settled or () for verdict in found or ()]
    silent = {str(entry["table"]): entry for entry in entries}
    for verdict in (*told, *verdicts):
        silent.pop(verdict.table, None)
    told += filter(None, map(settling.unsettled, silent.values()))
    before = ti.xcom_pull(task_ids=ACQUIRE, key=ACCOUNT) or {}
    unclaimed = {one["table"]: one for one in before.get("tables", ())}
    if before.get("again"):  # a user may have cleared the run
        names = [name for name, one in unclaimed.items() if one["became"] in account.UNTOUCHED]
        for verdict in settling.tiered_before(work_uri, job, names) if names else ():
            unclaimed[verdict.table] = account.of_verdict(verdict)
    found = account.complete(
        unclaimed.values(),
        [str(entry["table"]) for entry in entries],
        told,
        verdicts,
    )
    counts = before.get("counts", {})
    _tell_account(ti, found, counts)
    if why := account.error(found, before.get("wanted", ()), sum(counts.values())):
        raise AirflowFailException(why)
    ended = [s for s in states_of(ti, TIER).values() if s not in ("success", "removed")]
    if ended and entries:
        raise AirflowFailException(
            f"all tables were tiered, but {len(ended)} of {len(packs)} tier tasks did not"
            " succeed; see their logs"
        )


def _tell_account(ti: Any, found: list[account.TableAccount], counts: dict[str, int]) -> None:
    """Logs what became of each table, and pushes it.

    :param counts: how many more tables became what, of which no name is known.
    """
    summary = account.summary(found, counts)
    log.info("%s", "\n".join([summary, *account.lines(found)]))
    shown = found[: account.SHOWN_MAX]
    ti.xcom_push(key=ACCOUNT, value={"summary": summary, "tables": shown})


def _log_verdict(level: int, verdict: settling.Verdict) -> None:
    reason = f" ({verdict.reason})" if verdict.reason else ""
    log.log(level, "%s: %s%s", verdict.table, verdict.reported, reason)
