"""What the demo asks Airflow over REST while other programs hold Airflow's database."""

from __future__ import annotations

import json
import threading
import urllib.error
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from demo import airflow as demo_airflow
from demo.airflow import Airflow
from demo.processes import Processes

ANSWER = {
    "state": "running",
    "task_instances": [],
    "import_errors": [],
    "scheduler": {"status": "healthy"},
    "triggerer": {"status": None},
}
"""The answer to each question: what they look for is in it."""


@contextmanager
def answers(*codes: int) -> Iterator[tuple[str, list[str]]]:
    """A server that gives these codes, one after the other; its address, and what was asked."""
    left, asked = list(codes), []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            content = json.dumps(ANSWER).encode()
            self.send_response(left.pop(0))
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", asked
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def airflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Airflow:
    monkeypatch.setattr(demo_airflow, "POLL_INTERVAL_S", 0.01)
    return Airflow(tmp_path, Processes(tmp_path, {}), {})


def test_a_look_that_the_server_failed_is_repeated(airflow: Airflow) -> None:
    with answers(200, 500, 503, 200) as (airflow.url, asked):
        assert airflow.run_state("run") == ("running", [])
    assert len(asked) == 4


def test_a_look_at_what_is_not_there_is_not(airflow: Airflow) -> None:
    with answers(404) as (airflow.url, asked), pytest.raises(urllib.error.HTTPError, match="404"):
        airflow.run_state("run")
    assert len(asked) == 1


@pytest.mark.parametrize(("triggerer", "missing"), [(False, ""), (True, "the triggerer")])
def test_a_triggerer_is_waited_for_where_one_is_started(
    tmp_path: Path, triggerer: bool, missing: str
) -> None:
    airflow = Airflow(tmp_path, Processes(tmp_path, {}), {}, triggerer=triggerer)
    airflow._token = "known"
    with answers(200, 200, 200) as (airflow.url, _):
        assert airflow._missing() == missing
