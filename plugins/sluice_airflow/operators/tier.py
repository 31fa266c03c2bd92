"""Tiers the tables of a pack with spark-submit. Returns their results or raises their reasons."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, ClassVar

from sluice.client.tiering.heartbeats import Heartbeats
from sluice.errors import (
    ClaimLost,
    DriverLost,
    LeaseLost,
    SluiceError,
    SparkSettingsWrong,
    StoppedByUser,
)
from sluice.failpoints import failpoint
from sluice.model import Claim, Reason
from sluice.quantities import counted
from sluice.rounds.records.json_files import write_json
from sluice.rounds.records.log_line import result_line
from sluice.rounds.records.packs import PackFile, SparkApplication, pack_uri, run_file_names
from sluice.rounds.records.plan_file import claim_of
from sluice.rounds.records.result import RoundFailure, RoundResult
from sluice.rounds.values.reasons import failure_of, reason_of
from sluice_airflow.airflow_api.airflow_names import AirflowTaskTimeout
from sluice_airflow.airflow_api.task_states import mapped_states_of, state_of
from sluice_airflow.claims import leasing
from sluice_airflow.claims.claimed_again import newest_claim
from sluice_airflow.claims.claims import ClaimedTable
from sluice_airflow.claims.packs import PACK_LABEL, Pack, label_of, tables_of
from sluice_airflow.claims.task_runs import TaskRun
from sluice_airflow.config.settings import load_settings
from sluice_airflow.hooks.fluss import FlussHook
from sluice_airflow.operators.keep import missing_keeper
from sluice_airflow.outcomes.failed_start import FailedStarts
from sluice_airflow.outcomes.lineage import Lineage, facets_or_none
from sluice_airflow.outcomes.links import LINKS, SPARK_LINK, LinkTargets, push_link
from sluice_airflow.submit.process_group import GroupSubmitHook
from sluice_airflow.tier.arguments import left_out, spark_connection
from sluice_airflow.tier.errors import stop_of, tier_error, why_lost
from sluice_airflow.tier.next_rounds import NextRounds
from sluice_airflow.tier.pack_watch import PackWatch, stop_paused
from sluice_airflow.tier.spark_driver import SparkDriverOperator, submit_arguments
from sluice_airflow.tier.start_claims import start_claims
from sluice_airflow.tier.tried_table import TriedTable, applications
from sluice_airflow.tier.waiting import WaitingClaims

if TYPE_CHECKING:
    from airflow.sdk import Context

    from sluice.client import Client

STOPPED = "Airflow stopped the tier task and its Spark driver"
STATE_S = 4.0
"""How long a task that is stopped waits for its own state. Airflow kills it after 5 s."""
CLAIMED_AGAIN_S = 5.0
"""Seconds after a heartbeat interval in which the keeper has taken a lost claim again."""
LEAVE_THREADS = 16
SMALL_ROWS = 1_000_000
"""An application with fewer rows ends within seconds: nobody sees Spark's UI."""
FAIR = {"spark.scheduler.mode": "FAIR"}
"""Tables of one application share its executors evenly."""


class SluiceTierOperator(SparkDriverOperator):
    """Runs one Spark application for the tables of a pack, and reports each table that it tiered.

    It sends the heartbeats of their claims. Each try of a table leaves a result or failure file
    next to its plan. The XComs ``results`` and ``failures`` summarize them by table. A retry tiers
    the tables that have no result. A table during which a driver was lost gets an application of
    its own then.

    ``tables`` among the rendered fields has the names of all tables.

    Everything from ``heartbeat_interval_seconds`` on has the name and meaning of an option of the
    section [sluice] of Airflow's configuration. None: that option counts. The section also says
    ``pool``, ``retries`` and ``retry_delay``, unless the call or ``default_args`` gives them. It
    does not if the operator itself is mapped: Airflow sets them in ``partial``.

    The arguments of Airflow's SparkSubmitOperator are accepted, too. Its ``conn_id`` is another
    name of ``spark_conn_id``.

    :param entry: one of the packs that SluiceAcquireOperator returned. (templated)
    :param fluss_conn_id: connection of type fluss; None: as the section [sluice] says.
    :param datalake: options of the lake that override those of the connection.
    :param spark_conf: Spark properties of the run, over those of ``conf``. (templated)
    :param acquire_task_id: task whose XCom lists all packs of the run.
    :param keep_task_id: task that claims lost tables of the run again.
    :param heartbeat_interval_seconds: seconds between two heartbeats.
    :param tier_timeout_seconds: maximum seconds for one table, which the size of its round extends
        (see :class:`TimeLimit`); 0: no limit. ``execution_timeout`` is a limit that nothing
        extends.
    :param spark_conn_id: connection of type spark. None: option ``spark_connection``.
    :param spark_history_url: address of Spark's history server, for a link.
    :param lake_table_url: address of a lake table's page, for a link; see the option of that name.
    :param health_url: address of a page on a table's health, for a link; see the option.
    """

    usual_conf = FAIR
    template_fields: Sequence[str] = (
        "tables",
        "name",
        *(field for field in SparkDriverOperator.template_fields if field != "name"),
        "spark_conf",
        "entry",
    )
    operator_extra_links: ClassVar[Any] = LINKS
    _lineage: Lineage | None = None
    _watch: PackWatch | None = None
    _ti: Any = None
    _stopped: StoppedByUser | None = None

    def __init__(
        self,
        *,
        entry: Any,
        fluss_conn_id: str | None = None,
        datalake: Mapping[str, Any] | None = None,
        spark_conf: Any = None,
        acquire_task_id: str = "acquire_lease",
        keep_task_id: str = "keep_claims",
        heartbeat_interval_seconds: int | None = None,
        tier_timeout_seconds: int | None = None,
        spark_conn_id: str | None = None,
        application: str | None = None,
        py_files: str | None = None,
        spark_binary: str | None = None,
        packages: str | None = None,
        jars: str | None = None,
        spark_history_url: str | None = None,
        lake_table_url: str | None = None,
        health_url: str | None = None,
        **kwargs: Any,
    ) -> None:
        settings = load_settings(
            connection=fluss_conn_id,
            spark_connection=spark_connection(spark_conn_id, kwargs),
            heartbeat_interval_seconds=heartbeat_interval_seconds,
            tier_timeout_seconds=tier_timeout_seconds,
            application=application,
            py_files=py_files,
            spark_binary=spark_binary,
            packages=packages,
            jars=jars,
            spark_history_url=spark_history_url,
            lake_table_url=lake_table_url,
            health_url=health_url,
        )
        kwargs.setdefault("map_index_template", PACK_LABEL)
        kwargs.update(left_out(settings.of_tier_task(), kwargs))
        super().__init__(**submit_arguments(settings, settings.script), **kwargs)
        self._prepare(settings, datalake, spark_conf)
        self.entry: Pack = entry
        self.tables = ""
        self.acquire_task_id = acquire_task_id
        self.keep_task_id = keep_task_id
        self.heartbeat_interval_seconds = settings.heartbeat_interval_seconds
        self.tier_timeout_seconds = settings.tier_timeout_seconds
        self.spark_history_url = settings.spark_history_url
        self.lake_table_url = settings.lake_table_url
        self.health_url = settings.health_url
        self.links = LinkTargets(self.spark_history_url, self.lake_table_url, self.health_url)
        self._tables: list[TriedTable] = []
        self._asked = Event()

    @classmethod
    def get_serialized_fields(cls) -> frozenset[str]:
        """Also the addresses that the page links to, which it reads from Airflow's database."""
        addresses = {"spark_history_url", "lake_table_url", "health_url"}
        return super().get_serialized_fields() | addresses

    def execute(self, context: Context) -> dict[str, Any]:
        """Tiers the tables and returns a summary.

        :raises TierFailed, TierNotRetried: the message has the reasons of the drivers.
        """
        ti = context["ti"]
        context["label"] = self.entry["label"]  # for map_index_template
        attempt = str(ti.id)
        self._ti = ti
        task = str(TaskRun.of(ti))
        self._tables = [TriedTable(table, attempt, task) for table in self.entry["tables"]]
        try:
            if self._tables:  # a clear may leave a task without tables (earlier_packs.py)
                self._tier(context, attempt)
            if self._killed:  # between two applications
                for table in self._unfinished():
                    if self._stopped is None:
                        table.fail_unbegun(STOPPED)
                    else:
                        table.fail_with(self._stopped)
        except AirflowTaskTimeout:
            self._ti = None  # Airflow calls on_kill next
            text = f"this try took longer than its execution_timeout of {self.execution_timeout}"
            timed_out = Reason.from_text(text, kind="TierTimedOut", retryable=True)
            try:
                for table in self._unfinished():
                    table.leave(RoundFailure(timed_out))
                self._push_outcomes(ti)
            except Exception as error:  # or Airflow takes it for the failure, and calls no on_kill
                self.log.error("cannot tell what this try has tiered: %s", reason_of(error))
            raise
        except SluiceError as error:
            for table in self._unfinished():
                table.fail(failure_of(error, self._secrets))
        except Exception as error:  # of Airflow or of storage; a retry may succeed
            failure = failure_of(error, self._secrets)
            failure = replace(failure, reason=replace(failure.reason, retryable=True))
            for table in self._unfinished():
                table.leave(failure)
            self._push_outcomes(ti)
            raise
        return self._outcome(ti)

    def _do_render_template_fields(self, parent: Any, *args: Any, **kwargs: Any) -> None:
        """Renders as usual, then sets what the page "Rendered Templates" shows of this task.

        The tables, because Airflow shows only the start of ``entry``; the name of the application
        and its Spark properties, because they depend on the pack and on the connection.
        """
        super()._do_render_template_fields(parent, *args, **kwargs)
        if parent is not self:
            return
        self._given_conf = dict(self.conf or {})
        self.tables = ", ".join(table["table"] for table in self.entry["tables"])
        self.name = application_name(self.entry["tables"])
        try:
            self._set_conf(FlussHook(self.fluss_conn_id, self.datalake).config())
        except Exception as error:  # execute raises it again, and leaves the reason
            self.log.debug("the Spark properties are not known yet: %s", error)

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:  # noqa: ARG002
        """Returns the tables that this try has tiered. OpenLineage's provider calls it."""
        return facets_or_none(self._lineage, self._tables)

    get_openlineage_facets_on_failure = get_openlineage_facets_on_complete

    def on_kill(self) -> None:
        self._killed = True
        if self._ti is not None:  # not here: Airflow calls this inside a signal handler
            Thread(target=self._leave_stop, name="sluice-stopped", daemon=True).start()
        super().on_kill()

    def _leave_stop(self) -> None:
        """Leaves the reason of a try that a user stops. Airflow kills this process in seconds.

        A user's mark changes the state of the task before Airflow kills it. The state is still
        running if the worker shuts down, the try takes too long, or Airflow's API is unreachable.
        """
        ti = self._ti
        try:
            if (stopped := stop_of(state_of(ti, ti.task_id, ti.map_index))) is not None:
                self._stopped = stopped
                with ThreadPoolExecutor(LEAVE_THREADS) as pool:
                    list(pool.map(lambda table: table.fail_with(stopped), self._unfinished()))
        except Exception as error:
            self.log.warning("cannot read why this task is stopped: %s", error)
        finally:
            self._asked.set()

    def _unfinished(self) -> list[TriedTable]:
        return [table for table in self._tables if table.outcome is None]

    def _tier(self, context: Context, attempt: str) -> None:
        hook = FlussHook(self.fluss_conn_id, self.datalake)
        connection = hook.config()
        self._set_conf(connection)
        lease_id = self.entry["tables"][0]["lease_id"]
        names = run_file_names(connection.require_work_uri(), lease_id)
        for table in self._tables:
            table.secrets = self._secrets
            table.entry = newest_claim(table.entry)
        left = [t for t in self._tables if not t.read_earlier(names.get(t.plan_uri, ()))]
        self._lineage = Lineage(connection, self._tables)
        with hook.get_client() as client:
            interval_s = float(self.heartbeat_interval_seconds)
            left = start_claims(
                client,
                left,
                interval_s + CLAIMED_AGAIN_S,
                lambda: missing_keeper(context["ti"], self.keep_task_id),
            )

            def stop(tables: Iterable[TriedTable], why: ClaimLost | LeaseLost) -> None:
                for table in tables:
                    table.stop(why)
                if self._watch is not None:
                    self._watch.wake()

            def on_lost(claim: Claim, why: ClaimLost) -> None:
                stop((table for table in self._tables if table.claim == claim), why)

            def on_lease_lost(why: LeaseLost) -> None:
                stop((table for table in self._tables if table.entry.get("snapshots")), why)

            with Heartbeats(client.tiering, interval_s, on_lost=on_lost) as heartbeats:
                for table in left:
                    heartbeats.add(table.claim)
                with (
                    leasing.keep_lease(client, [t.entry for t in left], on_lease_lost),
                    self._waiting_claims(context, heartbeats, interval_s),
                ):
                    ended = {uri for uri, found in names.items() if "ended.json" in found}
                    rounds = NextRounds(
                        client,
                        connection,
                        lease_id,
                        heartbeats,
                        lambda: self._killed,
                        ended_before=ended,
                    )
                    left = left or rounds.begin(self._tables, f"{attempt}-0")
                    self._run_applications(context, client, heartbeats, left, rounds)

    def _run_applications(
        self,
        context: Context,
        client: Client,
        heartbeats: Heartbeats,
        left: list[TriedTable],
        rounds: NextRounds,
    ) -> None:
        """Runs applications until no table is left, or none can start."""
        ti = context["ti"]
        number, attempt = 0, str(ti.id)
        lease_id = self.entry["tables"][0]["lease_id"]
        work_uri = left[0].plan_uri.partition(f"/{lease_id}/")[0] if left else ""
        starts = FailedStarts(work_uri, ti.dag_id, ti.task_id)
        # Spark properties of this run alone tell nothing of other runs.
        is_special = bool((context["dag_run"].conf or {}).get("spark_conf"))
        while left:
            for tables in applications(left):
                uri = pack_uri(work_uri, lease_id, attempt, number)
                number += 1
                why = self._run_application(context, client, heartbeats, tables, uri)
                if self._killed:
                    return
                if isinstance(why, SparkSettingsWrong):
                    if not is_special:
                        starts.add(lease_id, why, int(time.time() * 1000))
                    for table in self._unfinished():  # of the other applications
                        table.fail_with(why)
                    return
                if number == 1 and not is_special and self._watch and self._watch.has_begun:
                    starts.clear()
            left = rounds.begin(self._tables, f"{attempt}-{number}")

    def _run_application(
        self,
        context: Context,
        client: Client,
        heartbeats: Heartbeats,
        tables: Sequence[TriedTable],
        uri: str,
    ) -> SluiceError | None:
        """Runs one Spark application to its end, and decides the outcomes of its tables.

        :param uri: the address of its pack file.
        :returns: why tables may have no outcome; None: no application was needed.
        """
        stop_paused(client, tables)
        for table in tables:
            if table.why_stopped is not None:
                table.fail_with(table.why_stopped)
        left = [table for table in tables if table.outcome is None]
        if not left:
            return None
        write_json(uri, PackFile(tuple(table.plan_uri for table in left)).to_json())
        self.name = application_name([table.entry for table in left])
        self.application_args = ["--pack", uri, "--attempt", left[0].attempt]
        self._hook = None
        self._is_stopping = False
        rows = [table.entry.get("rows", SMALL_ROWS) for table in left]
        self._is_small = sum(rows) < SMALL_ROWS
        names = label_of([table.entry for table in left])
        self.log.info("a Spark application for %s: %s", counted(len(left), "table"), names)
        watch = self._watch = PackWatch(
            client,
            heartbeats,
            left,
            uri,
            float(self.tier_timeout_seconds),
            self._stop_driver,
            self._secrets,
            float(self.heartbeat_interval_seconds),
            self._on_application,
        )
        with watch:
            failpoint("airflow.tier.before_submit")
            ended = self._submit(context)
        failpoint("airflow.tier.after_submit")
        ended = watch.end(ended, self._why_lost)
        if self._lineage is not None and not self._killed:
            self._lineage.read_schemas(client, left)
        return ended

    def _on_application(self, application: SparkApplication) -> None:
        """Links the running application, which the driver has named with its first table."""
        self.links.running(application)
        if application.ui_url:
            self.log.info("Spark application %s: %s", application.id, application.ui_url)
        if self._ti is not None:
            push_link(self._ti, SPARK_LINK, self.links.spark)

    def ended_links(self) -> LinkTargets:
        """The links after the end of the task, however it ended."""
        self.links.ended(self.entry["tables"], [table.outcome for table in self._tables])
        return self.links

    def _stop_driver(self) -> None:
        """Stops the driver: its commits would be refused, its input may be deleted, or it hangs."""
        self._is_stopping = True
        if self._hook is not None:
            self._hook.on_kill()

    def _waiting_claims(
        self, context: Context, heartbeats: Heartbeats, every_s: float
    ) -> WaitingClaims:
        ti = context["ti"]
        packs = ti.xcom_pull(task_ids=self.acquire_task_id) or []
        claims = {
            i: [claim_of(entry) for entry in tables_of([pack])]
            for i, pack in enumerate(packs)
            if i != ti.map_index
        }
        states = partial(mapped_states_of, ti, ti.task_id)
        return WaitingClaims(heartbeats, claims, states, every_s)

    def _submit(self, context: Context) -> SluiceError:
        """Runs spark-submit to its end. Returns the error of tables without an outcome file."""
        why = self._run_driver(context)
        if self._killed:
            self._ti = None  # the state of the task changes with its end
            self._asked.wait(STATE_S)
            return self._stopped or DriverLost(STOPPED)
        return why

    def _why_lost(self) -> SluiceError:
        """The error of a driver that had begun a table: its settings did work."""
        assert isinstance(self._hook, GroupSubmitHook)
        return why_lost(self._hook, is_stopped=self._is_stopping)

    def _push_outcomes(self, ti: Any) -> None:
        """Pushes the XComs ``results`` and ``failures``: summaries by table."""
        results = {t.name: t.xcom() for t in self._tables if isinstance(t.outcome, RoundResult)}
        failures = {t.name: t.xcom() for t in self._tables if isinstance(t.outcome, RoundFailure)}
        for key, found in (("results", results), ("failures", failures)):
            ti.xcom_push(key=key, value=found)  # also if empty: Airflow logs a missing one

    def _outcome(self, ti: Any) -> dict[str, Any]:
        """Logs and pushes what became of each table. Returns a summary.

        :raises TierFailed, TierNotRetried: tables have failed.
        """
        self._ti = None
        results = []
        failures = []
        for table in self._tables:
            if isinstance(table.outcome, RoundResult):
                results.append(table.outcome)
                self._log_result(table.outcome)
            elif table.is_paused:
                self.log.info("%s: paused", table.name)
            elif table.outcome is not None:
                failures.append((table.name, table.outcome.reason.checked(self._secrets)))
        self._push_outcomes(ti)
        if failures:
            raise tier_error(failures, len(self._tables))
        rows = sum(result.rows for result in results)
        self.log.info("%s, %s", counted(len(results), "table"), counted(rows, "row"))
        outcomes = Counter(result.outcome for result in results)
        outcomes.update("paused" for table in self._tables if table.is_paused)
        found = dict(sorted(outcomes.items()))
        return {"tables": len(results), "rows": rows, "outcomes": found}

    def _log_result(self, result: RoundResult) -> None:
        if result.outcome == "claim_lost":
            self.log.info("%s: claim lost: %s", result.table, "; ".join(result.notes))
        else:
            # The log of a driver on this machine has the phases already.
            is_here = isinstance(self._hook, GroupSubmitHook) and not self._hook.is_on_cluster
            line = result_line(result, phases=not is_here)
            url = self.links.lake_table_of(result)
            self.log.info("%s", f"{line}: {url}" if url else line)
        if result.forced:
            self.log.info("%s: the round ended early: %s", result.table, result.forced)


def application_name(tables: Sequence[ClaimedTable]) -> str:
    """What Spark calls the application of these tables."""
    epoch = f" epoch {tables[0]['tiering_epoch']}" if len(tables) == 1 else ""
    return f"sluice {label_of(tables)}{epoch}"
