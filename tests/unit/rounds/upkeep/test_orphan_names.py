"""Which unreferenced files of a table maintenance deletes."""

from __future__ import annotations

import uuid

import pytest

from sluice.rounds.upkeep.orphans import StoredFile, new_maintenance_id, orphans_in

ID = "9f3a1c22-d0e1-4b6f-a5b1-c6c1e0f4e5d7"
TABLE, OTHER = (f"0000000{number}-0000-4000-8000-000000000000" for number in (1, 2))
OWN, OF_OTHER = (new_maintenance_id(one, uuid.UUID(ID)) for one in (TABLE, OTHER))


def stored(name: str, modified_ms: int | None = 1_000) -> StoredFile:
    return StoredFile(f"/lake/t/{name}", 10, modified_ms)


@pytest.mark.parametrize(
    "name",
    [
        f"snap-123-1-{ID}.avro",
        f"{ID}-m0.avro",
        f"optimized-m-{ID}-m12.avro",
        f"00003-0-{OWN}-00001.parquet",
        f"00003-0-{OWN}-p7-deletes.puffin",
    ],
)
def test_old_ones_that_no_snapshot_references_are_deleted(name: str) -> None:
    one = stored(name)
    assert orphans_in([one], set(), 1_001, TABLE) == [one]
    assert orphans_in([one], {name}, 1_001, TABLE) == []
    assert orphans_in([one], set(), 1_000, TABLE) == []
    assert orphans_in([stored(name, None)], set(), 1_001, TABLE) == []


@pytest.mark.parametrize(
    "name",
    [
        "v12.metadata.json",
        "00001-1-x.parquet",  # of another writer
        f"00003-17-42-9f3a1c22d0e14b6f-{ID}-00001.parquet",  # of a round
        "notes.avro",
        f"00003-0-{OF_OTHER}-00001.parquet",
        f"00003-0-maintenance-{ID}-00001.parquet",
        "version-hint.text",
    ],
)
def test_files_of_others_stay(name: str) -> None:
    assert orphans_in([stored(name)], set(), 1 << 60, TABLE) == []
