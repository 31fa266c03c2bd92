"""Measures `sluice ui` as a process of its own, before a cluster of many lake tables."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import HTTPCookieProcessor, build_opener

import psutil

from bench.measure import Line, report
from tests.support.network.ports import kept_port

REPEATS = 21
FIRST_ROW_S, FILTER_MS, RSS_MB = 1.0, 100.0, 300.0
"""The goals."""
WATCHED_S = 20.0
PATIENCE_S = 300.0
LIST, FILTER = "tables?limit=100", "tables?search=t0012&sort=lag_rows&descending=true"


def measure_page(address: str, prefix: str, tables: int) -> None:
    """Prints the lines of a cluster with so many lake tables."""
    with kept_port() as port:
        command = [str(Path(sys.executable).with_name("sluice")), "ui", "--bootstrap", address]
        started_s = time.monotonic()
        process = subprocess.Popen(
            [*command, "--listen", f"127.0.0.1:{port}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            _measure(process, started_s, prefix, tables)
        finally:
            process.terminate()
            process.wait(30)


def _measure(process: subprocess.Popen[str], started_s: float, prefix: str, tables: int) -> None:
    get = _reader_of(process)
    ready_s = time.monotonic()
    _wait(lambda: get(LIST)["tables"])
    opened_s = time.monotonic() - ready_s
    text = f"the goal of 1 s from the answer of the page; {tables:,} tables"
    report(Line(f"{prefix}page_first_row", opened_s, "s", opened_s / FIRST_ROW_S, text))
    whole_s = time.monotonic() - started_s
    report(Line(f"{prefix}page_first_row_of_process", whole_s, "s", None, "with the imports"))
    _wait(lambda: get("tables?limit=1")["reading"]["is_complete"])
    whole_s = time.monotonic() - started_s
    report(Line(f"{prefix}page_all_statuses", whole_s, "s", None, "from the start of the process"))
    _times(get, f"{prefix}page_while_lags_are_read_", tables)
    _wait(lambda: not _lacks_lags(get, tables))
    whole_s = time.monotonic() - started_s
    report(Line(f"{prefix}page_all_lags", whole_s, "s", None, "from the start of the process"))
    _times(get, f"{prefix}page_", tables)
    for at in range(0, tables, 500):
        get(f"tables?sort=table&limit=500&offset={at}")
    own = psutil.Process(process.pid)
    before = own.cpu_times()
    for _ in range(int(WATCHED_S)):
        get(LIST)
        time.sleep(1)
    after = own.cpu_times()
    spent_s = after.user + after.system - before.user - before.system
    what = "with one request a second"
    report(Line(f"{prefix}page_cpu", spent_s / WATCHED_S, "core-s a second", None, what))
    mb = own.memory_info().rss / 2**20
    report(Line(f"{prefix}page_rss", mb, "MB", mb / RSS_MB, "the goal of 300 MB, all pages read"))


def _reader_of(process: subprocess.Popen[str]) -> Callable[[str], Any]:
    """Logs in by the printed link; returns what reads an answer of the API."""
    assert process.stdout is not None
    found = next(filter(None, (re.search(r"http://\S+", line) for line in process.stdout)))
    link = found.group()
    base = link.partition("/login")[0].rstrip("/")
    opener = build_opener(HTTPCookieProcessor(CookieJar()))

    def logged_in() -> bool:
        try:
            opener.open(link).read()
        except URLError as error:
            if not isinstance(error.reason, ConnectionRefusedError):
                raise
            return False
        return True

    _wait(logged_in)

    def get(query: str) -> Any:
        with opener.open(f"{base}/api/v1/{query}") as answer:
            return json.load(answer)

    return get


def _times(get: Callable[[str], Any], prefix: str, tables: int) -> None:
    for name, query in (("list", LIST), ("filter", FILTER), ("overview", "overview")):
        found = []
        for _ in range(REPEATS):
            started_s = time.monotonic()
            get(query)
            found.append((time.monotonic() - started_s) * 1000)
        found.sort()
        median = found[REPEATS // 2]
        text = f"the goal of 100 ms; {tables:,} tables, at most {found[-1]:.0f} ms"
        report(Line(f"{prefix}{name}", median, "ms", median / FILTER_MS, text))


def _lacks_lags(get: Callable[[str], Any], tables: int) -> bool:
    """Whether more than a hundredth of the lags are not known; some tables have no leader."""
    known = get(f"tables?sort=lag_rows&limit=1&offset={tables * 99 // 100}")["tables"]
    return bool(not known or known[0]["lag_rows"] is None)


def _wait(done: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not done():
        if time.monotonic() > deadline:
            raise SystemExit(f"waited {PATIENCE_S:.0f} s")
        time.sleep(0.02)
