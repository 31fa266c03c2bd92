"""Waits for a table: what a sensor and its trigger look at and say. Does not import Airflow."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sluice.clock import Clock, SystemClock
from sluice.errors import (
    AuthenticateError,
    AuthorizationError,
    ClaimLost,
    ConfigurationError,
    DatabaseNotExist,
    InvalidTable,
    InvalidTimestamp,
    MissingExtra,
    SluiceError,
    TableNotExist,
    WrongProtocol,
)
from sluice.masking import mask, reason_text
from sluice.model import LakeSnapshotInfo, TableInfo, TablePath
from sluice.rounds.records.run_names import RunNames
from sluice_airflow.goals import table_words as words
from sluice_airflow.goals.table_goal import Goal, Missing, look, offsets_sum, resolve
from sluice_airflow.goals.until import Until

if TYPE_CHECKING:
    from sluice.client import Client

CALL_MS = 10_000
"""Longest time for one call, retries included: the next look is the retry."""
_USELESS = (
    AuthenticateError,
    AuthorizationError,
    ConfigurationError,
    InvalidTable,
    MissingExtra,
    WrongProtocol,
)
"""Errors that a person must heal. All others may pass until the next look."""
_DROPPED = (ClaimLost, DatabaseNotExist, TableNotExist)


@dataclass(frozen=True, slots=True)
class Look:
    """What one look at a table has found."""

    lines: tuple[tuple[int, str], ...] = ()
    """What has changed, for the log: level and text."""
    tiered: Mapping[str, Any] | None = None
    """Set if the lake has reached the goal: ``lake_snapshot_id`` and ``offsets_sum``."""
    failure: str = ""
    """Why it is of no use to wait. Empty: wait, unless the goal is reached."""


class TableWatch:
    """Follows one table until its lake has what is waited for. For one thread at a time.

    The goal is found at the first look that can find it, and stays the same then. ``to_json`` keeps
    it for another process.
    """

    def __init__(
        self,
        path: TablePath,
        until: Until,
        *,
        fail_on_paused: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self.path, self.until, self.fail_on_paused = path, until, fail_on_paused
        self.secrets: tuple[str, ...] = ()
        """Values to mask in all texts."""
        self.work_uri = ""
        """Where runs leave their names. Empty: their leases are named."""
        self.last_line = ""
        """What the log says at the end: how long it took."""
        self._named = ("", "")
        self._clock = clock or SystemClock()
        self._started_ms = self._clock.now_ms()
        self._table_id: int | None = None
        self._goal: Goal | None = None
        self._noun = words.ROW
        self._said: dict[str, str] = {}  # the last line of each subject
        self._lines: list[tuple[int, str]] = []

    @classmethod
    def begin(cls, table: str, until: Any, *, fail_on_paused: bool) -> TableWatch:
        """:raises ConfigurationError, InvalidTable: the arguments of the sensor are wrong."""
        return cls(TablePath.parse(table), Until.parse(until), fail_on_paused=fail_on_paused)

    @classmethod
    def from_json(cls, content: Mapping[str, Any], clock: Clock | None = None) -> TableWatch:
        """Continues the watch that :meth:`to_json` has described."""
        watch = cls(
            TablePath.parse(content["table"]),
            Until(**content["until"]),
            fail_on_paused=content["fail_on_paused"],
            clock=clock,
        )
        watch._started_ms = content["started_ms"]
        watch._table_id = content["table_id"]
        watch._goal = None if content["goal"] is None else Goal(**content["goal"])
        watch._noun = content["noun"]
        watch._said = dict(content["said"])
        return watch

    def to_json(self) -> dict[str, Any]:
        return {
            "table": str(self.path),
            "until": self.until.to_json(),
            "fail_on_paused": self.fail_on_paused,
            "started_ms": self._started_ms,
            "table_id": self._table_id,
            "goal": None if self._goal is None else self._goal.to_json(),
            "noun": self._noun,
            "said": dict(self._said),
        }

    @property
    def may_move(self) -> bool:
        """Whether another process would find another goal: "now" is not yet resolved."""
        return self._goal is None and self.until == Until()

    def look(self, client: Client) -> Look:
        """Looks once. Never raises an error of the cluster; each call has a time-out."""
        self._lines = []
        try:
            found = self._look(client)
        except (SluiceError, OSError) as error:
            return self.unread(error)
        if self._said.pop("error", None) is not None and not found.failure:
            self._lines.insert(0, (logging.INFO, f"{self.path}: the cluster answers again"))
        return replace(found, lines=self._masked(self._lines), failure=self._mask(found.failure))

    def unread(self, error: Exception, *, may_heal: bool = False) -> Look:
        """What a look means that an error has ended; also an error of the connection itself.

        :param may_heal: an earlier look has found the connection right.
        """
        kind, text = type(error).__name__, reason_text(str(error), self.secrets)
        if isinstance(error, _DROPPED):
            return Look(self._masked(self._lines), failure=words.dropped(self.path, error))
        if isinstance(error, _USELESS) and not may_heal:
            return Look(self._masked(self._lines), failure=f"{self.path}: {kind}: {text}")
        # Texts of one error differ in times and attempts, which are no news.
        server = error.details.get("server", "") if isinstance(error, SluiceError) else ""
        key = f"{kind} {server}"
        before = self._said.get("error", "").partition("\n")[0]
        self._said["error"] = f"{key}\n{kind}: {text}"
        if key != before:
            line = f"{self.path}: cannot be looked at, which is tried again: {kind}: {text}"
            self._lines.append((logging.WARNING, line))
        return Look(self._masked(self._lines))

    def missing(self) -> str:
        """What is missing and why, for the error of a time-out."""
        if self._goal is None:
            first = self._said.get("goal", f"{self.path}: what is to be tiered is not known yet")
        else:
            first = self._said["left"] if "left" in self._said else self._said["goal"]
        parts = [first]
        if "status" in self._said:
            parts.append(self._said["status"].removeprefix(f"{self.path}: "))
        if error := self._said.get("error", "").partition("\n")[2]:
            parts.append(f"the last look failed: {error}")
        return self._mask("; ".join(parts))

    def timed_out(self, timeout_s: float) -> str:
        """The error of a time-out."""
        return f"not tiered within the timeout of {words.span(timeout_s)}: {self.missing()}"

    def _look(self, client: Client) -> Look:
        info = client.admin.table_info(self.path)
        if failure := self._unfit(info):
            return Look(failure=failure)
        self._noun = words.CHANGE if info.has_primary_key else words.ROW
        if self._goal is None and self._is_early():
            return Look()
        lake = client.admin.lake_snapshot(self.path)
        if self._goal is None:
            try:
                self._goal, missing = resolve(client, info, self.until, lake)
            except InvalidTimestamp:
                self._say("goal", words.clock_behind(self.path, self.until))
                return Look()
            is_first = True
        else:
            self._goal, missing = look(client, info, self._goal, lake)
            is_first = False
        self._say_dropped(missing)
        if not missing.rows:
            return self._reached(lake)
        self._say_progress(lake, missing, is_first=is_first)
        return self._look_at_status(client)

    def _unfit(self, info: TableInfo) -> str:
        """Why this table never reaches the goal."""
        if self._table_id is None:
            self._table_id = info.table_id
        if info.table_id != self._table_id:
            return words.created_again(self.path, self._table_id, info.table_id)
        return "" if info.datalake_enabled else words.not_enabled(self.path)

    def _is_early(self) -> bool:
        """Whether the time that is waited for has not come by this machine's clock."""
        time_ms, now_ms = self.until.time_ms, self._clock.now_ms()
        if time_ms is None or now_ms >= time_ms:
            return False
        if "goal" not in self._said:
            self._say("goal", words.early(self.path, time_ms, now_ms))
        return True

    def _reached(self, lake: LakeSnapshotInfo | None) -> Look:
        assert self._goal is not None
        took_ms = self._clock.now_ms() - self._started_ms
        self.last_line = self._mask(words.reached(self.path, self._goal, lake, took_ms, self._noun))
        # A text, because browsers round large numbers.
        snapshot_id = None if lake is None else str(lake.snapshot_id)
        return Look(tiered={"lake_snapshot_id": snapshot_id, "offsets_sum": offsets_sum(lake)})

    def _say_dropped(self, missing: Missing) -> None:
        for partition_id, rows in missing.dropped.items():
            line = words.partition_dropped(self.path, partition_id, rows, self._noun)
            self._lines.append((logging.WARNING, line))

    def _say_progress(
        self, lake: LakeSnapshotInfo | None, missing: Missing, *, is_first: bool
    ) -> None:
        assert self._goal is not None
        left = words.left(self.path, self._goal, lake, missing.rows, self._noun)
        if is_first:
            line = words.goal(self.path, self.until, self._goal, lake, missing.rows, self._noun)
            self._say("goal", line)
            self._said["left"], self._said["left_rows"] = left, str(missing.rows)
        elif self._said.get("left_rows") != str(missing.rows):
            self._said["left_rows"] = str(missing.rows)
            self._say("left", left)

    def _look_at_status(self, client: Client) -> Look:
        # Only a goal that the user counts may be ahead of the logs.
        is_counted = self.until.ends is not None or self.until.offsets_sum is not None
        try:
            found = client.statuses.list(self.path, lags=is_counted)
        except _DROPPED:
            raise
        except (SluiceError, OSError) as error:
            text = reason_text(str(error), self.secrets)
            self._say("status", f"{self.path}: its status cannot be read: {text}")
            return Look()
        status = found[0] if found else None
        state, trouble = words.status(
            self.path, status, is_counted=is_counted, name_of=self._name_of
        )
        level = logging.WARNING if words.is_stuck(status) else logging.INFO
        self._say("status", state, level, trouble)
        if status is not None and status.paused and self.fail_on_paused:
            return Look(failure=self.missing())
        return Look()

    def _name_of(self, claimed_by: str) -> str:
        """The run of a claim, read once for each claim; its lease if the name cannot be read."""
        if self._named[0] != claimed_by:
            try:
                name = RunNames(self.work_uri).of(claimed_by)
            except Exception:  # libraries of object stores have errors of their own
                name = claimed_by
            self._named = (claimed_by, name)
        return self._named[1]

    def _say(self, subject: str, line: str, level: int = logging.INFO, trouble: str = "") -> None:
        """Adds a line if it differs from the last one of its subject.

        :param trouble: follows the line, in the log only where it is new.
        """
        line, trouble = self._mask(line), self._mask(trouble)
        complete = f"{line}; {trouble}" if trouble else line
        if self._said.get(subject) == complete:
            return
        is_old = trouble == self._said.get("trouble", "")
        self._said[subject] = complete
        if subject == "status":
            self._said["trouble"] = trouble
        self._lines.append((level, line if is_old else complete))

    def _masked(self, lines: Iterable[tuple[int, str]]) -> tuple[tuple[int, str], ...]:
        found = tuple((level, self._mask(text)) for level, text in lines)
        self._lines = []
        return found

    def _mask(self, text: str) -> str:
        return mask(text, self.secrets)


def open_client(config: Any) -> Client:
    """Opens a client whose calls end soon.

    :param config: of a :class:`~sluice_airflow.config.connection.FlussConnection`.
    """
    from sluice.client import connect

    return connect(config.client_config(CALL_MS))
