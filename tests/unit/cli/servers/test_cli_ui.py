"""`sluice ui` as a process: its link, its stop, and what it refuses."""

from __future__ import annotations

import os
import signal
import socket
import time
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

from sluice.cli.main import cli
from sluice.config import ServerConfig
from sluice.rounds.records.maintenance import MaintenanceRun, note_run
from sluice.server.cluster import EmbeddedCluster
from tests.support.page.ui_process import origin_of, ui_process
from tests.support.programs.processes import wait_for

STOP_MAX_S = 6.0  # two seconds, on a busy machine
NOWHERE = "grpc://127.0.0.1:1"


def test_it_serves_a_cluster_and_ends_beside_open_connections(tmp_path: Path) -> None:
    config = ServerConfig(data_dir=str(tmp_path), listen="grpc://127.0.0.1:0")
    with (
        EmbeddedCluster(config) as cluster,
        ui_process("--bootstrap", cluster.address, "--read-only") as (process, link),
    ):
        url = origin_of(link)
        with httpx.Client(base_url=url, timeout=60) as browser:
            assert browser.get(link).status_code == 303
            assert process.stdout is not None
            following = process.stdout.readline()
            assert following.startswith(f"sluice: link for one more: {url}/login?token=")
            assert link not in following
            seen = browser.get("/api/v1/overview").json()
            assert (seen["cluster"], seen["may_act"]) == (cluster.address, False)
            port = int(url.rpartition(":")[2])
            with socket.create_connection(("127.0.0.1", port)) as half:
                half.sendall(b"GET / HTTP/1.1\r\n")
                began = time.monotonic()
                process.send_signal(signal.SIGTERM)
                out, err = process.communicate(timeout=60)
                assert time.monotonic() - began < STOP_MAX_S
    assert (process.returncode, out, err) == (0, "sluice: stopped\n", "")


def test_it_ends_beside_a_work_folder_that_hangs(tmp_path: Path) -> None:
    """A pipe that nobody fills, as a report: its read never ends."""
    work = f"file://{tmp_path}/work"
    note_run(work, "task", MaintenanceRun(folder="run", attempt="a", began_ms=1))
    report = tmp_path / "work/run/maintenance/a-table-1.json"
    report.parent.mkdir(parents=True)
    os.mkfifo(report)

    config = ServerConfig(data_dir=str(tmp_path / "data"), listen="grpc://127.0.0.1:0")
    with (
        EmbeddedCluster(config) as cluster,
        ui_process("--bootstrap", cluster.address, "--work-uri", work) as (process, link),
        httpx.Client(base_url=origin_of(link), timeout=60) as browser,
    ):
        browser.get(link)

        pipes: list[int] = []

        def is_read() -> bool:
            assert browser.get("/api/v1/maintenance").status_code == 200
            with suppress(OSError):  # nobody reads it yet
                pipes.append(os.open(report, os.O_WRONLY | os.O_NONBLOCK))
            return bool(pipes)

        wait_for("a read of the report", is_read)
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        try:
            out, err = process.communicate(timeout=60)
        finally:
            os.close(pipes[0])
        assert time.monotonic() - began < STOP_MAX_S
    assert (process.returncode, out.splitlines()[-1], err) == (0, "sluice: stopped", "")


def test_a_cluster_that_is_away() -> None:
    """The page says so, as the terminal does, and a call in progress does not keep the stop."""
    with ui_process("--bootstrap", NOWHERE) as (process, link):
        assert process.stderr is not None
        said = process.stderr.readline()
        assert said.startswith("sluice: nothing listens at 127.0.0.1:1")
        assert said.endswith("the page shows the tables when the cluster answers\n")
        with httpx.Client(base_url=origin_of(link), timeout=60) as browser:
            browser.get(link)

            def error() -> str | None:
                return browser.get("/api/v1/overview").json()["reading"]["error"]

            wait_for("the error of a read", lambda: error() is not None)
            assert "nothing listens at 127.0.0.1:1" in (error() or "")
            began = time.monotonic()
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
            assert time.monotonic() - began < STOP_MAX_S


def test_a_port_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        result = CliRunner().invoke(cli, ["ui", "--listen", place])
    assert result.exit_code == 2
    assert result.stderr == (
        f"sluice: --listen: {place}: Address already in use;"
        " `sluice ui --listen 127.0.0.1:0` takes a free port\n"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--listen", "0.0.0.0:0"],
            "can be reached from other machines, without encryption: listen on 127.0.0.1,"
            " or accept the risk with --insecure\n",
        ),
        (["--listen", "nonsense"], "--listen: 'nonsense': expected HOST:PORT\n"),
        (["--bootstrap", "nonsense"], "address 'nonsense': the scheme is missing"),
    ],
)
def test_what_it_refuses(words: list[str], said: str) -> None:
    result = CliRunner().invoke(cli, ["ui", "--listen", "127.0.0.1:0", *words])
    assert result.exit_code == 2
    assert said in result.stderr
