"""The list of tables: search, filters, order, pages and totals; and the answers over HTTP."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

import pytest
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st

from sluice.model import Reason, TableDescriptor, TablePath, TieringRound, TieringStatus
from sluice.page.cluster import cluster_reader
from sluice.page.cluster.health import LATE_MS
from sluice.page.cluster.models import SortKey
from sluice.page.cluster.seen import LagReads, Seen, SeenTable
from sluice.page.cluster.wanted import Wanted
from sluice.page.local.place import LocalPlace
from sluice.page.local.serving import local_app
from sluice.page.tables.selection import Listing, listing, matching, table_model
from tests.support.programs.own_cpu import least_cpu_s
from tests.support.programs.processes import wait_for
from tests.support.statuses.status_shop import LAKE, SCHEMA, Shop, status_shop

NOW_MS = 1_790_000_000_000
MANY = 5_000


def seen(*statuses: TieringStatus) -> Seen:
    return Seen({one.path: SeenTable(one, NOW_MS, NOW_MS) for one in statuses}, NOW_MS, True)


def status(name: str, table_id: int = 1, **fields: Any) -> TieringStatus:
    database, _, table = name.partition(".")
    fields = {"status": "Scheduled", "tiering_epoch": 1, **fields}
    return TieringStatus(path=TablePath(database, table), table_id=table_id, **fields)


SHOP = seen(
    status("shop.orders", lag_rows=5, lag_ms=10, lake_snapshot_id=7),
    status("shop.prices", failures=2, last_error="disk FULL", last_error_ms=7, lag_rows=0),
    status("crm.users", lag_ms=7_200_000, lag_rows=9),
    status("crm.Visits", paused=True),
    status("crm.acts", failures=1, last_error="disk full", last_error_ms=3),
)


def names(found: Seen = SHOP, **wanted: Any) -> list[str]:
    every = Listing(found, NOW_MS).tables
    return [str(each.seen.status.path) for each in matching(every, Wanted(**wanted))]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"sort": "table"}, "crm.Visits crm.acts crm.users shop.orders shop.prices"),
        ({"sort": "table", "descending": True},
         "shop.prices shop.orders crm.users crm.acts crm.Visits"),
        ({}, "crm.acts shop.prices crm.users crm.Visits shop.orders"),
        ({"sort": "health"}, "crm.acts shop.prices crm.users crm.Visits shop.orders"),
        ({"sort": "lag_rows"}, "shop.prices shop.orders crm.users crm.Visits crm.acts"),
        ({"sort": "lag_rows", "descending": True},
         "crm.users shop.orders shop.prices crm.Visits crm.acts"),
        ({"search": "CRM.v"}, "crm.Visits"),
        ({"search": "disk full"}, "crm.acts shop.prices"),
        ({"search": "full shop"}, "shop.prices"),
        ({"search": "nothing"}, ""),
        ({"states": ["failing", "paused"], "database": "crm"}, "crm.acts crm.Visits"),
        ({"database": "cr"}, ""),
    ],
)  # fmt: skip
def test_search_filters_and_order(wanted: dict[str, Any], found: str) -> None:
    assert names(**wanted) == found.split()


def test_a_secret_in_a_reason_is_neither_shown_nor_found() -> None:
    """Else one could guess it letter by letter."""
    why = "the lake refused password=Planted-4711 of ann"
    found = seen(
        status("shop.orders", failures=1, last_error=why),
        status("shop.late", lag_ms=LATE_MS + 1, note=why),
        status("shop.stopped", lag_ms=LATE_MS + 1, stopped=why),
        status("shop.unread", status="Unknown", note=why),
    )
    for each in Listing(found, NOW_MS).tables:
        shown = table_model(each)
        assert shown.why == "the lake refused password=*** of ann"
        assert "Planted-4711" not in shown.model_dump_json()
    assert len(names(found, search="refused of ann")) == 4
    for guess in ("planted", "password=p", "shop password=planted-4711", "refused 4711"):
        assert names(found, search=guess) == []


def test_totals_and_those_that_need_a_person() -> None:
    found = Listing(SHOP, NOW_MS)
    assert found.by_health == {"ok": 1, "failing": 2, "late": 1, "paused": 1}
    assert [each.seen.status.path.table for each in found.attention] == ["acts", "prices", "users"]
    assert found.databases == ["crm", "shop"]
    assert found.total("lag_rows") == 14
    assert found.total("of a later version") is None


def test_how_fresh_the_lags_are() -> None:
    assert SHOP.lags == LagReads(NOW_MS, 0)
    assert SHOP.lags is SHOP.lags, "counted once"
    one = replace(SHOP.tables[TablePath("crm", "acts")], lag_read_ms=None, lag_unread_ms=NOW_MS)
    some = replace(SHOP, tables={**SHOP.tables, one.status.path: one})
    assert some.lags == LagReads(None, 1)
    assert Seen().lags == LagReads(None, 0)


def test_tables_that_cannot_be_read_need_a_person() -> None:
    """Who may not read the status table must not see that all is well."""
    unread = TieringStatus(TablePath("shop", "a"), 1, "Unknown", 0, failures=None, note="no right")
    no_round = TieringStatus(TablePath("shop", "b"), 2, "Unknown", 0, note="no round")
    tables = {each.path: SeenTable(each, NOW_MS) for each in (unread, no_round)}
    found = Listing(Seen(tables, NOW_MS, True), NOW_MS)
    assert [each.seen.status for each in found.attention] == [unread]


def test_dags_of_one_cluster_judge_once_each() -> None:
    one, other = listing(SHOP, NOW_MS, "lake"), listing(SHOP, NOW_MS)
    assert listing(SHOP, NOW_MS, "lake") is one
    assert listing(SHOP, NOW_MS) is other
    assert listing(SHOP, NOW_MS + 1_000) is not other


KEYS: list[SortKey] = list(get_args(SortKey))


@given(
    st.lists(
        st.tuples(st.integers(0, 99), st.none() | st.integers(0, 3), st.integers(0, 2)),
        unique_by=lambda one: one[0],
    ),
    st.sampled_from(KEYS),
    st.booleans(),
    st.integers(1, 7),
)
def test_pages_of_one_reading_have_neither_gaps_nor_repetitions(
    tables: list[tuple[int, int | None, int]], sort: SortKey, descending: bool, limit: int
) -> None:
    found = seen(
        *(
            status(f"d.t{number}", number, lag_rows=lag, lag_ms=lag, failures=failures)
            for number, lag, failures in tables
        )
    )
    every = listing(found, NOW_MS).tables
    wanted = Wanted(sort=sort, descending=descending)
    pages = [
        each.seen.status.path.table
        for at in range(0, len(tables), limit)
        for each in matching(every, wanted)[at : at + limit]
    ]
    assert sorted(pages) == sorted(f"t{number}" for number, _, _ in tables)
    if sort in ("lag", "lag_rows"):
        lags = {f"t{number}": lag for number, lag, _ in tables}
        shown = [lags[name] for name in pages]
        known = [lag for lag in shown if lag is not None]
        assert shown == [*sorted(known, reverse=descending), *([None] * (len(shown) - len(known)))]


def test_a_listing_is_used_again_within_a_second_only() -> None:
    first = listing(SHOP, NOW_MS)
    assert listing(SHOP, NOW_MS + 999) is first
    assert listing(SHOP, NOW_MS + 1_000) is not first
    assert listing(SHOP, NOW_MS, "lake") is not first
    assert listing(replace(SHOP, error="away"), NOW_MS) is not first


def many() -> Seen:
    chance = random.Random(7)
    return seen(
        *(
            status(f"db{number % 10}.t{number:05}", number, lag_rows=chance.randrange(99),
                   failures=number % 100 == 7, last_error="x" * 4_000, last_tiered_ms=NOW_MS)
            for number in range(MANY)
        )
    )  # fmt: skip


def test_5000_tables_are_filtered_in_far_less_than_100_ms_of_cpu() -> None:
    found = many()

    def filtered(search: str) -> None:
        every = Listing(found, NOW_MS).tables
        matching(every, Wanted(search=search, sort="lag_rows", descending=True))

    for search in ("t012", "x", "db3 t"):
        assert least_cpu_s(partial(filtered, search)) < 0.1


# ---- over HTTP ----


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Shop, TestClient]]:
    monkeypatch.setattr(cluster_reader, "READ_EVERY_S", 0.05)
    with status_shop(tmp_path / "data") as shop:
        place = LocalPlace(shop.client, shop.clock)
        place.reader.start()
        yield shop, TestClient(local_app(place))
        place.reader.stop()


def test_the_page_lists_filters_and_says_how_fresh_it_is(page: tuple[Shop, TestClient]) -> None:
    shop, client = page
    orders, prices = shop.create("orders"), shop.create("prices")
    shop.client.tiering.failed(shop.claim(orders), Reason.from_text("disk full"))
    failed_ms = shop.clock.now_ms()
    first = place_reads(client, lambda found: found["attention"], of="overview")
    assert not first["are_rounds_read"], "nobody has looked at the table before"
    found = place_reads(client, lambda found: found["are_rounds_read"], of="overview")
    assert len(found["attention"][0]["rounds_shown"]) == 1
    place_reads(client, lambda found: found["matched"] == 1, health="failing")
    found = place_reads(client, lambda found: found["are_rounds_read"], search="disk")
    assert (found["total"], found["matched"], found["databases"]) == (2, 1, ["shop"])
    assert found["reading"]["is_complete"]
    (table,) = found["tables"]
    assert (table["path"], table["health"], table["why"]) == (str(orders), "failing", "disk full")
    assert table["stuck_since_ms"] == failed_ms
    assert [(p["outcome"], p["ended_ms"]) for p in table["rounds_shown"]] == [("failed", failed_ms)]
    overview = client.get("/api/v1/overview").json()
    assert [one["path"] for one in overview["attention"]] == [str(orders)]
    assert overview["attention_total"] == 1
    assert overview["is_fluss"]
    found = place_reads(client, lambda found: len(found["tables"]) == 2, sort="table")
    assert [one["path"] for one in found["tables"]] == [str(orders), str(prices)]
    assert client.get("/api/v1/tables?health=broken").status_code == 422


def test_the_overview_has_the_totals_of_the_lake(page: tuple[Shop, TestClient]) -> None:
    shop, client = page
    for name in ("orders", "prices"):
        round_ = TieringRound(outcome="committed", lake_rows=5, lake_files=2, lake_bytes=900)
        shop.client.tiering.finished(shop.claim(shop.create(name)), details=round_)

    def totals() -> tuple[int | None, int | None]:
        overview = client.get("/api/v1/overview").json()
        return overview["lake_rows"], overview["lake_bytes"]

    wait_for("the totals of both tables", lambda: totals() == (10, 1800))


def place_reads(client: TestClient, what: Any, of: str = "tables", **asked: str) -> dict[str, Any]:
    """The answer once it is so."""
    found: dict[str, Any] = {}

    def is_so() -> bool:
        found.clear()
        answer = client.get(f"/api/v1/{of}", params=asked)
        assert answer.status_code == 200, answer.text
        found.update(answer.json())
        return bool(what(found))

    wait_for(f"{of} to answer so to {asked}", is_so)
    return found


def test_answers_are_compressed(page: tuple[Shop, TestClient]) -> None:
    shop, client = page
    for number in range(20):
        shop.create(f"t{number}")
    place_reads(client, lambda found: found["total"] == 20)
    answer = client.get("/api/v1/tables", headers={"Accept-Encoding": "gzip"})
    assert answer.headers["Content-Encoding"] == "gzip"
    assert int(answer.headers["Content-Length"]) < len(answer.content) / 5


def test_300_tables_of_fluss_are_read_in_steps(tmp_path: Path) -> None:
    """Rows are shown before all of them are read, and every one has its lag in the end."""
    with status_shop(tmp_path / "data") as shop:
        for number in range(300):
            lake = TableDescriptor(SCHEMA, bucket_count=1, properties=LAKE)
            shop.client.admin.create_table(TablePath("shop", f"t{number:03}"), lake)
        place = LocalPlace(shop.client, shop.clock)
        steps: list[Seen] = []
        place.reader.start()
        try:

            def is_complete() -> bool:
                steps.append(place.reader.seen)
                return steps[-1].is_complete

            wait_for("all to be read", is_complete)
            found = place.reader.seen
            assert len(found.tables) == 300
            wait_for(
                "all lags to be read",
                lambda: place.reader.seen.lags.oldest_ms is not None,
            )
        finally:
            place.reader.stop()
