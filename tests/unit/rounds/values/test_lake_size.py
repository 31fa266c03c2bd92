"""A round tells how large its lake table is, and asks the lake for nothing more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sluice.rounds.records.result import RoundResult
from sluice.rounds.values.lake_size import lake_size, size_of_main
from sluice.rounds.values.types import LakeSnapshot
from tests.unit.rounds.conftest import World

TOTALS = {"total-records": "7", "total-data-files": "2", "total-files-size": "900"}


def size(result: RoundResult) -> tuple[int | None, int | None]:
    told = RoundResult.from_json(result.to_json()).details()
    assert told.lake_bytes is None, "the model has no bytes"
    return told.lake_rows, told.lake_files


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, (7, 2, 900)),
        ({"total-records": "0"}, (0, 2, 900)),
        ({"total-records": "many", "total-files-size": ""}, (None, 2, None)),
        ({"total-data-files": "-1"}, (7, None, 900)),
    ],
)
def test_the_totals_of_a_summary(changes: dict[str, str], expected: tuple[int | None, ...]) -> None:
    assert tuple(lake_size({**TOTALS, **changes}).values()) == expected


def test_a_writer_that_records_no_totals() -> None:
    assert set(lake_size({}).values()) == {None}


def test_a_committed_round_tells_of_its_snapshot(world: World) -> None:
    world.append(0, 3)
    world.append(1, 2)
    assert size(world.round()) == (5, 2)
    world.append(0, 4)
    assert size(world.round()) == (9, 3)


def test_a_size_of_zero_survives_the_file(world: World) -> None:
    world.append(0, 3)
    assert size(replace(world.round(), lake_rows=0)) == (0, 1)


def test_a_round_with_nothing_new_tells_of_main(world: World) -> None:
    world.append(0, 3)
    world.round()
    world.table.foreign_commit([((), 0, 100)], TOTALS)
    assert size(replace(world.round(), lake_bytes=None)) == (7, 2)
    assert world.round().lake_bytes == 900


def test_a_round_that_had_landed_tells_of_its_snapshot(world: World) -> None:
    world.append(0, 3)
    claim = world.cluster.begin_round()
    world.round(claim)
    again = world.round(claim)
    assert again.outcome == "already_landed"
    assert size(again) == (3, 1)


def test_main_is_read_again_after_files_were_rewritten(world: World) -> None:
    world.append(0, 3)
    world.round()
    seen = world.table.newest_tiering_snapshot()
    world.table.foreign_commit([], TOTALS)
    assert size_of_main(world.table, seen, is_changed=False)["lake_rows"] == 3
    assert size_of_main(world.table, seen, is_changed=True) == lake_size(TOTALS)
    world.table.blind = True
    assert set(size_of_main(world.table, seen, is_changed=True).values()) == {None}, "no failure"


def test_a_lake_without_a_tiering_snapshot(world: World) -> None:
    assert size(world.round()) == (None, None)


def test_what_main_had_does_not_tell_snapshots_apart() -> None:
    assert LakeSnapshot(1, 1, {}, TOTALS) == LakeSnapshot(1, 1, {})
