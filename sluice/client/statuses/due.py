"""Makes tables due on a cluster whose statuses are recorded, and keeps no dead claim alive.

Only the answer to a heartbeat says whether a claim is open, and that heartbeat prolongs the claim.
So the time of each such question is recorded before it is sent, in the row that all processes read.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from sluice.client.statuses.accesses import EventKind, StatusEvents
from sluice.client.statuses.status_table import PATH
from sluice.clock import Clock
from sluice.errors import SluiceError, TableNotDue
from sluice.masking import mask
from sluice.model import Claim, TableInfo, TablePath
from sluice.statuses import RecordedStatus, recorded

MakeDue = Callable[[Callable[[Claim], None], Callable[[Claim], None]], Claim | None]
"""Makes a table due; returns the claim that it waited with, or None if the table was due.

Its first argument is called with a claim of the table's current epoch before the coordinator is
asked about that epoch, and raises TableNotDue if it must not be asked now. The second one is called
with that claim if the answer shows that no such claim is open.
"""


class Upsert(Protocol):
    def __call__(self, *rows: recorded.Columns, needed: str | None = None) -> None: ...


class RecordedDue:
    """Makes tables due, with what is recorded of their claims. Safe for use by many threads."""

    def __init__(self, events: StatusEvents, clock: Clock, upsert: Upsert) -> None:
        """:param upsert: writes rows of the status table, inside an event."""
        self._events, self._clock, self._upsert = events, clock, upsert

    def make(
        self, info: TableInfo, row: RecordedStatus | None, do: MakeDue, lost_by: str | None
    ) -> None:
        """Makes a table due, unless a recorded round is running.

        :param row: the table's row as just read.
        :param lost_by: the name of a run that has lost its claim.
        :raises TableNotDue: a round is running, or a claim may still be open, or ``do`` raises it.
        """
        path, table_id, now_ms = info.path, info.table_id, self._clock.now_ms()
        by = recorded.claim_holder(row, now_ms)
        is_lost = row is not None and lost_by is not None and row.claimed_by == lost_by
        if row is not None and by is not None and not is_lost:
            raise TableNotDue(
                f"table {path} is being tiered by {by} (tiering epoch {row.tiering_epoch}):"
                " use `sluice tier` with --now --wait 5min to tier it after that round",
                waits=True,
                tiering_epoch=row.tiering_epoch,
                claimed_by=row.claimed_by,
            )
        epochs: set[int] = set()
        refused: list[Claim] = []  # the last question, once it is known to have prolonged nothing
        columns: recorded.Columns = {}

        def before_asking(claim: Claim) -> None:
            if claim.tiering_epoch not in epochs:
                self._record_question(path, row, claim, is_lost)
                epochs.add(claim.tiering_epoch)
            refused.clear()

        try:
            forced = do(before_asking, refused.append)
            columns = recorded.round_requested(table_id, path, row, forced, self._clock.now_ms())
        finally:  # also after an error: others must not wait for a claim that nobody prolonged
            if refused:
                columns = {**columns, **recorded.not_asked(refused[-1])}
            if columns:
                write = partial(self._upsert, columns)
                self._events.event(path, "record its state", write, EventKind.WRITE, PATH)

    def _record_question(
        self, path: TablePath, row: RecordedStatus | None, claim: Claim, is_lost: bool
    ) -> None:
        """Records that the coordinator is asked about a claim.

        :raises TableNotDue: the claim of a dead worker would be prolonged, or nothing was recorded.
        """
        now_ms = self._clock.now_ms()
        waits_ms = recorded.unasked_ms(row, claim, now_ms, is_lost)
        if row is not None and waits_ms:
            raise _may_be_open(path, row, claim, now_ms, waits_ms)
        columns = recorded.asked(claim, now_ms)
        try:
            self._events.bounded(partial(self._upsert, columns, needed="asked_ms"), PATH)
        except SluiceError as error:
            raise TableNotDue(
                f"table {path} was not made due: the coordinator is asked about an open claim only"
                f" after that is recorded in table {PATH}, which failed:"
                f" {mask(f'{type(error).__name__}: {error}')}. The table becomes due when its"
                " freshness has passed: use `sluice tier` with --wait 5min to wait for that",
                waits=True,
            ) from error


def _may_be_open(
    path: TablePath, row: RecordedStatus, claim: Claim, now_ms: int, waits_ms: int
) -> TableNotDue:
    """:param waits_ms: after this time a claim without a worker has ended, in milliseconds."""
    epoch, by, left_s = claim.tiering_epoch, None, -(-waits_ms // 1000)
    if row.is_claimed and row.tiering_epoch == epoch:
        by = row.claimed_by
        silent_s = (now_ms - row.last_seen_ms) // 1000
        what = f"{by or 'a worker'}, which has been silent for {silent_s} s"
    else:
        what = "a worker that records no status in this cluster"
    return TableNotDue(
        f"table {path} may be tiered by {what} (tiering epoch {epoch}). If that worker is dead,"
        f" Fluss frees the table within {left_s} s: use `sluice tier` with --now"
        " --wait 5min to tier it then",
        waits=True,
        tiering_epoch=epoch,
        claimed_by=by,
        free_within_s=left_s,
    )
