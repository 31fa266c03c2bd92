"""`sluice append` that broke off, and then file or table changed: no row is lost without a word."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from sluice.cli.rows.sending import FileSender
from sluice.client import connect
from sluice.model import Column
from sluice.model import types as t
from tests.support.programs.processes import wait_for
from tests.support.tables.append_shop import ORDERS, ROWS, Shop, command_of, stored_of

NO_RECORD = (
    "note: no record of an unfinished run of rows.csv with its present content was found;"
    " rows after the"
)


def changed_while_sent(shop: Shop, path: Path, change: Callable[[], None]) -> str:
    """What a run says whose file changes after its first part was sent."""
    send_all = FileSender.send_all

    def send_and_change(sending: FileSender, total: int, skipped_rows: int) -> None:
        def send(batch: pa.RecordBatch) -> None:
            sending.send(batch)
            wait_for("rows to be stored", lambda: sending.writer.stored_rows > 0)
            change()

        send_all(FileSender(**{**sending.__dict__, "send": send}), total, skipped_rows)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FileSender, "send_all", send_and_change)
        return shop.append(path, fails=1)


def test_a_file_that_changes_while_it_is_sent_ends_the_run(shop: Shop) -> None:
    """Who follows the printed command loses no row, and is told that some come twice."""
    shop.create(ORDERS)
    path = shop.file(40_000)
    before = path.read_bytes()

    def change() -> None:
        path.write_bytes(before + b"40000,one more\n")

    said = changed_while_sent(shop, path, change)
    told = "For an exact resume restore the file; otherwise rows after them may be stored twice"
    assert "rows.csv: the file was changed while it was read. At least the first" in said
    assert f"are stored. {told}. Resume with:\n" in said
    assert 0 < len(set(shop.ids())) < 40_000
    went_on = shop.run(*command_of(said))
    assert NO_RECORD in went_on
    assert set(shop.ids()) == set(range(40_001))


def test_a_file_that_is_put_back_goes_on_exactly(shop: Shop) -> None:
    shop.create(ORDERS)
    path = shop.file(40_000)
    before = path.read_bytes()
    said = changed_while_sent(shop, path, lambda: os.truncate(path, 1_000_000))
    assert "rows.csv: the file was changed while it was read. At least the first" in said
    path.write_bytes(before)
    assert NO_RECORD not in shop.run(*command_of(said))
    assert sorted(shop.ids()) == list(range(40_000))


def test_a_file_changed_between_the_runs_is_refused_with_both_ways_on(
    shop: Shop, broken: tuple[Path, str]
) -> None:
    path, _ = broken
    with path.open("a") as file:
        file.write("20000,one more\n")
    before = len(shop.ids())
    plain = shop.append(path, fails=2)
    assert (
        "an earlier run is unfinished, and rows.csv was changed since. At least the first" in plain
    )
    assert "--again appends the complete file again; otherwise rows after" in plain
    assert len(shop.ids()) == before
    copy = path.with_name("copy.csv")
    copy.write_bytes(path.read_bytes())
    assert "unfinished" not in shop.append(copy), "a file of another name"
    assert NO_RECORD in shop.run(*command_of(plain))
    assert set(shop.ids()) == set(range(ROWS + 1))
    assert shop.records == [], "what the file was is forgotten once all of it is there"
    assert "unfinished" not in shop.append(path)


def test_a_table_created_anew_gets_the_whole_file(shop: Shop, broken: tuple[Path, str]) -> None:
    path, said = broken
    with connect(shop.address) as client:
        client.admin.drop_table(shop.table)
    shop.create(ORDERS, "--buckets", "2")
    other = f"the unfinished run of rows.csv was into another table named {shop.table}"
    refused = shop.run(*command_of(said), fails=2)
    assert other in refused
    assert shop.ids() == []
    assert command_of(refused) == ["append", str(shop.table), str(path)]
    went_on = shop.run(*command_of(refused))
    assert f"note: {other}; all rows are sent" in went_on
    assert sorted(shop.ids()) == list(range(ROWS))
    shop.append(path, "--again", "--skip-rows", "19990")
    assert len(shop.ids()) == ROWS + 10, "who insists may leave rows out"


@pytest.mark.parametrize("has_it", [True, False])
def test_columns_that_came_between_the_runs_stay_null(
    shop: Shop, breaks: Callable[[int], None], has_it: bool
) -> None:
    """Whether the file has such a column or not."""
    shop.create(ORDERS, "--buckets", "2")
    path = shop.file()
    if has_it:
        lines = path.read_text().splitlines()
        more = ["z", *("7" for _ in lines[1:])]
        path.write_text("".join(f"{a},{b}\n" for a, b in zip(lines, more, strict=True)))
    breaks(80)
    said = shop.append(path, fails=1)
    breaks(0)
    with connect(shop.address) as client:
        client.admin.add_columns(shop.table, [Column("z", t.INT, 2)])
    refused = shop.append(path, fails=2)
    assert command_of(refused) == command_of(said)
    went_on = shop.run(*command_of(said))
    assert f"note: {shop.table} has new columns since the unfinished run of rows.csv" in went_on
    assert "ignored columns" not in went_on
    assert sorted(shop.ids()) == list(range(ROWS))
    assert shop.records == []


def test_rows_can_be_skipped_without_an_earlier_run(
    shop: Shop, breaks: Callable[[int], None]
) -> None:
    """And that run, too, can break off."""
    shop.create(ORDERS)
    path = shop.file()
    breaks(80)
    said = shop.append(path, "--skip-rows", "4321", fails=1)
    assert f"{NO_RECORD} first 4,321 may be stored twice\n" in said
    stored = stored_of(said)
    breaks(0)
    assert stored > 4321
    assert NO_RECORD not in shop.append(path, "--skip-rows", str(stored))
    assert sorted(shop.ids()) == list(range(4321, ROWS))
    assert "rows.csv has: 20,000 rows" in shop.append(path, "--skip-rows", "20001", fails=2)
    assert " s, after the first 20,000\n" in shop.append(path, "--skip-rows", "20000")
