"""Other writers' commits in the simulation: which of them Iceberg refuses, and what they leave.

The cases are those that Iceberg 1.12 has shown with rounds beside Spark's procedures.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from sluice.model import LOG_OFFSET, TableBucket
from sluice.model import types as t
from sluice.rounds.values.lake_files import PlannedCommit, PositionLookup
from sluice.rounds.values.types import KeyedSplitOptions, Split
from tests.simulation.lake.rewrites import (
    Change,
    dangling,
    group_of,
    has_format,
    marks_file,
    rewrite_conflict,
    rewritten,
    unknown_since,
    update_conflict,
    updated,
)
from tests.simulation.lake.stored_lake import SimLake, SimTable
from tests.support.models.memory_lake import TwoVectors
from tests.support.models.memory_writer import MemoryWriter
from tests.support.models.tables import table_info

KEYED = KeyedSplitOptions(("a",))
SPLIT = Split(TableBucket(1, None, 0), (), 0, 9, keyed=KEYED)


@pytest.fixture(params=[False, True], ids=["positions", "vectors"])
def table(request: pytest.FixtureRequest) -> SimTable:
    """A table of one bucket with the keys 1 to 4."""
    lake = SimLake(lambda _: None, lambda: None, as_vectors=request.param)
    table = lake.create(table_info({"a": t.BIGINT}))
    tier(table, {1: 10, 2: 20, 3: 30, 4: 40}, [])
    return table


def tier(
    table: SimTable, rows: dict[int, int], deleted: list[int], *, by_position: bool = False
) -> None:
    """A round's commit: rows by key, and deletes of earlier rows."""
    positions = None
    keyed = KEYED
    if by_position:
        live = table.live_files([SPLIT])
        positions = live
        keyed = KeyedSplitOptions(
            ("a",), lookup=PositionLookup(live.buckets[SPLIT.bucket], 999, 9, live.as_vectors)
        )
    split = Split(SPLIT.bucket, (), 0, 9, keyed=keyed)
    writer = MemoryWriter(table, split, f"{table.location}/round-{table.version}")
    writer.upsert(pa.table({"a": [*rows], "n": [*rows.values()], LOG_OFFSET: [0] * len(rows)}))
    writer.delete(pa.table({"a": deleted}))
    found = writer.close_deletes()
    commit = PlannedCommit(positions, found.replaced) if positions is not None else None
    table.add_snapshot([*writer.close(), *found.files], {}, (), commit)


def rows(table: SimTable) -> dict[int, int]:
    return {row["a"]: row["n"] for row in table.keyed_rows().values()}


def data_files(table: SimTable) -> list[str]:
    return sorted(path for path in table.paths() if table.keyed[path].rows)


def land(table: SimTable, change: Change) -> None:
    assert change.removed <= table.paths()
    assert has_format(table, change)
    table.change_files(change.removed, change.added, change.operation)


def test_a_rewrite_begun_before_a_round_and_committed_after_it(table: SimTable) -> None:
    """It lands after equality deletes if it keeps its sequence number, never after positions."""
    group = group_of(table, data_files(table))
    keeps, changes = (rewritten(table, group, keeps_number=keeps) for keeps in (True, False))
    tier(table, {2: 21}, [2, 3])
    assert not rewrite_conflict(table, group, keeps_number=True)
    assert "new delete" in rewrite_conflict(table, group, keeps_number=False)
    land(table, keeps)
    assert rows(table) == {1: 10, 2: 21, 4: 40}
    table.change_files(keeps.added, changes.added, "replace")
    with pytest.raises(AssertionError, match="twice"):  # what Iceberg refused
        rows(table)


def test_a_rewrite_is_refused_after_positions(table: SimTable) -> None:
    group = group_of(table, data_files(table))
    change = rewritten(table, group, keeps_number=True)
    tier(table, {2: 21}, [2, 3], by_position=True)
    assert "position delete" in rewrite_conflict(table, group, keeps_number=True)
    land(table, change)
    with pytest.raises(AssertionError, match="twice"):
        rows(table)


def test_a_rewrite_applies_what_is_deleted_and_leaves_no_vector(table: SimTable) -> None:
    tier(table, {2: 21}, [2, 3], by_position=True)
    tier(table, {5: 50}, [1])
    group = group_of(table, data_files(table))
    change = rewritten(table, group, keeps_number=True)
    assert not rewrite_conflict(table, group, keeps_number=True)
    land(table, change)
    assert rows(table) == {2: 21, 4: 40, 5: 50}
    assert len(data_files(table)) == 1
    left = [path for path in table.paths() if table.keyed[path].marks]
    assert len(left) == (0 if table.as_vectors else 1)
    gone = dangling(table)
    assert gone == {path for path in table.paths() if not table.keyed[path].rows}
    table.change_files(gone, set(), "replace")
    assert rows(table) == {2: 21, 4: 40, 5: 50}


def test_deletes_that_still_apply_are_not_dangling(table: SimTable) -> None:
    tier(table, {2: 21}, [2, 3], by_position=True)
    tier(table, {5: 50}, [1])
    assert not dangling(table)


def test_positions_as_new_as_a_rewrite_are_not_dangling(table: SimTable) -> None:
    """A round may delete rows of its own data files: Spark's rule cannot tell."""
    tier(table, {}, [2], by_position=True)
    land(table, rewritten(table, group_of(table, data_files(table)), keeps_number=True))
    assert not dangling(table)
    assert len(table.paths()) == (1 if table.as_vectors else 2)


def test_all_deletes_of_a_bucket_without_data_files_are_dangling(table: SimTable) -> None:
    tier(table, {}, [1, 2], by_position=True)
    tier(table, {}, [3, 4])
    land(table, rewritten(table, group_of(table, data_files(table)), keeps_number=True))
    assert not data_files(table)
    gone = dangling(table)
    assert gone == table.paths()
    assert gone


def test_an_update_is_refused_after_any_change_of_its_bucket(table: SimTable) -> None:
    [one] = data_files(table)
    group = group_of(table, [one])
    change = updated(table, group, one, {0, 2})
    assert not update_conflict(table, group, one)
    changes: list[Callable[[], None]] = [
        lambda: tier(table, {5: 50}, []),
        lambda: tier(table, {}, [2], by_position=True),
        lambda: tier(table, {}, [2]),
        lambda: land(table, rewritten(table, group, keeps_number=True)),
    ]
    start = table.main
    assert start is not None
    for happen in changes:
        happen()
        assert update_conflict(table, group, one)
        table.roll_back_to(start)
    land(table, change)
    assert rows(table) == {1: 10, 2: 20, 3: 30, 4: 40}
    assert len(data_files(table)) == 2


def test_an_update_of_rows_with_a_vector_replaces_it(table: SimTable) -> None:
    tier(table, {}, [2], by_position=True)
    [one] = data_files(table)
    land(table, updated(table, group_of(table, [one]), one, {0}))
    assert rows(table) == {1: 10, 3: 30, 4: 40}
    tier(table, {}, [3], by_position=True)
    assert rows(table) == {1: 10, 4: 40}


def test_the_first_vector_of_an_upgraded_table_has_the_earlier_positions() -> None:
    """Also those of a file for several data files, which stays: readers ignore it from then on."""
    lake = SimLake(lambda _: None, lambda: None)
    table = lake.create(table_info({"a": t.BIGINT}))
    tier(table, {1: 10, 2: 20}, [])
    tier(table, {3: 30, 4: 40}, [])
    tier(table, {}, [1, 3], by_position=True)
    old = [path for path in table.paths() if table.keyed[path].marks]
    change = Change(frozenset(old), frozenset([table.add_foreign([], None, table.keyed[old[0]])]))
    assert has_format(table, change)
    table.upgrade()
    assert not has_format(table, change)
    tier(table, {}, [2], by_position=True)
    assert rows(table) == {4: 40}
    assert set(old) <= table.paths()


def test_two_vectors_of_a_data_file_make_the_table_unreadable(table: SimTable) -> None:
    [one] = data_files(table)
    tier(table, {}, [2], by_position=True)
    again = table.add_foreign([], None, marks_file(table, one, {one: {3}}))
    table.change_files(set(), {again}, "overwrite")
    if table.as_vectors:
        with pytest.raises(TwoVectors, match="has two deletion vectors"):
            rows(table)
    else:
        assert rows(table) == {1: 10, 3: 30}


def test_nothing_lands_if_its_planned_snapshot_has_expired(table: SimTable) -> None:
    planned = table.main
    group = group_of(table, data_files(table))
    assert planned is not None
    tier(table, {5: 50}, [])
    assert not unknown_since(table, planned)
    table.expire(planned)
    assert "no known ancestor" in unknown_since(table, planned)
    assert "no known ancestor" in rewrite_conflict(table, group, keeps_number=True)


def test_nothing_lands_on_a_main_that_was_rolled_back(table: SimTable) -> None:
    start = table.main
    tier(table, {5: 50}, [])
    planned = table.main
    group = group_of(table, data_files(table)[:1])
    table.roll_back_to(start)
    assert "no known ancestor" in unknown_since(table, planned)
    assert "no known ancestor" in rewrite_conflict(table, group, keeps_number=True)
    assert not unknown_since(table, start)
