"""The list of tables: search, filters, order and paging, without I/O."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

from sluice.page.cluster.health import NEEDS_A_PERSON, ORDER, Verdict, verdict
from sluice.page.cluster.masked import masked, masked_or_none
from sluice.page.cluster.models import Health, Table, TieredBy, recorded_values
from sluice.page.cluster.round_cache import RoundPoint
from sluice.page.cluster.seen import Seen, SeenTable
from sluice.page.cluster.wanted import Wanted, ordered

_ATTRIBUTES = {"lag": "lag_ms", "last_tiered": "last_tiered_ms", "next_attempt": "next_attempt_ms"}
_RANK = {health: rank for rank, health in enumerate(ORDER)}
_LAST_MS = 1 << 62
SEARCHED_MAX = 500
"""Characters of a reason that a search looks in: thousands of tables may have a long one."""
JUDGED_FOR_MS = 1_000
"""How long a verdict is used again for the same readings: it changes with the time, too."""


@dataclass(frozen=True, slots=True)
class Judged:
    seen: SeenTable
    verdict: Verdict
    text: str = ""
    """What a search looks in, in lower case."""


class Listing:
    """All tables of one reading, judged at one time, ordered by path. Immutable."""

    def __init__(self, seen: Seen, now_ms: int, paused_dag: str | None = None) -> None:
        found = [judge(each, now_ms, paused_dag) for each in seen.tables.values()]
        self.tables: Sequence[Judged] = sorted(found, key=_path)

    @cached_property
    def attention(self) -> Sequence[Judged]:
        """The tables that need a person, the worst first, and of these the oldest first."""
        found = [each for each in self.tables if _needs_a_person(each)]
        return sorted(found, key=_severity)

    @cached_property
    def by_health(self) -> dict[Health, int]:
        return dict(Counter(each.verdict.health for each in self.tables))

    @cached_property
    def databases(self) -> list[str]:
        return sorted({each.seen.status.path.database for each in self.tables})

    def total(self, name: str) -> int | None:
        """The sum of an attribute over the tables that have it; None if none has."""
        values = [getattr(each.seen.status, name, None) for each in self.tables]
        known = [value for value in values if value is not None]
        return sum(known) if known else None


def _needs_a_person(each: Judged) -> bool:
    """Nobody knows whether a table that cannot be read is well."""
    return each.verdict.health in NEEDS_A_PERSON or each.seen.status.is_unread


_PAUSED_MAX = 8
"""Paused DAGs of one cluster whose verdicts are kept: each has its own reasons."""
_LOCK = threading.Lock()
_LISTINGS: WeakKeyDictionary[Seen, dict[str | None, tuple[int, Listing]]] = WeakKeyDictionary()


def listing(seen: Seen, now_ms: int, paused_dag: str | None = None) -> Listing:
    """The judged tables of a reading; the same ones again for requests within a second."""
    second = now_ms // JUDGED_FOR_MS
    with _LOCK:
        kept = _LISTINGS.setdefault(seen, {})
        known = kept.pop(paused_dag, None)
        found = known[1] if known is not None and known[0] == second else None
        if found is None:
            found = Listing(seen, now_ms, paused_dag)
        kept[paused_dag] = second, found  # to the end
        while len(kept) > _PAUSED_MAX:
            del kept[next(iter(kept))]
        return found


def judge(seen: SeenTable, now_ms: int, paused_dag: str | None = None) -> Judged:
    """A table with its health."""
    found = verdict(seen, now_ms, paused_dag)
    return Judged(seen, found, f"{seen.status.path} {(found.why or '')[:SEARCHED_MAX]}".lower())


def matching(tables: Iterable[Judged], wanted: Wanted) -> list[Judged]:
    """The tables that match, in the wanted order; what is not known comes last.

    Equal ones stay in their order, so pages of one reading have neither gaps nor repetitions.

    :param tables: ordered by path.
    """
    words = wanted.search.lower().split()
    found = [each for each in tables if _matches(each, wanted, words)]
    return ordered(found, wanted, _severity, _value)


def _value(each: Judged, sort: str) -> Any:
    if sort == "health":
        return _RANK[each.verdict.health]
    return getattr(each.seen.status, _ATTRIBUTES.get(sort, sort))


def _matches(each: Judged, wanted: Wanted, words: Sequence[str]) -> bool:
    if wanted.states and each.verdict.health not in wanted.states:
        return False
    if wanted.database and each.seen.status.path.database != wanted.database:
        return False
    if not all(word in each.text for word in words):
        return False
    path = str(each.seen.status.path).lower()
    if all(word in path for word in words):
        return True
    # What is not shown is not found either, so that nobody can guess a secret letter by letter.
    # It is masked only here, because that takes 1 ms for each reason that was not searched before.
    shown = f"{path} {masked(each.verdict.why or '')[:SEARCHED_MAX]}".lower()
    return all(word in shown for word in words)


def _path(each: Judged) -> tuple[str, str]:
    path = each.seen.status.path
    return path.database, path.table


def _severity(each: Judged) -> tuple[int, int]:
    since_ms = each.verdict.since_ms
    return _RANK[each.verdict.health], _LAST_MS if since_ms is None else since_ms


def table_model(
    each: Judged,
    rounds: Iterable[RoundPoint] = (),
    why_not_act: str | None = None,
    tiered_by: TieredBy | None = None,
) -> Table:
    """The table as the API shows it.

    :param rounds: its newest rounds, the oldest first.
    :param why_not_act: why the viewer may not act on it.
    :param tiered_by: who tiers it now, if that is shown.
    """
    status, found = each.seen.status, each.verdict
    path = status.path
    return Table(
        **recorded_values(status),
        path=str(path),
        database=path.database,
        table=path.table,
        health=found.health,
        stuck_since_ms=found.since_ms,
        why=masked_or_none(found.why),
        why_not_act=why_not_act,
        tiered_by=tiered_by,
        status_read_ms=each.seen.status_read_ms,
        lag_read_ms=each.seen.lag_read_ms,
        rounds_shown=list(rounds),
    )
