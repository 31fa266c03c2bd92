"""The model of a lake table counts tiering snapshots as the Iceberg table does."""

from __future__ import annotations

from sluice.rounds.values.types import LakeSnapshot
from tests.support.models.memory_lake import MemoryLakeTable

EPOCH = {"sluice.tiering-epoch": "4"}


def tiered(table: MemoryLakeTable, base: LakeSnapshot | None) -> LakeSnapshot:
    return table.commit([], base, {"commit-user": "__fluss_lake_tiering", **EPOCH})


def test_only_snapshots_after_a_sequence_number_are_found() -> None:
    table = MemoryLakeTable("mem:/t")
    first = tiered(table, None)
    table.foreign_commit()
    assert table.find_tiering_snapshot(EPOCH) == first
    assert table.find_tiering_snapshot(EPOCH, first.sequence_number) is None
    second = tiered(table, first)
    table.foreign_commit()
    assert table.find_tiering_snapshot(EPOCH, first.sequence_number) == second
    table.roll_back_to(first.snapshot_id)
    assert table.find_tiering_snapshot(EPOCH, first.sequence_number) is None
