"""One table in one try of the tier task, and the files that tell how it ended. No Airflow."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from sluice.errors import (
    ClaimLost,
    DriverLost,
    LeaseLost,
    SluiceError,
    SparkSettingsWrong,
    StoppedByUser,
    TablePaused,
    TierTimedOut,
)
from sluice.masking import mask
from sluice.model import Claim, Reason
from sluice.rounds.records.json_files import read_json, write_json
from sluice.rounds.records.packs import ran_without_outcome, running_uri
from sluice.rounds.records.plan_file import claim_of
from sluice.rounds.records.result import (
    RoundFailure,
    RoundResult,
    failure_uri,
    result_uri,
    round_failures,
)
from sluice.rounds.values.reasons import failure_of, reason_of
from sluice_airflow.claims.claims import ClaimedTable
from sluice_airflow.claims.task_runs import RanBy
from sluice_airflow.claims.unreadable import UNREADABLE
from sluice_airflow.outcomes.left_files import TIER_NOT_STARTED
from sluice_airflow.outcomes.verdict import id_text
from sluice_airflow.tier.time_limit import TimeLimit

log = logging.getLogger(__name__)

REASON_IN_XCOM_MAX = 500
NOTES_IN_XCOM_MAX = 2
CLAIM_LOST_KINDS = frozenset({"ClaimLost", "FencedTieringEpoch", "InvalidCoordinator"})
SETTINGS_WRONG = SparkSettingsWrong.__name__
RUNNING = "running-"
OUTCOMES = ("result-", "failure-")

Outcome = RoundResult | RoundFailure
StopReason = ClaimLost | LeaseLost | TablePaused | TierTimedOut


class TriedTable:
    """A table of a pack: its claim, why it must end early, and its outcome.

    The thread that watches the driver changes it, then the task's own. Another thread may call
    :meth:`stop`.
    """

    def __init__(
        self,
        entry: ClaimedTable,
        attempt: str,
        airflow_task: str | None = None,
    ) -> None:
        self.entry = entry
        self.attempt = attempt
        self.airflow_task = airflow_task
        """The task instance, as the history of the table keeps it."""
        self.spark_application: str | None = None
        """The id of the application of the present round. None: it has not told."""
        self.outcome: Outcome | None = None
        self.outcome_uri = ""
        self.why_stopped: StopReason | None = None
        self.is_reported = False
        self.is_suspect = False
        """An earlier driver was lost while it tiered this table, or the table took too long."""
        self.limit: TimeLimit | None = None
        """Set when the driver begins the table."""
        self.rounds = 1
        self.rows_before = 0
        """Rows of the earlier rounds of this try."""
        self.offsets_before: Mapping[str, int] = {}
        """The offsets that the round before has reached."""
        self.secrets: Sequence[str] = ()
        """Values to mask in its files."""

    @property
    def name(self) -> str:
        return self.entry["table"]

    @property
    def claim(self) -> Claim:
        return claim_of(self.entry)

    @property
    def plan_uri(self) -> str:
        return self.entry["plan_uri"]

    @property
    def ran_by(self) -> RanBy:
        """Who runs the present round, for its history."""
        return RanBy(airflow_task=self.airflow_task, spark_application=self.spark_application)

    def stop(self, why: StopReason) -> None:
        """Asks for the end of the table's round. The first reason counts."""
        if self.outcome is None and self.why_stopped is None:
            self.why_stopped = why

    def next_round(self, entry: ClaimedTable, attempt: str) -> None:
        """Begins one more round of the table in this try, with a new claim.

        :param attempt: the id of the round's files. A coordinator that restarted may repeat an
            epoch, so two rounds may share a folder.
        """
        if isinstance(self.outcome, RoundResult):
            self.rows_before += self.outcome.rows
            self.offsets_before = self.outcome.offsets
        self.rounds += 1
        self.entry, self.attempt = entry, attempt
        self.outcome, self.outcome_uri = None, ""
        self.why_stopped, self.limit = None, None
        self.spark_application = None
        self.is_reported = self.is_suspect = False

    def read_earlier(self, names: Collection[str]) -> bool:
        """Reads how earlier tries ended. Returns whether this try has nothing to do.

        A failure that no retry can heal stays, unless a user may have corrected Spark's settings.

        :param names: the names of the files next to the plan.
        :raises OSError, ValueError, UnknownFileVersion: the files cannot be read.
        """
        if not any(name.startswith((RUNNING, *OUTCOMES)) for name in names):
            return False
        failures = round_failures(self.plan_uri)
        attempts = {n.removeprefix(RUNNING).removesuffix(".json") for n in names if RUNNING in n}
        lost = [a for a, failure in failures.items() if _is_suspicious(failure)]
        self.is_suspect = any(a in lost or ran_without_outcome(a, names) for a in attempts)
        for uri, result in self._earlier_results(names):
            self._end(result, uri)
            if result.outcome != "claim_lost":
                break
        if self.outcome is None and failures:
            last, failure = [*failures.items()][-1]
            if not (failure.reason.retryable or failure.reason.kind == SETTINGS_WRONG):
                self._end(failure, failure_uri(self.plan_uri, last))
        return self.outcome is not None

    def _earlier_results(self, names: Collection[str]) -> Iterator[tuple[str, RoundResult]]:
        folder = self.plan_uri.rpartition("/")[0]
        for name in sorted(name for name in names if name.startswith("result-")):
            if content := read_json(f"{folder}/{name}"):
                yield f"{folder}/{name}", RoundResult.from_json(content)

    def has_begun(self) -> bool:
        """Returns whether the driver has begun the table in this try."""
        if self.limit is not None:
            return True
        try:
            return read_json(running_uri(self.plan_uri, self.attempt)) is not None
        except UNREADABLE:
            return True

    def read_outcome(self, *, failures_count: bool = True) -> None:
        """Reads what the driver has left.

        :param failures_count: whether a failure counts, or only a result.
        :raises OSError, ValueError, UnknownFileVersion: a file cannot be read.
        """
        if self.outcome is not None:
            return
        uri = result_uri(self.plan_uri, self.attempt)
        result = RoundResult.from_json(found) if (found := read_json(uri)) else None
        if result is not None and not (self.why_stopped and result.outcome == "claim_lost"):
            self._end(result, uri)
            return
        failure = read_json(failure_uri(self.plan_uri, self.attempt))
        if self.why_stopped is not None:
            if result is not None or failure is not None:  # the driver has ended the table
                self.fail_with(self.why_stopped)
        elif failures_count and failure is not None:
            self.fail(RoundFailure.from_json(failure), is_written=True)

    def end(self, ended: SluiceError, others: str = "") -> None:
        """Decides the outcome after the driver has ended.

        :param ended: what to report of a table without any outcome.
        :param others: if the driver was lost before it began this table, the tables that it had
            begun.
        """
        try:
            self.read_outcome(failures_count=not isinstance(ended, StoppedByUser))
        except OSError as error:
            # Not written to a file: it would replace the reason that the driver may have left.
            text = f"cannot read the result next to {self.plan_uri}"
            lost = reason_of(error, self.secrets).caused(DriverLost.__name__, text)
            self.fail(RoundFailure(replace(lost, retryable=True)), is_written=True)
        except Exception as error:  # the file is damaged, or a library has errors of its own
            self.fail(failure_of(error, self.secrets))
        if self.outcome is None and self.why_stopped is None and others:
            self.fail_unbegun(
                f"the Spark driver was lost before it began this table; it had begun {others}"
            )
        if self.outcome is None:
            self.fail_with(self.why_stopped or ended)

    def fail_with(self, error: SluiceError) -> None:
        """Fails the table, and leaves the file that a driver would have left."""
        if isinstance(error, ClaimLost | LeaseLost):
            self.fail(failure_of(error, self.secrets))
            return
        # A retry may help a lost or slow driver, not one that could not start. All lines of its
        # output are of use, also those that look like a trace.
        again = error.retryable or isinstance(error, DriverLost | StoppedByUser)
        kind = type(error).__name__
        self.fail(
            RoundFailure(Reason.from_text(str(error), self.secrets, kind=kind, retryable=again))
        )

    def fail_unbegun(self, why: str) -> None:
        """Ends a table that no driver has begun in this try. This is no failure of the table."""
        self.fail(RoundFailure(Reason.from_text(why, kind=TIER_NOT_STARTED, retryable=True)))

    def fail(self, failure: RoundFailure, *, is_written: bool = False) -> None:
        """Sets a failure as the outcome. A lost claim is none: it becomes a result."""
        if failure.reason.kind in CLAIM_LOST_KINDS:
            lost = RoundResult.of(self.claim, "claim_lost", notes=(str(failure.reason),))
            uri = result_uri(self.plan_uri, self.attempt)
            self._write(uri, lost.to_json())
            self._end(lost, uri)
            return
        uri = failure_uri(self.plan_uri, self.attempt)
        if not is_written:
            self._write(uri, failure.to_json(self.secrets))
        self._end(failure, uri)

    def note_first(self, note: str) -> None:
        """Puts a note before those of the result, for the account of the run."""
        assert isinstance(self.outcome, RoundResult)
        result = replace(self.outcome, notes=(note, *self.outcome.notes))
        result = result.checked(self.secrets)
        self._write(self.outcome_uri, result.to_json())
        self._end(result, self.outcome_uri)

    def end_idle(self) -> None:
        """Ends a table that was claimed again and reported, because it had no new rows.

        What its last round has tiered stays the result: another round has reached the end since.
        """
        assert isinstance(self.outcome, RoundResult)
        uri = self.outcome_uri or result_uri(self.plan_uri, self.attempt)
        result = replace(self.outcome, forced="")
        if result.outcome == "claim_lost":
            result = RoundResult.of(self.claim, "nothing_new")
        self._write(uri, result.to_json())
        self._end(result, uri)
        self.is_reported = True

    def leave(self, failure: RoundFailure) -> None:
        """Leaves the file of a try that ends with an error of Airflow.

        A reason that the driver has written stays.
        """
        if self.outcome is not None:
            return
        with suppress(*UNREADABLE):
            self.read_outcome()
        if self.outcome is None:
            self.fail(failure)

    @property
    def is_paused(self) -> bool:
        """Whether the table's round ended because a user paused the table."""
        outcome = self.outcome
        return isinstance(outcome, RoundFailure) and outcome.reason.kind == TablePaused.__name__

    @property
    def is_lost(self) -> bool:
        """Whether the table's round ended because its claim was lost."""
        return isinstance(self.outcome, RoundResult) and self.outcome.outcome == "claim_lost"

    def xcom(self) -> dict[str, Any]:
        """A summary of the outcome, and the address of its file."""
        if isinstance(self.outcome, RoundResult):
            found = {**_xcom_of(self.outcome, self.outcome_uri), "reported": self.is_reported}
            if self.rounds > 1:
                found |= {"rounds": self.rounds, "rows_before": self.rows_before}
            return found
        assert self.outcome is not None
        reason = self.outcome.reason.checked(self.secrets)
        text = reason.text
        if len(text) > REASON_IN_XCOM_MAX:
            text = text[: REASON_IN_XCOM_MAX - 3] + "..."
        return {
            "table": self.name,
            "kind": reason.kind,
            "reason": text,
            "retryable": reason.retryable,
            "failure_uri": self.outcome_uri,
            "reported": self.is_reported,
        }

    def _end(self, outcome: Outcome | None, uri: str) -> None:
        self.outcome, self.outcome_uri = outcome, uri

    def _write(self, uri: str, content: dict[str, Any]) -> None:
        """Writes a file in place of the driver, so that each try leaves one."""
        try:
            write_json(uri, content)
        except (OSError, ValueError, ImportError) as error:
            log.warning("cannot write %s: %s", uri, mask(str(error), self.secrets))


def _is_suspicious(failure: RoundFailure) -> bool:
    """Whether the table may have taken others down: its driver was lost, or it did not end."""
    return failure.reason.kind in (DriverLost.__name__, TierTimedOut.__name__)


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
    for name in ("lake_snapshot_id", "recovered_snapshot_id"):
        content[name] = id_text(content[name])
    return content


def applications(tables: Sequence[TriedTable]) -> list[list[TriedTable]]:
    """The tables of each Spark application of a try.

    A table during which an earlier driver was lost, or that took too long, has its own, so that it
    cannot take the others down again.
    """
    together = [table for table in tables if not table.is_suspect]
    alone = [[table] for table in tables if table.is_suspect]
    return [together, *alone] if together else alone
