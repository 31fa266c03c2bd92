"""Tiers one claimed table with spark-submit. Returns the driver's result or raises its reason."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from sluice.client.heartbeats import Heartbeats
from sluice.errors import (
    ClaimLost,
    DriverLost,
    DriverRefused,
    FlussError,
    LeaseLost,
    SluiceError,
    StoppedByUser,
    TierTimedOut,
)
from sluice.failpoints import failpoint
from sluice.masking import mask
from sluice.model import Claim, Reason
from sluice.rounds.copy_size import size_uri
from sluice.rounds.files import (
    RoundFailure,
    RoundResult,
    claim_of,
    failure_uri,
    read_json,
    result_uri,
    write_json,
)
from sluice.rounds.reasons import failure_of, reason_of
from sluice_airflow import leasing
from sluice_airflow.airflow_names import (
    AirflowException,
    AirflowFailException,
    AirflowTaskTimeout,
)
from sluice_airflow.claimed_again import is_started, mark_started, newest_claim
from sluice_airflow.claims import ClaimedTable
from sluice_airflow.connection import CONF_PREFIX
from sluice_airflow.group_submit import GroupSubmitHook
from sluice_airflow.hooks.fluss import FlussHook
from sluice_airflow.operators.keep import missing_keeper
from sluice_airflow.operators.time_limit import TimeLimit
from sluice_airflow.operators.waiting import WaitingClaims
from sluice_airflow.settle import NO_REPORT_EXPECTED, UNREADABLE
from sluice_airflow.task_states import state_of, states_of

if TYPE_CHECKING:
    from airflow.sdk import Context

    from sluice.client import Client

REASON_IN_XCOM_MAX = 500
NOTES_IN_XCOM_MAX = 3
STATE_S = 4.0
"""How long a task that is stopped waits for its own state. Airflow kills it after 5 s."""
CLAIMED_AGAIN_S = 5.0
"""Seconds after a heartbeat interval in which the keeper has taken a lost claim again."""
CLAIMED_AGAIN_POLL_S = 1.0
CLAIM_LOST_KINDS = frozenset({"ClaimLost", "FencedTieringEpoch", "InvalidCoordinator"})


class TierFailed(AirflowException):
    """The table was not tiered. A retry may succeed."""


class TierFailedForGood(AirflowFailException):
    """The table was not tiered, and a retry cannot succeed."""


class SluiceTierOperator(SparkSubmitOperator):
    """Runs the Spark driver for one claimed table, sends heartbeats for its claim, reports success.

    Each try leaves a result or failure file next to the plan. The XCom is a summary of the result
    and the address of its file; after a failure, the XCom ``failure`` has the same of the failure.

    :param entry: one of the claimed tables that acquire_lease returned. (templated)
    :param fluss_conn_id: connection of type fluss.
    :param acquire_task_id: task whose XCom lists all claimed tables of the run.
    :param keep_task_id: task that claims lost tables of the run again.
    :param heartbeat_interval_s: seconds between two heartbeats.
    :param time_limit_s: maximum seconds of one try, which the size of the round extends (see
        :class:`TimeLimit`); 0: no limit. ``execution_timeout`` is a limit that nothing extends.
    """

    conf: dict[str, Any] | None
    template_fields: Sequence[str] = (*SparkSubmitOperator.template_fields, "entry")

    def __init__(
        self,
        *,
        entry: ClaimedTable,
        fluss_conn_id: str = FlussHook.default_conn_name,
        acquire_task_id: str = "acquire_lease",
        keep_task_id: str = "keep_claims",
        heartbeat_interval_s: float = 20.0,
        time_limit_s: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        # Always start a new driver: a driver of an earlier try has another attempt id, and its
        # base fences it. Not an argument, because providers before 6.2 do not accept it.
        self.durable = False
        self.entry = entry
        self.fluss_conn_id = fluss_conn_id
        self.acquire_task_id = acquire_task_id
        self.keep_task_id = keep_task_id
        self.heartbeat_interval_s = heartbeat_interval_s
        self.time_limit_s = time_limit_s
        self._killed = False
        self._lost: ClaimLost | LeaseLost | TierTimedOut | None = None
        self._left_before: dict[str, Any] | None = None
        self._reported = False
        self._ti: Any = None
        self._asked = Event()
        self._stopped: StoppedByUser | None = None
        self._secret_environment: dict[str, str] = {}
        self._secrets: Sequence[str] = ()

    def execute(self, context: Context) -> dict[str, Any]:
        """Tiers the table and returns its result.

        :raises TierFailed, TierFailedForGood: the message has the driver's reason.
        """
        table, ti = self.entry["table"], context["ti"]
        context["table"] = table  # for map_index_template
        attempt = str(ti.id)
        self._ti = ti
        try:
            outcome = self._tier(context, attempt)
        except AirflowTaskTimeout:
            self._ti = None  # Airflow calls on_kill next
            text = f"this try took longer than its execution_timeout of {self.execution_timeout}"
            timed_out = Reason.from_text(text, kind="TierTimedOut", retryable=True)
            self._leave(ti, attempt, RoundFailure(timed_out))
            raise
        except ClaimLost as lost:
            outcome = failure_of(lost, self._secrets)
        except SluiceError as error:
            outcome = failure_of(error, self._secrets)
            self._write_failure(attempt, outcome)
        except Exception as error:  # of Airflow, for instance a connection that does not exist
            self._leave(ti, attempt, failure_of(error, self._secrets))
            raise
        if isinstance(outcome, RoundFailure) and outcome.reason.kind in CLAIM_LOST_KINDS:
            notes = (str(outcome.reason)[:200],)
            outcome = RoundResult.of(claim_of(self.entry), "claim_lost", notes=notes)
            self._write(result_uri(self.entry["plan_uri"], attempt), outcome.to_json())
        if isinstance(outcome, RoundResult):
            if outcome.outcome == "claim_lost":
                self.log.info("%s: claim lost: %s", table, "; ".join(outcome.notes))
            else:
                self.log.info("%s: %s, %d rows", table, outcome.outcome, outcome.rows)
            if outcome.forced:
                self.log.info("%s: the round ended early: %s", table, outcome.forced)
            xcom = _xcom_of(outcome, result_uri(self.entry["plan_uri"], attempt))
            return {**xcom, "reported": self._reported}
        raise tier_error(table, self._push_failure(ti, attempt, outcome))

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
                kind = StoppedByUser.__name__
                reason = Reason.from_text(str(stopped), kind=kind, retryable=True)
                self._write_failure(str(ti.id), RoundFailure(reason))
        except Exception as error:
            self.log.warning("cannot read why this task is stopped: %s", error)
        finally:
            self._asked.set()

    def _get_hook(self) -> GroupSubmitHook:
        # The provider builds the hook from two dozen arguments. Replace only its class.
        hook = super()._get_hook()
        hook.__class__ = GroupSubmitHook
        hook.secret_environment = self._secret_environment
        hook.secrets = self._secrets
        hook.is_cancelled = lambda: self._killed or self._lost is not None
        return hook

    def _tier(self, context: Context, attempt: str) -> RoundResult | RoundFailure:
        hook = FlussHook(self.fluss_conn_id)
        connection = hook.config()
        # The lake options of the connection override the properties of the run.
        spark_conf = context["params"].get("spark_conf") or {}
        hidden = {f"{CONF_PREFIX}{name}" for name in connection.secret_settings()}
        own_conf = {name: value for name, value in spark_conf.items() if name not in hidden}
        self.conf = {**(self.conf or {}), **own_conf, **connection.spark_conf()}
        self._secret_environment = connection.secret_environment()
        self._secrets = connection.secrets()
        with hook.get_client() as client:
            claim = self._start_claim(client, attempt, context["ti"])
            self.name = f"sluice {claim.path} epoch {claim.tiering_epoch}"
            self.application_args = ["--plan", self.entry["plan_uri"], "--attempt", attempt]
            interval_s = self.heartbeat_interval_s
            self._lost = self._left_before = None

            def on_lost(lost: Claim, why: ClaimLost) -> None:
                if lost == claim:
                    self._stop_driver(why)

            with Heartbeats(client.tiering, interval_s, on_lost=on_lost) as heartbeats:
                heartbeats.add(claim)
                with (
                    leasing.keep_lease(client, self.entry, self._stop_driver),
                    self._waiting_claims(context, heartbeats, interval_s),
                    TimeLimit(
                        self.time_limit_s,
                        size_uri(self.entry["plan_uri"], attempt),
                        self._stop_driver,
                    ),
                ):
                    failpoint("airflow.tier.before_submit")
                    ended = self._submit(context)
                failpoint("airflow.tier.after_submit")
                outcome = self._read_outcome(attempt, ended)
                if isinstance(outcome, RoundResult) and outcome.outcome != "claim_lost":
                    self._reported = self._report_success(client, claim, outcome)
        return outcome

    def _start_claim(self, client: Client, attempt: str, ti: Any) -> Claim:
        """Returns the newest claim of the table, and marks that this task works on it.

        If the claim was lost, the keeper of the run may claim the table again, at its next
        heartbeat. Without a keeper, the task does not wait.

        :raises ClaimLost: the claim is lost, and the table was not claimed again in time.
        """
        until = time.monotonic() + self.heartbeat_interval_s + CLAIMED_AGAIN_S
        error: FlussError | None = None
        no_keeper: str | None = None
        marked = False
        while True:
            newest = newest_claim(self.entry)
            # The keeper may have claimed the table again just before the mark.
            if marked and newest == self.entry:
                break
            self.entry = newest
            claim = claim_of(newest)
            error = client.tiering.heartbeat([claim])[claim.table_id]
            gives_up = time.monotonic() >= until or is_started(newest["plan_uri"])
            if error is not None and not gives_up and no_keeper is None:
                no_keeper = missing_keeper(ti, self.keep_task_id)
            marked = error is None or gives_up or bool(no_keeper)
            if marked:
                mark_started(newest["plan_uri"], attempt)
            else:
                time.sleep(CLAIMED_AGAIN_POLL_S)
        if error is not None:
            why = f"{error}; not claimed again: {no_keeper}" if no_keeper else error
            raise ClaimLost(f"the claim was lost before Spark started: {why}")
        return claim

    def _report_success(self, client: Client, claim: Claim, result: RoundResult) -> bool:
        """Reports the round while its heartbeats are sent. The settle task may start much later.

        :returns: whether the coordinator has its answer; if not, the settle task reports.
        """
        forced, details = bool(result.forced), result.details(self.entry.get("lease_id"))
        try:
            client.tiering.finished(claim, forced=forced, details=details)
        except NO_REPORT_EXPECTED as error:
            self.log.info("%s: the coordinator expects no report: %s", claim.path, error)
        except FlussError as error:
            shown = mask(str(error), self._secrets)
            self.log.warning("%s: the settle task will report the success: %s", claim.path, shown)
            return False
        else:
            self.log.info("%s: the success was reported to the coordinator", claim.path)
        return True

    def _stop_driver(self, why: ClaimLost | LeaseLost | TierTimedOut) -> None:
        """Stops the driver: its commit would be refused, its input may be deleted, or it hangs.

        The thread that detects this calls it. The first reason counts.
        """
        if self._lost is not None:
            return
        if isinstance(why, TierTimedOut) and self._ti is not None:
            with suppress(Exception):  # without the file, the try took too long
                uri = failure_uri(self.entry["plan_uri"], str(self._ti.id))
                self._left_before = read_json(uri)
        self.log.warning("%s; stopping the Spark driver", mask(str(why)))
        self._lost = why
        if self._hook is not None:
            self._hook.on_kill()

    def _waiting_claims(
        self, context: Context, heartbeats: Heartbeats, every_s: float
    ) -> WaitingClaims:
        ti = context["ti"]
        entries = ti.xcom_pull(task_ids=self.acquire_task_id) or []
        claims = {i: claim_of(entry) for i, entry in enumerate(entries) if i != ti.map_index}

        def states() -> dict[int, str | None]:
            prefix = f"{ti.task_id}_"
            return {
                int(name.removeprefix(prefix)): state
                for name, state in states_of(ti, ti.task_id).items()
                if name.startswith(prefix)
            }

        return WaitingClaims(heartbeats, claims, states, every_s)

    def _submit(self, context: Context) -> SluiceError:
        """Runs spark-submit to its end. Returns the error to report if there is no outcome file."""
        error: Exception | None = None
        try:
            super().execute(context)
        except OSError as refused:
            return DriverRefused(f"spark-submit could not be started: {refused}")
        except AirflowException as failed:
            error = failed
        self._ti = None  # the state of the task changes with its end
        if self._lost is not None:
            return self._lost
        if self._killed:
            self._asked.wait(STATE_S)
            return self._stopped or DriverLost("Airflow stopped the tier task and its Spark driver")
        hook = self._hook
        assert isinstance(hook, GroupSubmitHook)
        if error is not None and hook.exit_code is None:
            return DriverRefused(f"spark-submit could not be started: {error}")
        last_lines = f"; its last lines:\n{hook.last_lines}" if hook.last_lines else ""
        return DriverLost(
            "the Spark driver ended without a result or a reason"
            f" (spark-submit's exit code is {hook.exit_code}){last_lines}"
        )

    def _read_outcome(self, attempt: str, ended: SluiceError) -> RoundResult | RoundFailure:
        """Reads the driver's result or reason. Without either, the driver was lost."""
        plan = self.entry["plan_uri"]
        try:
            if content := read_json(result_uri(plan, attempt)):
                return RoundResult.from_json(content)
            if isinstance(ended, ClaimLost | LeaseLost):
                raise ended  # a reason that the driver gives while it is stopped does not count
            if isinstance(ended, TierTimedOut) and self._left_before:
                failure = RoundFailure.from_json(self._left_before)
                self._write_failure(attempt, failure)
                return failure
            stopped = isinstance(ended, StoppedByUser | TierTimedOut)
            if not stopped and (content := read_json(failure_uri(plan, attempt))):
                return RoundFailure.from_json(content)
        except OSError as error:
            # Not written to a file: it would replace the reason that the driver may have left.
            lost = reason_of(error, self._secrets).caused(
                DriverLost.__name__, f"cannot read the result next to {plan}"
            )
            return RoundFailure(replace(lost, retryable=True))
        # A retry may help a lost or slow driver, not one that could not start. All lines of its
        # output are of use, also those that look like a trace.
        again = isinstance(ended, DriverLost | TierTimedOut | StoppedByUser)
        reason = Reason.from_text(
            str(ended), self._secrets, kind=type(ended).__name__, retryable=again
        )
        self._write_failure(attempt, RoundFailure(reason))
        return RoundFailure(reason)

    def _leave(self, ti: Any, attempt: str, failure: RoundFailure) -> None:
        """Leaves the file and the XCom of a try whose error Airflow handles itself.

        A file that the driver has written stays.
        """
        with suppress(*UNREADABLE):
            if content := read_json(failure_uri(self.entry["plan_uri"], attempt)):
                failure = RoundFailure.from_json(content)
        self._write_failure(attempt, failure)
        self._push_failure(ti, attempt, failure)

    def _write_failure(self, attempt: str, failure: RoundFailure) -> None:
        self._write(failure_uri(self.entry["plan_uri"], attempt), failure.to_json(self._secrets))

    def _write(self, uri: str, content: dict[str, Any]) -> None:
        """Writes a file in place of the driver, so that each try leaves one."""
        try:
            write_json(uri, content)
        except (OSError, ValueError, ImportError) as error:
            self.log.warning("cannot write %s: %s", uri, mask(str(error), self._secrets))

    def _push_failure(self, ti: Any, attempt: str, failure: RoundFailure) -> Reason:
        """Pushes the XCom ``failure``: a summary, and the address of the file that settle reads.

        :returns: the reason, checked.
        """
        reason = failure.reason.checked(self._secrets)
        text = reason.text
        if len(text) > REASON_IN_XCOM_MAX:
            text = text[: REASON_IN_XCOM_MAX - 3] + "..."
        ti.xcom_push(
            key="failure",
            value={
                "table": self.entry["table"],
                "kind": reason.kind,
                "reason": text,
                "retryable": reason.retryable,
                "failure_uri": failure_uri(self.entry["plan_uri"], attempt),
            },
        )
        return reason


def stop_of(state: str | None) -> StoppedByUser | None:
    """The user's act that a task's state shows while Airflow kills it; None: it was none."""
    if state in ("success", "failed", "skipped"):
        return StoppedByUser(f"a user marked the task tier or its run as {state}")
    if state == "restarting":
        return StoppedByUser("a user cleared the task tier")
    return None


def tier_error(table: str, reason: Reason) -> AirflowException:
    """The error with which a task ends; its class decides whether Airflow retries the task."""
    kind = TierFailed if reason.retryable else TierFailedForGood
    return kind(f"{table}: {reason}")


def _xcom_of(result: RoundResult, uri: str) -> dict[str, Any]:
    """Returns the result without its offsets, which grow with the number of buckets."""
    content = result.to_json()
    del content["offsets"]
    for name in ("notes", "history_notes"):
        notes = [note[:200] for note in content[name]]
        more = len(notes) - NOTES_IN_XCOM_MAX
        content[name] = notes[:NOTES_IN_XCOM_MAX] + ([f"and {more} more"] if more > 0 else [])
    content["seconds"] = {name: round(seconds, 3) for name, seconds in result.seconds.items()}
    content["result_uri"] = uri
    return content
