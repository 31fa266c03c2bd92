"""`sluice append` that breaks off: the next run goes on exactly there, or is told why it cannot."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from sluice.cli.rows.append_recorder import RESUMABLE_S, AppendRecorder
from sluice.cli.rows.sending import FileSender
from sluice.client import connect
from tests.docs.blocks import claimed
from tests.support.programs.processes import SLUICE, environment
from tests.support.tables.append_shop import ORDERS, ROWS, Shop, command_of, stored_of


def test_the_same_file_is_offered_to_go_on(shop: Shop, broken: tuple[Path, str]) -> None:
    path, said = broken
    stored, before = stored_of(said), len(shop.ids())
    assert 0 < stored <= before < ROWS
    command = f"sluice append {shop.table} {path} --skip-rows {stored}"
    assert said.endswith(f"Resume with:\n{command}\n")
    again = shop.append(path, fails=2)
    assert f"an earlier run is unfinished. At least the first {stored:,} of 20,000 rows" in again
    assert f"--again appends the complete file again. Resume with:\n{command}\n" in again
    assert command in shop.append(path, "--skip-rows", "7", fails=2)
    copy = path.with_name("copy.csv")
    copy.write_bytes(path.read_bytes())
    assert "an earlier run is unfinished" in shop.append(copy, fails=2), "the rows are the same"
    assert len(shop.ids()) == before
    went_on = shop.run(*shlex.split(command)[1:])
    assert re.search(
        rf" {ROWS - stored:,} rows appended in \S+ s, after the first {stored:,}\n", went_on
    )
    assert sorted(shop.ids()) == list(range(ROWS))
    assert shop.records == []


def test_the_page_shows_what_both_runs_print(shop: Shop, broken: tuple[Path, str]) -> None:
    path, said = broken
    runs = [said, shop.append(path, fails=2)]
    for command, printed in zip(claimed("docs/append.md", __file__), runs, strict=True):
        shown = "\n".join(command.output)
        shown = shown.replace("shop.orders many.csv", f"{shop.table} {path}")
        shown = shown.replace("many.csv", path.name).partition(". At least")[2]
        expected = re.escape(shown).replace("10,849", r"[\d,]+").replace("10849", r"\d+")
        assert re.search(rf"\. At least{expected}\n$", printed), printed


def test_on_a_terminal_it_asks(shop: Shop, broken: tuple[Path, str]) -> None:
    path, _ = broken
    answers = {"n\n": (2, "nothing was sent"), "\n": (0, " s, after the first ")}
    for answer, (code, told) in answers.items():
        ours, theirs = pty.openpty()
        os.write(ours, answer.encode())
        done = subprocess.run(
            [SLUICE, "append", str(shop.table), str(path)],
            env=environment(
                {"SLUICE_CLIENT_BOOTSTRAP": shop.address, "XDG_STATE_HOME": str(shop.state)}
            ),
            stdin=theirs,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        os.close(ours)
        os.close(theirs)
        assert "rows.csv are stored. Resume after them? [Y/n]" in done.stderr
        assert done.returncode == code, done.stderr
        assert told in done.stdout + done.stderr
    assert sorted(shop.ids()) == list(range(ROWS))


def test_who_wants_all_rows_again_gets_them(shop: Shop, broken: tuple[Path, str]) -> None:
    path, _ = broken
    before = len(shop.ids())
    assert "20,000 rows appended in" in shop.append(path, "--again")
    assert len(shop.ids()) == before + ROWS
    assert shop.records == []


def test_after_many_days_nobody_can_go_on_exactly(shop: Shop, broken: tuple[Path, str]) -> None:
    path, said = broken
    stored = stored_of(said)
    (record,) = shop.records
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    for line in lines[1:-1]:
        line[-1] -= RESUMABLE_S
    record.write_text("".join(json.dumps(line) + "\n" for line in lines))
    refused = shop.append(path, "--skip-rows", str(stored), fails=2)
    assert "batch is more than 6 days old, so an exact resume is not possible" in refused
    assert command_of(refused)[-3:] == ["--again", "--skip-rows", str(stored)]
    shop.run(*command_of(refused))
    assert set(shop.ids()) == set(range(ROWS))


def test_a_run_that_goes_on_may_break_off_too(
    shop: Shop, broken: tuple[Path, str], breaks: Callable[[int], None]
) -> None:
    path, said = broken
    for batch in (1, 4, 2):
        breaks(batch)
        stored = stored_of(said)
        said = shop.append(path, "--skip-rows", str(stored), fails=1)
        assert stored_of(said) >= stored
        assert set(range(stored)) <= set(shop.ids())
    breaks(0)
    shop.append(path, "--skip-rows", str(stored_of(said)))
    assert sorted(shop.ids()) == list(range(ROWS))


def test_half_a_line_in_the_record_is_no_line(shop: Shop, broken: tuple[Path, str]) -> None:
    path, said = broken
    (record,) = shop.records
    with record.open("a") as file:
        file.write("[null, 0, 12")
    shop.append(path, "--skip-rows", str(stored_of(said)))
    assert sorted(shop.ids()) == list(range(ROWS))


def test_where_the_cluster_forgot_the_earlier_run_nothing_is_mixed_up(
    shop: Shop, broken: tuple[Path, str]
) -> None:
    path, said = broken
    before = len(shop.ids())
    (record,) = shop.records
    header, *lines = record.read_text().splitlines()
    with connect(shop.address) as client, client.log_writer(shop.table) as other:
        another_id = other._id()
    changed = {**json.loads(header), "writer": [another_id, *json.loads(header)["writer"][1:]]}
    record.write_text("\n".join([json.dumps(changed), *lines, ""]))
    told = shop.append(path, "--skip-rows", str(stored_of(said)), fails=1)
    assert told.startswith("sluice: OutOfOrderSequence: ")
    assert "An exact resume of the earlier run is not possible" in told
    assert len(shop.ids()) == before
    command = command_of(told)
    assert command[-3:] == ["--again", "--skip-rows", str(stored_of(said))]
    refused = shop.append(path, "--skip-rows", str(stored_of(said)), fails=2)
    assert "The cluster answered OutOfOrderSequence to a resumed run" in refused
    assert command_of(refused) == command == command_of(shop.append(path, fails=2))
    shop.run(*command)
    assert set(shop.ids()) == set(range(ROWS))
    assert shop.records == []


def test_a_damaged_record_is_named(shop: Shop, broken: tuple[Path, str]) -> None:
    path, _ = broken
    (record,) = shop.records
    for damaged in ("no JSON\n", "{}\n", record.read_text().replace("[", "[[", 2)):
        record.write_text(damaged)
        said = shop.append(path, fails=1)
        assert f"{record}: the record of an earlier run is damaged; delete the file" in said


def test_a_disk_that_is_full_ends_the_run(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that cannot be noted is not sent."""
    shop.create(ORDERS)
    path, write, lines = shop.file(), os.write, list[bytes]()

    def writing(file: int, text: bytes) -> int:
        if not text.startswith((b"{", b"[")):
            return write(file, text)
        lines.append(text)
        if len(lines) > 30:
            return write(file, text[:3])
        return write(file, text)

    monkeypatch.setattr(os, "write", writing)
    said = shop.append(path, fails=1)
    monkeypatch.undo()
    assert "StorageError: " in said
    assert "No space left on device; nothing more is sent. At least the first" in said
    shop.run(*command_of(said))
    assert sorted(shop.ids()) == list(range(ROWS))


def test_two_do_not_send_the_same_file_at_one_time(shop: Shop, broken: tuple[Path, str]) -> None:
    path, said = broken
    (record,) = shop.records
    header = json.loads(record.read_text().splitlines()[0])
    name = {k: v for k, v in header.items() if k not in ("rows", "skipped", "writer", "at", "file")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(shop.state))
        other = AppendRecorder(name, {})
    assert other.path == record
    for options in (["--skip-rows", str(stored_of(said))], ["--again"]):
        told = shop.append(path, *options, fails=1)
        assert "another `sluice append` is sending this file; wait for it" in told
    other.__exit__(None, None, None)
    shop.append(path, "--skip-rows", str(stored_of(said)))


def test_what_broke_off_before_its_first_batch_has_sent_nothing(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.create(ORDERS)
    path = shop.file()
    check = FileSender.check_all

    def check_and_change(sending: FileSender) -> int:
        found = check(sending)
        with path.open("a") as file:
            file.write("20000,one more\n")
        return found

    monkeypatch.setattr(FileSender, "check_all", check_and_change)
    said = shop.append(path, fails=1)
    assert "rows.csv: the file was changed while it was read. Nothing was sent\n" in said
    assert shop.ids() == []
    monkeypatch.undo()
    shop.append(path)
