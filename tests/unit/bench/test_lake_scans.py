"""An engine that refuses, that takes too long, that ends or that answers wrongly is reported so."""

from __future__ import annotations

import inspect
import json
import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from bench import __main__ as command
from bench.lake.lake_readers import PROGRAM, Reader, Scan
from bench.lake.table_scans import check_answer
from bench.measure import Line, report

BUSY_S = 0.5
LIMIT_S = 60.0
ENGINE = f"""
import json, os, subprocess, sys, time
def busy():
    while time.process_time() < {BUSY_S}: pass
def answer(what):
    if what == "child":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        return {{"answer": [child.pid]}}
    if what == "busy":
        busy()
    if what == "sleep":
        time.sleep(600)
    if what == "end":
        sys.exit("no space left")
    return {{"refused": "ValueError: no deletes"}} if what == "refuse" else {{"answer": [1, 2]}}
print("{{}}", flush=True)
for line in sys.stdin:
    print(json.dumps(answer(**json.loads(line))), flush=True)
"""


@contextmanager
def engine(folder: Path, *words: str) -> Iterator[Reader]:
    words = words or ("-c", ENGINE)
    with Reader([sys.executable, *words], os.environ, folder / "engine.log") as running:
        yield running


def _has_ended(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_an_answer_costs_what_was_spent_for_it(tmp_path: Path) -> None:
    with engine(tmp_path) as running:
        first, second = (running.ask(LIMIT_S, what=what) for what in ("busy", "nothing"))
    assert first.answer == second.answer == [1, 2]
    assert BUSY_S * 0.7 < first.cpu_s < BUSY_S * 1.6, "the start of Python is no part of it"
    assert second.cpu_s < 0.1


def test_an_engine_that_refuses_goes_on(tmp_path: Path) -> None:
    with engine(tmp_path) as running:
        scan = running.ask(LIMIT_S, what="refuse")
        assert (scan.answer, scan.why) == (None, "refused: ValueError: no deletes")
        assert scan.is_refused
        assert running.ask(LIMIT_S, what="nothing").answer == [1, 2]


def test_an_engine_that_takes_too_long_is_ended_with_its_children(tmp_path: Path) -> None:
    with engine(tmp_path) as running:
        found = running.ask(LIMIT_S, what="child")
        assert found.answer is not None
        scan = running.ask(0.5, what="sleep")
        assert (scan.answer, scan.why, scan.is_refused) == (None, "over 0.5 s", False)
        assert running.is_closed
    deadline = time.monotonic() + LIMIT_S
    while not _has_ended(found.answer[0]):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_an_engine_that_ends_fails_the_benchmark(tmp_path: Path) -> None:
    with (
        engine(tmp_path) as running,
        pytest.raises(SystemExit, match=r"(?s)ended with exit code 1:.*no space left"),
    ):
        running.ask(LIMIT_S, what="end")


def test_an_engine_that_is_not_installed_says_so(tmp_path: Path) -> None:
    """Here the interpreter is that of the project, which has no DuckDB."""
    with (
        pytest.raises(SystemExit, match=r"(?s)exit code 1:.*No module named 'duckdb'"),
        engine(tmp_path, str(PROGRAM), "duckdb", str(tmp_path)),
    ):
        pass


@pytest.mark.parametrize("wrong", [[3, 1, 99], [2, 0, 99], [2, 1, 98], [2, 1], [2, 1, None]])
def test_a_wrong_answer_fails_the_benchmark(wrong: list[int | None]) -> None:
    check_answer("polars's scan", Scan(1, 1, [2, 1, 99]), [2, 1, 99])
    check_answer("polars's scan", Scan(1, 1, why="refused: no"), [2, 1, 99])
    said = re.escape(f"polars's scan answered {wrong}, but the replay has [2, 1, 99]")
    with pytest.raises(SystemExit, match=said):
        check_answer("polars's scan", Scan(1, 1, wrong), [2, 1, 99])


def test_a_line_without_a_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BENCH_JSON", str(tmp_path / "lines"))
    report(Line("polars_full", None, "core-s", None, "refused: no"))
    assert capsys.readouterr().out.split() == ["polars_full", "-", "core-s", "refused:", "no"]
    assert json.loads((tmp_path / "lines").read_text())["value"] is None


def test_an_unknown_engine_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    parser = command.options(command.names())
    with pytest.raises(SystemExit):
        parser.parse_args(["lake_scans", "--engines", "spark,trino"])
    assert "no engine trino; there are spark, pyiceberg, polars, duckdb" in capsys.readouterr().err
    assert parser.parse_args(["--engines", "none"]).engines == ()
    assert parser.parse_args(["--engines", "polars,duckdb"]).engines == ("polars", "duckdb")


def test_each_benchmark_gets_its_own_options() -> None:
    parser = command.options(command.names())
    given = parser.parse_args(["--rounds", "7", "--changed", "0.5", "--compaction"])
    rows, own = command.own_options("lake_scans", given)
    assert rows == 1_000_000
    assert (own["rounds"], own["changed"], own["compaction"]) == (7, 0.5, True)
    rows, own = command.own_options("log_rounds", given)
    assert (rows, own["rounds"], "changed" in own) == (None, 7, False)
    assert command.own_options("kv_put", given) == (5_000_000, {})
    rows, own = command.own_options("log_rounds", parser.parse_args(["--rows", "9"]))
    assert (rows, "rounds" in own, own["compaction"]) == (9, False, False)


@pytest.mark.parametrize("name", command.names())
def test_each_benchmark_is_found_in_its_room(name: str) -> None:
    assert callable(command.load(name))


@pytest.mark.parametrize("name", ["lake_scans", "log_rounds"])
def test_a_benchmark_takes_its_options(name: str) -> None:
    _, own = command.own_options(name, command.options(command.names()).parse_args([]))
    inspect.signature(command.load(name)).bind(1, **own)
