"""Which tables share one Spark application."""

from __future__ import annotations

import pytest

from sluice_airflow.claims.claims import ClaimedTable
from sluice_airflow.claims.packs import (
    LABEL_MAX,
    Pack,
    PackLimits,
    label_of,
    pack_tables,
    tables_of,
)

LIMITS = PackLimits(tables=100, rows=5_000_000)


def table(name: str, rows: int | None = None) -> ClaimedTable:
    claimed = ClaimedTable(
        table=f"shop.{name}",
        table_id=1,
        tiering_epoch=1,
        coordinator_epoch=1,
        lease_id="job",
        plan_uri=f"file:///{name}/plan.json",
    )
    if rows is not None:
        claimed["rows"] = rows
    return claimed


def names(packs: list[Pack]) -> list[list[str]]:
    return [[t["table"].removeprefix("shop.") for t in pack["tables"]] for pack in packs]


def test_small_tables_share_one_application_and_large_ones_have_their_own() -> None:
    tables = [table("a", 10), table("big", 6_000_000), table("b", 20), table("huge", 70_000_000)]
    assert names(pack_tables(tables, LIMITS, 16)) == [["huge"], ["big"], ["b", "a"]]


def test_tables_of_unknown_size_count_as_small() -> None:
    assert names(pack_tables([table("b"), table("a")], LIMITS, 16)) == [["a", "b"]]


def test_as_few_applications_as_the_limits_allow() -> None:
    tables = [table(f"t{n:03}", 1) for n in range(250)]
    assert [len(pack["tables"]) for pack in pack_tables(tables, LIMITS, 16)] == [100, 100, 50]
    rows = [table("a", 3_000_000), table("b", 2_500_000), table("c", 2_000_000)]
    assert names(pack_tables(rows, LIMITS, 16)) == [["a", "c"], ["b"]]


def test_never_more_applications_than_slots() -> None:
    tables = [table(f"t{n:03}", 1) for n in range(500)]
    packs = pack_tables(tables, LIMITS, 2)
    assert [len(pack["tables"]) for pack in packs] == [250, 250]
    large = [
        table(name, rows * 10_000_000) for name, rows in zip("abcd", (4, 3, 2, 1), strict=True)
    ]
    assert names(pack_tables(large, LIMITS, 2)) == [["a", "d"], ["b", "c"]]


def test_each_table_has_its_own_if_a_user_says_so() -> None:
    """They wait for each other, if the pool has fewer slots."""
    tables = [table(name) for name in "abc"]
    assert names(pack_tables(tables, PackLimits(1, 5_000_000), 2)) == [["a"], ["b"], ["c"]]


def test_no_run_has_more_tasks_than_airflow_allows() -> None:
    tables = [table(f"t{n:03}") for n in range(30)]
    for limits in (PackLimits(1, 5_000_000), LIMITS):
        packs = pack_tables(tables, limits, 2, tasks_max=7)
        assert len(packs) == (7 if limits.tables == 1 else 1)
        assert len(tables_of(packs)) == 30


def test_a_label_fits_into_airflows_column() -> None:
    long = [table("n" * 180), table("m" * 180), table("o")]
    assert label_of(long) == f"shop.{'n' * 180} and 2 more"
    assert len(label_of([table("n" * 400), table("b")])) == LABEL_MAX
    assert label_of([table("n" * 400), table("b")]).endswith("... and 1 more")
    assert label_of([table("n" * 400)]) == f"shop.{'n' * (LABEL_MAX - 8)}..."


def test_every_table_is_in_exactly_one_pack() -> None:
    tables = [table(f"t{n}", n * 100_000) for n in range(120)]
    for slots in (1, 3, 50):
        packs = pack_tables(tables, LIMITS, slots)
        assert len(packs) <= slots
        assert sorted(t["table"] for t in tables_of(packs)) == sorted(t["table"] for t in tables)
    assert pack_tables([], LIMITS, 3) == []
    assert tables_of(None) == []


@pytest.mark.parametrize(
    ("count", "label"),
    [(1, "shop.t0"), (2, "shop.t0, shop.t1"), (40, "shop.t0, shop.t1 and 38 more")],
)
def test_a_label_names_its_tables(count: int, label: str) -> None:
    assert label_of([table(f"t{n}") for n in range(count)]) == label
