"""Claims and ends of rounds that are written down together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from sluice.model import Claim, TablePath, TieringRound
from sluice.statuses import RecordedStatus, recorded
from sluice.statuses.recorded import Columns


@dataclass(frozen=True, slots=True)
class Begun:
    """A claim of this process."""

    since_ms: int
    by: str
    before: RecordedStatus | None = None
    """The status before it. None: not known, or the claim before has no recorded end."""


@dataclass(frozen=True, slots=True)
class End:
    """The end of a claim, which changes the columns that ``columns`` returns for its row."""

    claim: Claim
    details: TieringRound | None
    columns: Callable[[RecordedStatus | None], Columns]


def rounds_of(
    ends: Iterable[tuple[End, RecordedStatus | None, Columns]],
) -> list[tuple[TablePath, TieringRound]]:
    """The rounds that ended, for their history; one whose number is not known has none.

    :param ends: with the row before and the columns that change.
    """
    rounds = []
    for end, before, columns in ends:
        if "rounds" not in columns:
            continue  # released
        ended = recorded.round_of(end.claim, before, columns, end.details)
        if before is None or before.rounds is None:  # nobody may add the column
            ended = replace(ended, round_number=None)
        rounds.append((end.claim.path, ended))
    return rounds


def by_columns(rows: Iterable[Columns]) -> list[list[Columns]]:
    """Groups rows that change the same columns, which one write can change together."""
    groups: dict[tuple[str, ...], list[Columns]] = {}
    for row in rows:
        if row:
            groups.setdefault(tuple(sorted(row)), []).append(row)
    return list(groups.values())
