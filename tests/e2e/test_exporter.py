"""`sluice exporter` as a real process, for a cluster that starts later."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

from tests.support.network.scrapes import scrape
from tests.support.programs.processes import SLUICE, ServerProcess, environment, sluice, wait_for


def test_it_waits_for_its_cluster_and_ends_cleanly(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "data")
    command = [SLUICE, "exporter", "--bootstrap", server.address, "--listen", "127.0.0.1:0"]
    with subprocess.Popen(
        [*command, "--cache", "0s", "--timeout", "500ms"],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith(f"sluice: ready, metrics of {server.address} at http://127.")
            url = line.split()[-1]
            assert scrape(url)["sluice_up",] == 0
            server.start()
            wait_for("the cluster", lambda: scrape(url)["sluice_up",] == 1)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()  # has no effect on one that has ended
            server.kill()
    assert (process.returncode, out) == (0, "sluice: stopped\n")
    first, last = err.splitlines()
    assert first.startswith("the cluster cannot be read: ")
    assert last == "the cluster can be read again"


def test_an_address_that_is_not_allowed_is_one_line() -> None:
    refused = sluice("exporter", "--listen", "0.0.0.0:0")
    assert refused.returncode == 2
    assert refused.stderr.startswith("sluice: --listen: '0.0.0.0:0' can be reached from other")
    assert len(refused.stderr.splitlines()) == 1
