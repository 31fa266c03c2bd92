"""The context of a scenario: a client, a database and the recorded answers."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from sluice.client import Client
from sluice.errors import SluiceError
from sluice.model import (
    Claim,
    Column,
    DataType,
    Schema,
    TableDescriptor,
    TablePath,
)
from tests.conformance.answer_fields import differences, recorded_fields
from tests.support.fluss.table_creation import has_leaders, is_assigned

CLAIM_WAIT_S = 120.0
SETTLE_WAIT_S = 120.0
"""How long a change may take that a cluster makes after its response."""

NOTICE_WAIT_S = 10.0
"""A new table without leaders after this long counts as missed by the coordinator."""

CREATE_TRIES = 4
LAKE = {"table.datalake.enabled": "true", "table.datalake.freshness": "1s"}
NOT_THERE = 987_654_321
"""An id that nothing has."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One question of a scenario, with the expected and the actual answer."""

    question: str
    expected: object
    answered: object

    @property
    def agrees(self) -> bool:
        return self.expected == self.answered


@dataclass
class ScenarioContext:
    """What a scenario plays on: a client, a database of its own, and the answers so far."""

    client: Client
    database: str = field(default_factory=lambda: f"conformance_{uuid.uuid4().hex[:12]}")
    answers: list[Answer] = field(default_factory=list)
    scenario: str = ""
    fields: dict[str, list[str]] = field(default_factory=dict)
    """Question -> the fields of its answer, of a scenario that compares fields."""

    def expect(self, question: str, answered: object, expected: object) -> None:
        """Records an answer."""
        assert question not in {a.question for a in self.answers}, question
        self.answers.append(Answer(question, expected, answered))

    def expect_call(self, question: str, call: Callable[[], object], expected: object) -> None:
        """Makes a call and records its answer; an error is recorded by its class name."""
        try:
            answered = call()
        except SluiceError as error:
            answered = type(error).__name__
        self.expect(question, answered, expected)

    def expect_eventually(
        self, question: str, call: Callable[[], object], expected: object
    ) -> None:
        """Repeats a call until the answer is as expected, for changes after a response."""
        deadline = time.monotonic() + SETTLE_WAIT_S
        while True:
            self.expect_call(question, call, expected)
            if self.answers[-1].agrees or time.monotonic() > deadline:
                return
            self.answers.pop()
            time.sleep(0.1)

    def compare_fields(self, question: str, answered: Sequence[str]) -> None:
        """Records what the fields of an answer lack, and have in addition to the recorded ones."""
        self.fields[question] = list(answered)
        recorded = recorded_fields().get(self.scenario, {}).get(question, ())
        self.expect(question, differences(recorded, answered), ())

    def expect_all_recorded(self) -> None:
        """Every recorded question of the scenario must have been asked."""
        for question in recorded_fields().get(self.scenario, {}):
            if question not in self.fields:
                self.expect(question, "never asked", ())

    def path(self, table: str) -> TablePath:
        return TablePath(self.database, table)

    def create(
        self, table: str, columns: dict[str, DataType], *, key: Sequence[str] = (), **more: Any
    ) -> TablePath:
        """Creates a table; ``more`` as in TableDescriptor.

        The coordinator of Fluss 0.9.1 may miss it (:mod:`tests.support.fluss.table_creation`). The
        table is then created again, a lake table under another name, as the lake keeps the first
        one.
        """
        fields = tuple(Column(name, kind, i) for i, (name, kind) in enumerate(columns.items()))
        schema = Schema(fields, tuple(key), len(fields) - 1)
        descriptor = TableDescriptor(schema, **{"bucket_count": 1, **more})
        path = self.path(table)
        for number in range(1, CREATE_TRIES + 1):
            self.client.admin.create_table(path, descriptor)
            if descriptor.partition_keys or has_leaders(self.client, path, NOTICE_WAIT_S):
                return path
            self.client.admin.drop_table(path)
            if descriptor.properties.get("table.datalake.enabled") == "true":
                path = self.path(f"{table}_{number}")
        raise TimeoutError(f"{self.path(table)} was not noticed, {CREATE_TRIES} times created")

    def create_partitioned(
        self, table: str, columns: dict[str, DataType], partition_key: str, **more: Any
    ) -> TablePath:
        """Creates a lake table partitioned by a column, under the first name that is noticed.

        The coordinator of Fluss 0.9.1 may miss it; see :mod:`tests.support.fluss.table_creation`.
        """
        for number in range(CREATE_TRIES):
            name = f"{table}_{number}"
            path = self.create(
                name,
                columns,
                partition_keys=(partition_key,),
                bucket_count=2,
                properties=LAKE,
                **more,
            )
            if is_assigned(self.client, path, NOTICE_WAIT_S):
                return path
        raise TimeoutError(f"{path} and {CREATE_TRIES - 1} others were not noticed")

    def append(self, path: TablePath, rows: pa.Table, **how: Any) -> None:
        with self.client.log_writer(path, **how) as writer:
            writer.write(rows)

    def claim(self, path: TablePath) -> Claim:
        """Waits until the coordinator assigns the table; its timers have a resolution of 1 s."""
        deadline = time.monotonic() + CLAIM_WAIT_S
        while (claim := self.client.tiering.claim([path])) is None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{path} was not assigned within {CLAIM_WAIT_S:.0f} s")
            time.sleep(0.1)
        return claim

    def beat(self, claim: Claim) -> str:
        """Sends a heartbeat: "accepted", or the class name of the coordinator's error."""
        error = self.client.tiering.heartbeat([claim])[claim.table_id]
        return "accepted" if error is None else type(error).__name__


Scenario = Callable[[ScenarioContext], None]
SCENARIOS: dict[str, Scenario] = {}


def scenario(play: Scenario) -> Scenario:
    SCENARIOS[play.__name__] = play
    return play


def run(client: Client, name: str) -> list[Answer]:
    """Runs a scenario in its own database, which is dropped afterwards."""
    context = played(client, name)
    context.expect_all_recorded()
    return context.answers


def played(client: Client, name: str) -> ScenarioContext:
    """As ``run``, but returns the context with all that was answered."""
    context = ScenarioContext(client, scenario=name)
    client.admin.create_database(context.database)
    try:
        SCENARIOS[name](context)
    finally:
        client.admin.drop_database(context.database, cascade=True, ignore_if_not_exists=True)
    return context


def done(call: Callable[[], object]) -> Callable[[], str]:
    """Wraps a call whose response is empty, so that it answers "done"."""

    def asked() -> str:
        call()
        return "done"

    return asked
