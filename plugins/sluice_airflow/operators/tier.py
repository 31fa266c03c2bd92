"""Tiers one claimed table with spark-submit, and ends with the driver's own result or reason."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from sluice.client.heartbeats import Heartbeats
from sluice.errors import ClaimLost, DriverLost, DriverRefused, LeaseLost, SluiceError
from sluice.failpoints import failpoint
from sluice.masking import mask
from sluice.model import Claim
from sluice.rounds.files import (
    RoundFailure,
    RoundResult,
    failure_uri,
    read_json,
    result_uri,
    write_json,
)
from sluice_airflow import leasing
from sluice_airflow.airflow_names import (
    AirflowException,
    AirflowFailException,
    AirflowTaskTimeout,
)
from sluice_airflow.claims import Entry, claim_of
from sluice_airflow.connection import CONF_PREFIX
from sluice_airflow.hooks.fluss import FlussHook
from sluice_airflow.operators.submit import GroupSubmitHook
from sluice_airflow.operators.waiting import WaitingClaims

if TYPE_CHECKING:
    from airflow.sdk import Context

REASON_IN_XCOM_MAX = 500
NOTES_IN_XCOM_MAX = 3
CLAIM_LOST_KINDS = frozenset({"ClaimLost", "FencedTieringEpoch", "InvalidCoordinator"})


class TierFailed(AirflowException):
    """The table was not tiered; trying again may help."""


class TierFailedForGood(AirflowFailException):
    """The table was not tiered, and trying again cannot heal it."""


class SluiceTierOperator(SparkSubmitOperator):
    """Runs the Spark driver for one claimed table and keeps its claim alive meanwhile.

    Its XCom is the round's result without offsets; on failure the XCom ``failure`` holds kind,
    reason and where the whole text lies.

    :param entry: the claim, as acquire_lease handed it out. (templated)
    :param fluss_conn_id: connection of type fluss.
    :param acquire_task_id: task whose XCom lists all entries of the run.
    :param heartbeat_interval_s: seconds between two heartbeats.
    """

    conf: dict[str, Any] | None
    template_fields: Sequence[str] = (*SparkSubmitOperator.template_fields, "entry")

    def __init__(
        self,
        *,
        entry: Entry,
        fluss_conn_id: str = FlussHook.default_conn_name,
        acquire_task_id: str = "acquire_lease",
        heartbeat_interval_s: float = 20.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        # A driver that an earlier try left behind knows another attempt and is fenced by its base:
        # a new one is always begun. No argument, since providers before 6.2 do not take it.
        self.durable = False
        self.entry = entry
        self.fluss_conn_id = fluss_conn_id
        self.acquire_task_id = acquire_task_id
        self.heartbeat_interval_s = heartbeat_interval_s
        self._killed = False
        self._lost: ClaimLost | LeaseLost | None = None
        self._secret_environment: dict[str, str] = {}
        self._secrets: Sequence[str] = ()

    def execute(self, context: Context) -> dict[str, Any]:
        """Tiers the table.

        :raises TierFailed, TierFailedForGood: with the driver's own reason as the message.
        """
        entry, ti = self.entry, context["ti"]
        context["table"] = entry["table"]  # of the map index
        attempt = str(ti.id)
        try:
            outcome = self._tier(context, claim_of(entry), attempt)
        except AirflowTaskTimeout:
            reason = f"it took longer than its execution_timeout of {self.execution_timeout}"
            self._tell(ti, attempt, RoundFailure("TierTimedOut", reason, "", True))
            raise
        except ClaimLost as lost:
            outcome = _claim_lost(entry, str(lost))
        except SluiceError as error:
            reason = mask(str(error), self._secrets)
            outcome = RoundFailure(type(error).__name__, reason, "", error.retryable)
            self._leave(attempt, outcome)
        if isinstance(outcome, RoundFailure) and outcome.kind in CLAIM_LOST_KINDS:
            outcome = _claim_lost(entry, f"{outcome.kind}: {outcome.reason}")
        if isinstance(outcome, RoundResult):
            self.log.info("%s: %s, %d rows", entry["table"], outcome.outcome, outcome.rows)
            if outcome.forced:
                self.log.info("%s: forced: %s", entry["table"], outcome.forced)
            return _small(outcome, result_uri(entry["plan_uri"], attempt))
        self._tell(ti, attempt, outcome)
        kind = TierFailed if outcome.retryable else TierFailedForGood
        raise kind(f"{entry['table']}: {outcome.kind}: {outcome.reason}")

    def on_kill(self) -> None:
        self._killed = True
        super().on_kill()

    def _get_hook(self) -> GroupSubmitHook:
        # The provider builds the hook from two dozen arguments; only its class is to be another.
        hook = super()._get_hook()
        hook.__class__ = GroupSubmitHook
        hook.secret_environment = self._secret_environment
        hook.secrets = self._secrets
        hook.not_wanted = lambda: self._killed or self._lost is not None
        return hook

    def _tier(self, context: Context, claim: Claim, attempt: str) -> RoundResult | RoundFailure:
        hook = FlussHook(self.fluss_conn_id)
        connection = hook.config()
        plan = self.entry["plan_uri"]
        self.application_args = ["--plan", plan, "--attempt", attempt]
        # What the run asks for comes first, the lake that the connection names has the last word.
        asked = context["params"].get("spark_conf") or {}
        hidden = {f"{CONF_PREFIX}{name}" for name in connection.secret_settings()}
        asked = {name: value for name, value in asked.items() if name not in hidden}
        self.conf = {**(self.conf or {}), **asked, **connection.spark_conf()}
        self._secret_environment = connection.secret_environment()
        self._secrets = connection.secrets()
        self.name = f"sluice {claim.path} epoch {claim.tiering_epoch}"
        with hook.get_client() as client:
            error = client.tiering.heartbeat([claim])[claim.table_id]
            if error is not None:
                raise ClaimLost(f"the claim had gone before Spark was started: {error}")
            interval_s = self.heartbeat_interval_s
            self._lost = None

            def on_lost(lost: Claim, why: ClaimLost) -> None:
                if lost == claim:
                    self._give_up(why)

            with Heartbeats(client.tiering, interval_s, on_lost=on_lost) as heartbeats:
                heartbeats.add(claim)
                with (
                    leasing.kept(client, self.entry, self._give_up),
                    self._waiting(context, heartbeats, interval_s),
                ):
                    failpoint("airflow.tier.before_submit")
                    ended = self._submit(context)
                failpoint("airflow.tier.after_submit")
        return self._read(attempt, ended)

    def _give_up(self, why: ClaimLost | LeaseLost) -> None:
        """Ends the driver: its commit would be refused, or what it reads may go.

        Called by the thread that found out.
        """
        self.log.warning("%s; the Spark driver is ended", mask(str(why)))
        self._lost = why
        if self._hook is not None:
            self._hook.on_kill()

    def _waiting(self, context: Context, heartbeats: Heartbeats, every_s: float) -> WaitingClaims:
        ti = context["ti"]
        entries = ti.xcom_pull(task_ids=self.acquire_task_id) or []
        claims = {i: claim_of(entry) for i, entry in enumerate(entries) if i != ti.map_index}

        def states() -> dict[int, str | None]:
            answer = ti.get_task_states(
                dag_id=ti.dag_id, run_ids=[ti.run_id], task_ids=[ti.task_id]
            )
            prefix = f"{ti.task_id}_"  # the API names a mapped task TASK_INDEX
            found = answer.get(ti.run_id, {})
            return {
                int(name.removeprefix(prefix)): state
                for name, state in found.items()
                if name.startswith(prefix)
            }

        return WaitingClaims(heartbeats, claims, states, every_s)

    def _submit(self, context: Context) -> SluiceError:
        """Runs spark-submit to its end; what is to be said if it leaves no file behind."""
        error: Exception | None = None
        try:
            super().execute(context)
        except OSError as refused:
            return DriverRefused(f"spark-submit could not be started: {refused}")
        except AirflowException as failed:
            error = failed
        if self._lost is not None:
            return self._lost
        if self._killed:
            return DriverLost("Airflow ended the tier task, and with it the Spark driver")
        hook = self._hook
        assert isinstance(hook, GroupSubmitHook)
        if error is not None and hook.exit_code is None:
            return DriverRefused(f"spark-submit could not be started: {error}")
        said = f"; its last words:\n{hook.last_lines}" if hook.last_lines else ""
        return DriverLost(
            "the Spark driver ended without a result and without a reason"
            f" (spark-submit's exit code is {hook.exit_code}){said}"
        )

    def _read(self, attempt: str, ended: SluiceError) -> RoundResult | RoundFailure:
        """The driver's own word; only without one, that it was lost."""
        plan = self.entry["plan_uri"]
        try:
            if content := read_json(result_uri(plan, attempt)):
                return RoundResult.from_json(content)
            if isinstance(ended, ClaimLost | LeaseLost):
                raise ended  # whatever the driver says while it is ended, it is no failure
            if content := read_json(failure_uri(plan, attempt)):
                return RoundFailure.from_json(content)
        except OSError as error:
            said = mask(str(error), self._secrets)
            return RoundFailure("DriverLost", f"result beside {plan}: {said}", said, True)
        # A lost driver may do better on a fresh machine; a refused one was never started.
        again = isinstance(ended, DriverLost)
        failure = RoundFailure(type(ended).__name__, mask(str(ended), self._secrets), "", again)
        self._leave(attempt, failure)
        return failure

    def _leave(self, attempt: str, failure: RoundFailure) -> None:
        """Writes the failure file in the driver's place, so that the files tell the whole story."""
        try:
            write_json(failure_uri(self.entry["plan_uri"], attempt), failure.to_json())
        except OSError as error:
            shown = mask(str(error), self._secrets)
            self.log.warning("failure file beside %s: %s", self.entry["plan_uri"], shown)

    def _tell(self, ti: Any, attempt: str, failure: RoundFailure) -> None:
        """XComs survive a failing try; settle reads this one."""
        reason = failure.reason
        if len(reason) > REASON_IN_XCOM_MAX:
            reason = reason[: REASON_IN_XCOM_MAX - 3] + "..."
        ti.xcom_push(
            key="failure",
            value={
                "table": self.entry["table"],
                "kind": failure.kind,
                "reason": reason,
                "retryable": failure.retryable,
                "failure_uri": failure_uri(self.entry["plan_uri"], attempt),
            },
        )


def _claim_lost(entry: Entry, note: str) -> RoundResult:
    return RoundResult(
        entry["table"],
        entry["table_id"],
        entry["tiering_epoch"],
        entry["coordinator_epoch"],
        "claim_lost",
        notes=(note[:200],),
    )


def _small(result: RoundResult, uri: str) -> dict[str, Any]:
    """The result without what grows with the number of buckets; that stays in its file."""
    content = result.to_json()
    del content["offsets"]
    notes = [note[:200] for note in result.notes]
    more = len(notes) - NOTES_IN_XCOM_MAX
    content["notes"] = notes[:NOTES_IN_XCOM_MAX] + ([f"and {more} more"] if more > 0 else [])
    content["seconds"] = {name: round(seconds, 3) for name, seconds in result.seconds.items()}
    content["result_uri"] = uri
    return content
