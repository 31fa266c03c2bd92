"""The list of tables: search, filters, order and paging, without I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sluice.page.cluster_reader import Seen, SeenTable
from sluice.page.health import ORDER, Verdict, verdict
from sluice.page.models import Health, SortKey, Table
from sluice.page.recorded_models import recorded_values

_TIMES = {"lag": "lag_ms", "last_tiered": "last_tiered_ms", "next_attempt": "next_attempt_ms"}


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which tables are wanted, and in which order."""

    search: str = ""
    health: Collection[Health] = ()
    database: str | None = None
    sort: SortKey = "attention"
    descending: bool = False


@dataclass(frozen=True, slots=True)
class Judged:
    seen: SeenTable
    verdict: Verdict


def judged(seen: Seen, now_ms: int) -> list[Judged]:
    """All tables with their health, ordered by path."""
    found = (Judged(each, verdict(each.status, now_ms)) for each in seen.tables.values())
    return sorted(found, key=lambda each: each.seen.status.path)


def matching(tables: Iterable[Judged], wanted: Wanted) -> list[Judged]:
    """The tables that match, in the wanted order; what is not known comes last."""
    words = wanted.search.lower().split()
    found = [each for each in tables if _matches(each, wanted, words)]
    if wanted.sort == "table":
        return found[::-1] if wanted.descending else found
    return _ordered(found, wanted)


def _matches(each: Judged, wanted: Wanted, words: Sequence[str]) -> bool:
    path = each.seen.status.path
    if wanted.health and each.verdict.health not in wanted.health:
        return False
    if wanted.database and path.database != wanted.database:
        return False
    name = str(path).lower()
    return all(word in name for word in words)


def _ordered(found: list[Judged], wanted: Wanted) -> list[Judged]:
    if wanted.sort in ("attention", "health"):
        found.sort(key=lambda each: ORDER.index(each.verdict.health), reverse=wanted.descending)
        return found
    attribute = {
        "lag": "lag_ms",
        "last_tiered": "last_tiered_ms",
        "next_attempt": "next_attempt_ms",
    }
    name = attribute.get(wanted.sort, wanted.sort)
    known = [each for each in found if _value(each, name) is not None]
    known.sort(key=lambda each: _value(each, name), reverse=wanted.descending)
    return [*known, *(each for each in found if _value(each, name) is None)]


def _value(each: Judged, name: str) -> Any:
    return getattr(each.seen.status, name, None)


def table_model(each: Judged) -> Table:
    """The table as the API shows it."""
    status, found = each.seen.status, each.verdict
    path = status.path
    return Table(
        **recorded_values(status),
        path=str(path),
        database=path.database,
        table=path.table,
        health=found.health,
        stuck_since_ms=found.since_ms,
        why=found.why,
        status_read_ms=each.seen.status_read_ms,
        lag_read_ms=each.seen.lag_read_ms,
    )
