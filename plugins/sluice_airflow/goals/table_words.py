"""The lines of a table sensor's log. Without I/O; does not import Airflow."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from sluice.model import LakeSnapshotInfo, TablePath, TieringStatus
from sluice.quantities import counted
from sluice.statuses import State
from sluice_airflow.goals.table_goal import Goal, offsets_sum
from sluice_airflow.goals.until import Until

ROW, CHANGE = "row", "change"
"""What an offset of a log is: of a table with a primary key, an update is two changes."""
REASON_CHARS_MAX = 500
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def goal(
    path: TablePath, until: Until, wanted: Goal, lake: LakeSnapshotInfo | None, left: int, noun: str
) -> str:
    """The first line: what is waited for, and how much of it the lake has."""
    if wanted.offsets_sum is not None:
        return (
            f"{path}: waiting until the end offsets of all buckets in the lake add up to"
            f" {wanted.rows:,}; {_has(lake, offsets_sum(lake))}"
        )
    before = "" if until.time_ms is None else f" written before {when(until.time_ms)}"
    verb = "is" if wanted.rows == 1 else "are"
    return (
        f"{path}: waiting until {counted(wanted.rows, noun)}{before} in"
        f" {counted(wanted.buckets, 'bucket')} {verb} tiered; {_has(lake, wanted.rows - left)}"
    )


def _has(lake: LakeSnapshotInfo | None, rows: int) -> str:
    if lake is None:
        return "there is no lake snapshot yet"
    return f"lake snapshot {lake.snapshot_id} has {rows:,}"


def left(path: TablePath, wanted: Goal, lake: LakeSnapshotInfo | None, rows: int, noun: str) -> str:
    """Progress: what is left."""
    seen = "no lake snapshot yet" if lake is None else f"lake snapshot {lake.snapshot_id}"
    of = counted(wanted.rows, "offset" if wanted.offsets_sum is not None else noun)
    return f"{path}: {rows:,} of {of} left; {seen}"


def reached(
    path: TablePath, wanted: Goal, lake: LakeSnapshotInfo | None, took_ms: int, noun: str
) -> str:
    """The last line: how long it took, and the lake snapshot."""
    if wanted.offsets_sum is not None:
        what = f"the end offsets in the lake add up to {offsets_sum(lake):,}"
    elif wanted.rows:
        verb = "is" if wanted.rows == 1 else "are"
        of = f"{counted(wanted.rows, noun)} in {counted(wanted.buckets, 'bucket')}"
        what = f"{of} {verb} tiered"
    else:
        what = f"there is no {noun} to wait for"
    snapshot = "no lake snapshot" if lake is None else f"lake snapshot {lake.snapshot_id}"
    return f"{path}: {what} after {span(took_ms / 1000)}; {snapshot}"


def early(path: TablePath, time_ms: int, now_ms: int) -> str:
    waits = span((time_ms - now_ms + 999) // 1000)
    return f"{path}: waiting for {when(time_ms)} (in {waits}), then for the rows written before it"


def clock_behind(path: TablePath, until: Until) -> str:
    assert until.time_ms is not None
    return (
        f"{path}: waiting for {when(until.time_ms)} by the clock of the cluster, which is behind"
        " the clock of this machine; then for the rows written before it"
    )


def partition_dropped(path: TablePath, partition_id: int, rows: int, noun: str) -> str:
    return (
        f"{path}: partition {partition_id} was dropped: {counted(rows, noun)} of it"
        f" {'is' if rows == 1 else 'are'} not waited for"
    )


def dropped(path: TablePath, error: Exception) -> str:
    """Why it is of no use to wait for a table that does not exist."""
    return (
        f"{path}: the table does not exist ({error}): correct the argument table of the sensor"
        " (`sluice tables` lists the tables), or create the table before the sensor starts"
    )


def created_again(path: TablePath, was: int, now: int) -> str:
    return (
        f"{path}: the table was dropped and created again (id {was}, now {now}), so its old rows"
        " are not tiered any more: clear the sensor to wait for the new table"
    )


def not_enabled(path: TablePath) -> str:
    return (
        f"{path}: the table is not tiered (table.datalake.enabled is false): in Flink SQL, run"
        f" ALTER TABLE {path} SET ('table.datalake.enabled' = 'true'), then clear the sensor"
    )


def is_stuck(found: TieringStatus | None) -> bool:
    """Whether the table needs a look by a person."""
    return found is None or bool(found.paused) or found.is_failing


def status(
    path: TablePath,
    found: TieringStatus | None,
    *,
    is_counted: bool,
    name_of: Callable[[str], str] = str,
) -> tuple[str, str]:
    """The state of the table: who tiers it, or why nobody does; and its failures, if it has some.

    Neither has a text that only time changes.

    :param is_counted: say so if all rows are tiered, because the rest is not written yet.
    :param name_of: returns the run or process that has claimed a table, for people.
    """
    if found is None:
        return f"{path}: the coordinator does not list it as tiered, though tiering is enabled", ""
    parts = [_state(found, name_of)]
    if found.paused:
        parts.insert(0, f"paused, `sluice resume {path}` ends the pause")
    if is_counted and found.lag_rows == 0:
        parts.append("the lake has all rows that are written, and more are waited for")
    if found.note:
        parts.append(one_line(found.note))
    return f"{path}: {'; '.join(parts)}", _trouble(found)


def _trouble(found: TieringStatus) -> str:
    parts = []
    if found.failures or found.last_error:
        often = counted(found.failures, "failure") if found.failures else "no failure since a retry"
        parts.append(f"{often}, last error: {one_line(found.last_error or 'no reason reported')}")
    if found.stopped:
        parts.append(f"last round stopped: {one_line(found.stopped)}")
    return "; ".join(parts)


def _state(found: TieringStatus, name_of: Callable[[str], str]) -> str:
    if found.status == State.TIERING.value:
        return f"Tiering by {name_of(found.claimed_by) if found.claimed_by else 'a round'}"
    if found.status == State.PENDING.value and not found.paused:
        return "Pending, waits for a run of the DAG or `sluice tier`"
    if found.next_attempt_ms is None or found.paused:
        return found.status
    if found.status == State.FAILED.value:
        return f"Failed, next attempt at {when(found.next_attempt_ms)}"
    return f"{found.status}, due at {when(found.next_attempt_ms)}"


def one_line(text: str) -> str:
    """A reason without line breaks, of at most 500 characters."""
    line = " ".join(text.split())
    return line if len(line) <= REASON_CHARS_MAX else f"{line[: REASON_CHARS_MAX - 1]}…"


def when(epoch_ms: int) -> str:
    """A time in UTC, with seconds."""
    return datetime.fromtimestamp(epoch_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def span(seconds: float) -> str:
    """A duration in its two largest units, such as ``3 min 5 s``; a short one with one digit."""
    if 0 < seconds < 10:
        return f"{round(seconds, 1):g} s"
    left, parts = round(seconds), []
    for size, unit in _UNITS:
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2]) or "0 s"
