"""Packs: which tables share one Spark application. Pure; does not import Airflow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypedDict

from sluice_airflow.claims.claims import ClaimedTable

NAMES_IN_LABEL = 2
LABEL_MAX = 250
"""Airflow keeps so many characters of the label of a task."""
PACK_LABEL = "{{ label | default(task.entry['label']) }}"
"""Template of a task's label. Before the task starts, the name comes from its pack. Airflow 3.1 has
only the value that the running task sets."""
TASKS_MAX = 1024
"""Airflow's default of ``core.max_map_length``: it fails a task that returns more packs."""
TABLE_COST_ROWS = 300_000
"""A small table costs as much CPU time as copying this number of rows."""


class Pack(TypedDict):
    """The claimed tables that one Spark application tiers, the largest first."""

    label: str
    tables: list[ClaimedTable]


@dataclass(frozen=True, slots=True)
class PackLimits:
    """How much one Spark application tiers."""

    tables: int
    """Most tables of one application. 1: each table has its own."""
    rows: int
    """Most rows that wait in the tables of one application. A table with more has its own."""


@dataclass(slots=True)
class _Bin:
    tables: list[ClaimedTable] = field(default_factory=list)
    rows: int = 0

    @property
    def weight(self) -> int:
        return self.rows + TABLE_COST_ROWS * len(self.tables)

    def add(self, table: ClaimedTable) -> None:
        self.tables.append(table)
        self.rows += _rows(table)

    def has_room(self, table: ClaimedTable, limits: PackLimits) -> bool:
        return len(self.tables) < limits.tables and self.rows + _rows(table) <= max(0, limits.rows)


def pack_tables(
    tables: Iterable[ClaimedTable],
    limits: PackLimits,
    applications_max: int,
    tasks_max: int = TASKS_MAX,
) -> list[Pack]:
    """Packs tables into as few applications as the limits allow, the heaviest first.

    If that are more than ``applications_max``, the limits are exceeded: the tables are spread
    evenly over that number of applications. With ``limits.tables`` of 1, each table still has its
    own, and the applications wait for each other, unless they are more than ``tasks_max``.

    :param applications_max: applications that run at the same time, at least 1.
    :param tasks_max: most applications of one run.
    """
    by_size = sorted(tables, key=lambda table: (-_rows(table), table["table"]))
    bins: list[_Bin] = []
    for table in by_size:
        room = next((one for one in bins if one.has_room(table, limits)), None)
        if room is None:
            bins.append(room := _Bin())
        room.add(table)
    most = max(1, tasks_max if limits.tables == 1 else min(applications_max, tasks_max))
    if len(bins) > most:
        bins = [_Bin() for _ in range(most)]
        for table in by_size:
            min(bins, key=lambda one: one.weight).add(table)
    bins.sort(key=lambda one: -one.weight)
    return [Pack(label=label_of(one.tables), tables=one.tables) for one in bins]


def tables_of(packs: Iterable[Pack] | None) -> list[ClaimedTable]:
    """The claimed tables of packs."""
    return [table for pack in packs or () for table in pack["tables"]]


def label_of(tables: Sequence[ClaimedTable]) -> str:
    """Names the tables of a pack in a few words: ``shop.a, shop.b and 40 more``."""
    names = [table["table"] for table in tables]
    count = NAMES_IN_LABEL
    while count > 1 and len(_label(names, count)) > LABEL_MAX:
        count -= 1
    return _label(names, count)


def _label(names: Sequence[str], count: int) -> str:
    more = len(names) - count
    end = f" and {more} more" if more > 0 else ""
    shown = ", ".join(names[:count])
    room = LABEL_MAX - len(end)
    return (shown if len(shown) <= room or count > 1 else f"{shown[: room - 3]}...") + end


def _rows(table: ClaimedTable) -> int:
    return table.get("rows", 0)
