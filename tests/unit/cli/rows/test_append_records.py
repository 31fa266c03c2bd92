"""The record of a run of `sluice append`: when it is made, replaced and removed, and by whom."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sluice import failpoints
from sluice.cli.rows.append_recorder import AppendRecorder
from sluice.cli.rows.append_records import unfinished_records
from sluice.cli.rows.row_files import RowFile
from sluice.client.batches.sent_batches import WriterStart
from tests.support.programs.processes import SLUICE, environment
from tests.support.tables.append_shop import ORDERS, ROWS, Shop, command_of, stored_of

START = WriterStart(1, 0, 100, 1)
NAME = {"table": "shop.orders", "table_id": 1}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


# ---- --again, and what comes between it and the first batch ----


def test_a_run_that_ends_while_it_checks_leaves_the_earlier_record(
    shop: Shop, broken: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, said = broken

    def stopped(rows: RowFile) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(RowFile, "check_unchanged", stopped)
    assert "Nothing was sent" in shop.append(path, "--again", fails=130)
    monkeypatch.undo()
    told = shop.append(path, "--again", "--skip-rows", "20001", fails=2)
    assert "rows.csv has: 20,000 rows" in told
    assert "an earlier run is unfinished" in shop.append(path, fails=2)
    shop.run(*command_of(said))
    assert sorted(shop.ids()) == list(range(ROWS))


def test_the_record_of_a_run_with_again_replaces_the_earlier_one(
    shop: Shop, broken: tuple[Path, str], breaks: Callable[[int], None]
) -> None:
    path, _ = broken
    before = len(shop.ids())
    breaks(40)
    said = shop.append(path, "--again", "--skip-rows", "5000", fails=1)
    breaks(0)
    assert len(shop.records) == 1
    assert [p.name for p in shop.records[0].parent.iterdir()] == [shop.records[0].name]
    shop.run(*command_of(said))
    assert len(shop.ids()) == before + ROWS - 5000
    assert shop.records == []


def test_a_record_that_cannot_be_replaced_is_removed(
    shop: Shop, broken: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _ = broken

    def fails(file: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fails)
    assert "(Input/output error)" in shop.append(path, "--again")
    monkeypatch.undo()
    assert shop.records == []


def test_who_looks_at_a_record_keeps_nobody_from_going_on(
    shop: Shop, broken: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As runs into one table do that go on side by side."""
    _, said = broken
    monkeypatch.setenv("XDG_STATE_HOME", str(shop.state))
    looks = unfinished_records(str(shop.table))
    assert next(looks).path == shop.records[0]
    with shop.records[0].open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_SH)
        threading.Timer(0.3, fcntl.flock, (other, fcntl.LOCK_UN)).start()
        shop.run(*command_of(said))
    assert sorted(shop.ids()) == list(range(ROWS))


# ---- places where a record cannot be kept ----


@pytest.mark.parametrize("broken_call", ["flock", "fsync"])
def test_a_record_that_could_not_be_made_is_not_unfinished_records(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, broken_call: str
) -> None:
    shop.create(ORDERS)
    path = shop.file(200)

    def fails(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl if broken_call == "flock" else os, broken_call, fails)
    for _ in range(2):
        said = shop.append(path)
        assert "note: no record of this run is kept in" in said
        assert "(No locks available); if the run is interrupted, a resumed run may" in said
        assert "200 rows appended" in said
    assert [p for p in shop.state.rglob("*") if p.is_file()] == []


def test_a_record_that_cannot_be_locked_is_not_said_to_be_in_use(
    shop: Shop, broken: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, said = broken

    def fails(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", fails)
    told = shop.append(path, fails=1)
    assert "the record of an earlier run cannot be read or locked: No locks available" in told
    monkeypatch.undo()
    shop.run(*command_of(said))
    assert sorted(shop.ids()) == list(range(ROWS))


# ---- two at one time ----


def between_open_and_lock(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], None]) -> None:
    """Has something happen once, when a file is open and not locked yet."""
    lock = fcntl.flock

    def locking(file: int, how: int) -> None:
        monkeypatch.setattr(fcntl, "flock", lock)
        happens()
        lock(file, how)

    monkeypatch.setattr(fcntl, "flock", locking)


def test_a_record_that_another_one_has_removed_is_made_again(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one finds it empty, and takes it for what a killed process left."""
    first, other = AppendRecorder(NAME, {}), list[AppendRecorder]()
    between_open_and_lock(monkeypatch, lambda: other.append(AppendRecorder(NAME, {})))
    first.begin(START)
    assert first.is_kept
    assert first.path.exists()
    with pytest.raises(Exception, match="another `sluice append` is sending this file"):
        other[0].begin(START)
    first.__exit__(None, None, None)
    assert AppendRecorder(NAME, {}).start == START


def test_who_finds_a_new_record_locked_does_not_send(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, taken = AppendRecorder(NAME, {}), list[int]()

    def take() -> None:
        taken.append(os.open(first.path, os.O_RDWR))
        fcntl.flock(taken[0], fcntl.LOCK_EX)

    between_open_and_lock(monkeypatch, take)
    with pytest.raises(Exception, match="another `sluice append` is sending this file"):
        first.begin(START)
    assert not first.has_begun
    os.close(taken[0])


def test_a_record_that_goes_while_it_is_opened_is_none(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = AppendRecorder(NAME, {})
    ended.begin(START)
    between_open_and_lock(monkeypatch, ended.forget)
    late = AppendRecorder(NAME, {})
    assert not late.is_unfinished
    late.begin(START)
    assert late.path.exists()


# ---- what is told ----


def test_without_standard_input_nobody_is_asked(shop: Shop, broken: tuple[Path, str]) -> None:
    path, said = broken
    settings = {"SLUICE_CLIENT_BOOTSTRAP": shop.address, "XDG_STATE_HOME": str(shop.state)}
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" <&-', "sh", SLUICE, "append", str(shop.table), str(path)],
        env=environment(settings),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert command_of(done.stderr) == command_of(said)


@pytest.mark.parametrize(
    "layout", [["--buckets", "1"], ["--buckets", "3", "--bucket-key", "id"]], ids=["plain", "keyed"]
)
def test_parts_of_a_large_batch_are_known_to_be_stored(
    shop: Shop, breaks: Callable[[int], None], layout: list[str]
) -> None:
    """A file of Parquet is read 65,536 rows at a time."""
    shop.create(ORDERS, *layout)
    path = shop.home / "rows.parquet"
    notes = [f"{i:0100}" for i in range(60_000)]
    pq.write_table(pa.table({"id": range(60_000), "note": notes}), path)
    breaks(200)
    said = shop.append(path, fails=1)
    breaks(0)
    there = len(shop.ids())
    words = command_of(said)
    stored = int(words[-1])
    assert there > 20_000
    assert there - 8_000 < stored <= there
    shop.run(*words)
    assert sorted(shop.ids()) == list(range(60_000))


def test_a_run_without_a_record_says_how_many_rows_may_come_twice(
    shop: Shop, breaks: Callable[[int], None]
) -> None:
    shop.create(ORDERS)
    path = shop.file()
    (shop.home / "no-folder").write_text("")
    breaks(80)
    env = {"XDG_STATE_HOME": str(shop.home / "no-folder")}
    said = shop.append(path, fails=1, **env)
    breaks(0)
    assert "note: no record of this run is kept in" in said
    _, _, most = said.partition("No record was kept: rows after them may be stored twice,")
    stored, there = stored_of(said), len(shop.ids())
    assert there - stored <= int(most.split()[2].replace(",", "")) < ROWS
    assert "rows appended" in shop.append(path, "--skip-rows", str(stored), **env)
    assert set(shop.ids()) == set(range(ROWS))
    assert failpoints._armed == {}
