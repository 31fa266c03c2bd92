"""Runs scenarios against servers, compares every answer and collects the results."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from sluice.client import Client, connect
from sluice.config import ClientConfig, DatalakeConfig, ServerConfig
from sluice.server.cluster import EmbeddedCluster
from tests.conformance.answer_fields import write_recorded
from tests.conformance.difference import Difference
from tests.conformance.known_differences import EMBEDDED
from tests.conformance.scenario import Answer, played, run
from tests.support.fluss.real_fluss import RealFluss

Differences = Mapping[tuple[str, str], Difference]


@dataclass(frozen=True, slots=True)
class Server:
    """A kind of server: how to start it in a folder, and its deliberate differences."""

    name: str
    start: Callable[[Path], AbstractContextManager[str]]
    differences: Differences


@contextmanager
def _embedded(folder: Path, listen: str) -> Iterator[str]:
    config = ServerConfig(
        data_dir=str(folder),
        listen=listen,
        tiering_check_interval_ms=100,
        kv_snapshot_interval_ms=100,
        tiering_backoff_ms=0,
    )
    lake = DatalakeConfig(iceberg={"type": "hadoop", "warehouse": str(folder / "lake")})
    with EmbeddedCluster(config, datalake=lake) as cluster:
        yield cluster.address


@contextmanager
def _real(folder: Path) -> Iterator[str]:
    with RealFluss(folder, conf={"kv.snapshot.interval": "1s"}) as fluss:
        yield fluss.bootstrap


SERVERS: dict[str, Server] = {
    server.name: server
    for server in (
        Server("grpc", lambda folder: _embedded(folder, "grpc://127.0.0.1:0"), EMBEDDED),
        Server("native", lambda folder: _embedded(folder, "fluss://127.0.0.1:0"), EMBEDDED),
        Server("real", _real, {}),
    )
}
"""The embedded server over both protocols, and Fluss 0.9.1, whose answers are the expected ones."""


@dataclass(frozen=True, slots=True)
class Cell:
    """The result of one scenario on one server."""

    scenario: str
    server: str
    same: int
    known: tuple[str, ...]
    """Questions whose answer is a listed difference."""
    wrong: tuple[str, ...]
    """Answers that are neither expected nor a listed difference, one line each."""

    def __str__(self) -> str:
        if self.wrong:
            return f"{len(self.wrong)} WRONG"
        return f"{self.same} same" + (f", {len(self.known)} known" if self.known else "")


def judge(scenario: str, answers: Sequence[Answer], server: Server) -> Cell:
    """Compares every answer with the expected one or with the listed difference."""
    listed = {q: d for (name, q), d in server.differences.items() if name == scenario}
    wrong = [f"{question}: listed as a difference, and never asked" for question in listed]
    same, known = 0, []
    for answer in answers:
        difference = listed.get(answer.question)
        if difference is not None:
            wrong.remove(f"{answer.question}: listed as a difference, and never asked")
            if answer.agrees:
                wrong.append(f"{answer.question}: listed as a difference that is gone")
            elif answer.answered == difference.answered:
                known.append(answer.question)
            else:
                wrong.append(_line(answer, difference.answered))
        elif answer.agrees:
            same += 1
        else:
            wrong.append(_line(answer, answer.expected))
    return Cell(scenario, server.name, same, tuple(known), tuple(wrong))


def play(client: Client, scenario: str, server: Server) -> Cell:
    """Runs one scenario; an exception counts as a wrong answer."""
    try:
        answers = run(client, scenario)
    except Exception as error:  # the other scenarios run all the same
        return Cell(scenario, server.name, 0, (), (f"{type(error).__name__}: {error}",))
    return judge(scenario, answers, server)


def matrix(
    servers: Sequence[Server], scenarios: Sequence[str], say: Callable[[str], None]
) -> list[Cell]:
    """Runs every scenario on every server, one server after the other."""
    cells = []
    for server in servers:
        say(f"{server.name}: starting")
        with _client_of(server) as client:
            for scenario in scenarios:
                say(f"{server.name}: {scenario}")
                cells.append(play(client, scenario, server))
    return cells


def record_fields(server: Server, names: Sequence[str], say: Callable[[str], None]) -> None:
    """Runs scenarios that compare fields, and stores the fields of their answers as expected."""
    with _client_of(server) as client:
        for name in names:
            say(f"recording: {name}")
            write_recorded(name, played(client, name).fields)


@contextmanager
def _client_of(server: Server) -> Iterator[Client]:
    with (
        tempfile.TemporaryDirectory(prefix="sluice-matrix-") as folder,
        server.start(Path(folder)) as address,
        connect(ClientConfig(address, tiering_backoff_ms=0)) as client,
    ):
        yield client


def _line(answer: Answer, wanted: object) -> str:
    return f"{answer.question}: {answer.answered!r} instead of {wanted!r}"
