"""What rounds did for the maintenance of their tables, by the history of rounds: few facts each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from sluice.client.statuses.watch import StatusWatch
from sluice.clock import Clock
from sluice.errors import TableNotExist
from sluice.masking import cut
from sluice.model import TablePath, TieringRound, TieringStatus
from sluice.model.round_record import ROUNDS_KEPT
from sluice.page.cluster.seen import Seen

TEXT_CHARS_MAX = 500
"""Characters that are kept of what a round says of its compaction."""
_STEP = 32


@dataclass(frozen=True, slots=True)
class RoundFacts:
    """The newest rounds of a table that did more than copy. None: no such round is known."""

    table_id: int
    rounds: int
    """Up to which round this is known."""
    compacted: TieringRound | None = None
    expired: TieringRound | None = None
    requested: TieringRound | None = None
    """The round that completed a requested compaction."""
    left_out: TieringRound | None = None
    """A round after the last compaction that says why it compacted less, or nothing."""


class RoundsReader:
    """Reads the histories of tables that had new rounds. For one thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.known: Mapping[TablePath, RoundFacts] = {}
        """Replaced as a whole."""

    def read(self, watch: StatusWatch, seen: Seen, until_s: float) -> bool:
        """Reads what is new; returns whether nothing is left.

        :param until_s: monotonic time; what is left then is read by the next call.
        :raises FlussError: the cluster does not answer.
        """
        tables = {path: each.status for path, each in seen.tables.items()}
        found = {path: facts for path, facts in self.known.items() if path in tables}
        missing = [status for path, status in tables.items() if _is_new(found.get(path), status)]
        missing.sort(key=lambda status: _unread(found.get(status.path), status))
        is_complete = True
        try:
            for at in range(0, len(missing), _STEP):
                if self._clock.monotonic_s() > until_s:
                    is_complete = False
                    break
                step = missing[at : at + _STEP]
                limit = max(_unread(found.get(status.path), status) for status in step)
                for status, rounds in self._histories(watch, step, limit, seen.is_fluss):
                    found[status.path] = facts_of(found.get(status.path), status, rounds)
        finally:
            self.known = found
        return is_complete

    def _histories(
        self, watch: StatusWatch, step: Sequence[TieringStatus], limit: int, is_fluss: bool
    ) -> list[tuple[TieringStatus, Sequence[TieringRound]]]:
        if is_fluss:
            numbers = {status.table_id: status.rounds or 0 for status in step}
            rounds = watch.recorded_rounds(numbers, limit)
            return [(status, rounds.get(status.table_id, [])) for status in step]
        found: list[tuple[TieringStatus, Sequence[TieringRound]]] = []
        for status in step:
            with suppress(TableNotExist):  # dropped since it was seen
                found.append((status, watch.reported_rounds(status.path, limit)))
        return found


def _is_new(known: RoundFacts | None, status: TieringStatus) -> bool:
    return bool(status.rounds) and _unread(known, status) > 0


def _unread(known: RoundFacts | None, status: TieringStatus) -> int:
    """How many of the kept rounds are not known yet."""
    rounds = status.rounds or 0
    if known is None or known.table_id != status.table_id or known.rounds > rounds:
        return min(rounds, ROUNDS_KEPT)
    return min(rounds - known.rounds, ROUNDS_KEPT)


def facts_of(
    known: RoundFacts | None, status: TieringStatus, newest: Sequence[TieringRound]
) -> RoundFacts:
    """The facts with those of newer rounds.

    :param newest: the newest first.
    """
    if known is None or known.table_id != status.table_id or known.rounds > (status.rounds or 0):
        known = RoundFacts(status.table_id, 0)
    compacted = next((each for each in newest if each.files_compacted), None)
    since = newest if compacted is None else newest[: newest.index(compacted) + 1]
    left_out = next((each for each in since if each.compacted and not each.files_compacted), None)
    expired = next((each for each in newest if each.snapshots_expired), None)
    requested = next((each for each in newest if each.compaction_request_ms is not None), None)
    return RoundFacts(
        status.table_id,
        status.rounds or 0,
        _short(compacted) or known.compacted,
        expired or known.expired,
        requested or known.requested,
        _short(left_out) or (known.left_out if compacted is None else None),
    )


def _short(each: TieringRound | None) -> TieringRound | None:
    if each is None or each.compacted is None or len(each.compacted) <= TEXT_CHARS_MAX:
        return each
    return replace(each, compacted=f"{cut(each.compacted, TEXT_CHARS_MAX - 1)}…")
