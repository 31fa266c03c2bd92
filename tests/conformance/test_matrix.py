"""Every scenario against every server; the table is printed by `make matrix`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute
import pytest
import structlog
from click.testing import CliRunner

from sluice.client import Client, connect
from sluice.config import ClientConfig
from sluice.wire.apis import APIS
from tests.conformance import answer_fields, field_differences
from tests.conformance.__main__ import main
from tests.conformance.answer_fields import recorded_fields
from tests.conformance.difference import Difference
from tests.conformance.matrix import SERVERS, judge, play, record_fields
from tests.conformance.scenarios import SCENARIOS, Answer, ScenarioContext

FAST_ON_REAL = "lake_snapshots"
SLOW_ON_REAL = frozenset({"fields_of_logs", "fields_of_keyed_rows", "fields_of_kv_snapshots"})
"""Of the scenarios that compare fields; the others are long there."""

BETWEEN_SERVERS = frozenset({1018, 1019, 1022, 1031})
"""Calls of :mod:`sluice.wire.apis` that no client makes."""

PAGE = Path(__file__).resolve().parents[2] / "docs/apache-fluss.md"


@pytest.fixture
def clients(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """A client by the name of its server.

    Ours is started anew for every scenario: whatever its turn, its ids begin at 0. A real Fluss
    takes seconds to start, and its scenarios share one.
    """
    with ExitStack() as stack:

        def client(server: str) -> Client:
            if server == "real":
                address = request.getfixturevalue("real_fluss").bootstrap
            else:
                address = stack.enter_context(SERVERS[server].start(tmp_path / server))
            return stack.enter_context(connect(ClientConfig(address, tiering_backoff_ms=0)))

        yield client


def cases() -> Iterator[Any]:
    for server in SERVERS:
        for scenario in SCENARIOS:
            marks = [pytest.mark.real_fluss] if server == "real" else []
            if server == "real" and scenario != FAST_ON_REAL:
                is_long = scenario.startswith("fields_of_") and scenario not in SLOW_ON_REAL
                marks.append(pytest.mark.long if is_long else pytest.mark.slow)
            yield pytest.param(server, scenario, id=f"{server}-{scenario}", marks=marks)


@pytest.mark.parametrize(("server", "scenario"), list(cases()))
def test_answers(clients: Any, server: str, scenario: str) -> None:
    cell = play(clients(server), scenario, SERVERS[server])
    assert not cell.wrong, "\n".join(cell.wrong)
    assert cell.same or cell.known
    [row] = [line for line in PAGE.read_text().splitlines() if line.startswith(f"| {scenario} |")]
    printed = dict(zip(SERVERS, row.strip("| ").split(" | ")[1:], strict=True))
    assert printed[server] == str(cell), f"{PAGE.name}: the table of `make matrix` is out of date"


def test_every_difference_names_a_scenario_and_a_reason() -> None:
    for server in SERVERS.values():
        assert {scenario for scenario, _ in server.differences} <= set(SCENARIOS)
        assert all(known.reason for known in server.differences.values())


def test_a_difference_is_strict() -> None:
    known = {("s", "q"): Difference("other", "why")}
    server = replace(SERVERS["grpc"], differences=known)

    def wrong(*answers: Answer) -> tuple[str, ...]:
        return judge("s", answers, server).wrong

    assert not wrong(Answer("q", "expected", "other"), Answer("r", 1, 1))
    assert wrong(Answer("q", "expected", "expected")) == ("q: listed as a difference that is gone",)
    assert wrong(Answer("q", "expected", "third")) == ("q: 'third' instead of 'other'",)
    assert wrong(Answer("r", 1, 1)) == ("q: listed as a difference, and never asked",)
    # The scenario expects by now what the list calls a difference.
    assert wrong(Answer("q", "other", "other")) == ("q: listed as a difference that is gone",)
    assert wrong(Answer("q", 1, "other"), Answer("r", 1, 2)) == ("r: 2 instead of 1",)


def test_the_fields_of_every_call_of_clients_are_compared() -> None:
    recorded = recorded_fields()
    assert set(recorded) == {name for name in SCENARIOS if name.startswith("fields_of_")}
    served = recorded["fields_of_servers"]
    offered = {
        int(line.partition(":")[0])
        for role in ("coordinator", "tablet")
        for line in served[f"calls of the {role}"]
    }
    asked = {
        question.partition(",")[0] for questions in recorded.values() for question in questions
    }
    of_clients = {api.name for api in APIS if api.key in offered - BETWEEN_SERVERS}
    assert of_clients
    assert of_clients <= asked


def test_a_recorded_answer_that_nobody_asks_for_is_wrong(
    clients: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(context: ScenarioContext) -> None:
        context.compare_fields("DropTable, of a table", ["nothing", "more: int32"])
        context.compare_fields("DropTable, of what is not recorded", ["nothing"])

    monkeypatch.setitem(SCENARIOS, "fields_of_tables", silent)
    wrong = play(clients("grpc"), "fields_of_tables", SERVERS["grpc"]).wrong
    assert "DropTable, of a table: ('+ more: int32',) instead of ()" in wrong
    assert "DropTable, of what is not recorded: ('+ nothing',) instead of ()" in wrong
    assert "DropTable, once more: 'never asked' instead of ()" in wrong


@pytest.fixture
def recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Another file for what is recorded, which has nothing yet."""
    path = tmp_path / "recorded.json"
    path.write_text("{}")
    monkeypatch.setattr(answer_fields, "RECORDED", path)
    recorded_fields.cache_clear()
    yield path
    recorded_fields.cache_clear()


def test_what_is_recorded_of_a_server_is_what_it_answers(recording: Path, clients: Any) -> None:
    server = replace(SERVERS["grpc"], differences={})
    names = ["fields_of_servers", "fields_of_logs"]
    record_fields(server, names, lambda _: None)
    assert set(json.loads(recording.read_text())) == set(names)
    client = clients("grpc")
    for name in names:
        cell = play(client, name, server)
        assert not cell.wrong
        assert cell.same


def test_the_command_prints_answers_and_reasons() -> None:
    command = ["--servers", "grpc", "--scenarios", "fields_of_servers,databases"]
    logging = structlog.get_config()
    try:
        printed = CliRunner().invoke(main, command)
    finally:
        structlog.configure(**logging)
    assert printed.exit_code == 0, printed.output
    assert "6 same, 4 known" in printed.output
    assert " ".join(field_differences.OWN.split()[:3]) in " ".join(printed.output.split())


@pytest.mark.parametrize(
    ("fails", "says"),
    [
        (lambda: {}["x"], "KeyError: 'x'"),
        (lambda: [][0], "IndexError: list index out of range"),
        (lambda: pa.table({"a": [1]}).cast(pa.schema([("b", pa.int64())])), "ValueError: "),
        (lambda: pa.array(["x"]).cast(pa.decimal128(3)), "ArrowInvalid: "),
        (lambda: pa.compute.add(pa.array(["a"]), 1), "ArrowNotImplementedError: "),
        (lambda: None.nothing, "AttributeError: "),  # type: ignore[attr-defined]
    ],
)
def test_a_scenario_that_breaks_is_wrong_and_the_others_are_played(
    clients: Any, monkeypatch: pytest.MonkeyPatch, fails: Callable[[], object], says: str
) -> None:
    def broken(context: ScenarioContext) -> None:
        context.expect("first", 1, 1)
        fails()

    monkeypatch.setitem(SCENARIOS, "broken", broken)
    cell = play(clients("grpc"), "broken", SERVERS["grpc"])
    assert str(cell) == "1 WRONG"
    assert cell.wrong[0].startswith(says)
