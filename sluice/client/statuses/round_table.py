"""The table ``sluice.tiering_rounds``, in which Sluice's rounds record what they did.

It has ``ROUNDS_KEPT`` rows for each lake table at most: a round replaces the one that many before.
It is bucketed by the id of the lake table, so one prefix lookup reads the history of a table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from sluice.client.statuses.system_table import Layout, SystemTable
from sluice.model import TablePath, TieringRound
from sluice.model import types as t
from sluice.model.record_fields import described, fields_of
from sluice.model.round_record import ROUNDS_KEPT

PATH = TablePath("sluice", "tiering_rounds")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRound(TieringRound):
    """One row of the table, in its slot of the ring."""

    slot: int = described(t.INT.not_null(), "round_number modulo the rounds that are kept")


LAYOUT = Layout(
    PATH,
    RecordedRound,
    ("table_id", "slot"),
    "Ended rounds of lake tables, written by Sluice's rounds.",
    idempotent=False,  # a row is complete and never changes
)
_NAMES = [entry.name for entry in fields_of(TieringRound)]


class RoundTable:
    """Reads and writes the rounds. Safe for use by many threads."""

    def __init__(self, table: SystemTable[RecordedRound]) -> None:
        self._table = table

    def write(self, ended: Sequence[TieringRound], is_late: Callable[[], bool]) -> None:
        """Records rounds. Raises the errors of :meth:`SystemTable.upsert`."""
        self._table.upsert([_row_of(each) for each in ended], is_late)

    def newest(self, table_id: int, limit: int) -> list[TieringRound]:
        """The newest rounds of a lake table, the newest first.

        :raises InvalidTable: the table has another layout.
        """
        rows = LAYOUT.records_of(self._rows_of([table_id]))
        rounds = [TieringRound(**{n: getattr(row, n) for n in _NAMES}) for row in rows]
        return sorted(rounds, key=_age, reverse=True)[:limit]

    def newest_of(self, numbers: Mapping[int, int], limit: int) -> dict[int, list[TieringRound]]:
        """The newest rounds of many lake tables by their slots, the newest first.

        Rounds that were not recorded are left out.

        :param numbers: the number of the newest round of each table, by table id.
        :param limit: the most rounds of a table.
        :raises InvalidTable: the table has another layout.
        """
        ids, slots = [], []
        for table_id, number in numbers.items():
            for each in range(max(number - limit, 0) + 1, number + 1):
                ids.append(table_id)
                slots.append(each % ROUNDS_KEPT)
        reader = self._table.reader() if ids else None
        if reader is None:
            return {}
        keys = pa.table(
            {"table_id": pa.array(ids, pa.int64()), "slot": pa.array(slots, pa.int32())}
        )
        rows = LAYOUT.records_of(reader.lookup(keys))
        found: dict[int, list[TieringRound]] = {}
        for row in rows:
            if (row.round_number or 0) > numbers[row.table_id] - limit:  # not of an earlier lap
                found.setdefault(row.table_id, []).append(row)
        return {table_id: sorted(each, key=_age, reverse=True) for table_id, each in found.items()}

    def last_numbers(self, table_ids: Sequence[int]) -> dict[int, int]:
        """The highest number of the rounds of each table that has any."""
        found: dict[int, int] = {}
        for row in LAYOUT.records_of(self._rows_of(table_ids)):
            found[row.table_id] = max(found.get(row.table_id, 0), row.round_number or 0)
        return found

    def delete(self, table_ids: Sequence[int]) -> None:
        """Deletes the rounds of dropped tables."""
        found = self._rows_of(table_ids)
        if found.num_rows:
            self._table.delete(found.select(list(LAYOUT.key)))

    def _rows_of(self, table_ids: Sequence[int]) -> pa.Table:
        """Their rows; an empty table without columns if nothing was recorded yet."""
        reader = self._table.reader()
        if reader is None:
            return pa.table({})
        return reader.prefix_lookup(pa.table({"table_id": pa.array(table_ids, pa.int64())}))


def _row_of(ended: TieringRound) -> dict[str, Any]:
    values = {name: getattr(ended, name) for name in _NAMES}
    return {**values, "slot": (ended.round_number or 0) % ROUNDS_KEPT}


def _age(ended: TieringRound) -> tuple[int, int]:
    """By time first: a number may repeat if the history could not be read at a claim."""
    return ended.ended_ms or 0, ended.round_number or 0
