"""What every scenario has: a stage to ask from, and the answers that it wrote down."""

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
from sluice.testing.lost_tables import is_handed_out, is_led

CLAIM_WAIT_S = 120.0
SETTLE_WAIT_S = 120.0
"""How long a change may take that a cluster makes after it has answered."""

NOTICE_WAIT_S = 10.0
"""After so long without leaders a new table counts as missed."""

CREATE_TRIES = 4
LAKE = {"table.datalake.enabled": "true", "table.datalake.freshness": "1s"}
NOT_THERE = 987_654_321
"""An id of nothing."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One question of a scenario: what was expected and what was answered."""

    question: str
    expected: object
    answered: object

    @property
    def agrees(self) -> bool:
        return self.expected == self.answered


@dataclass
class Stage:
    """What a scenario plays on: a client, a database of its own, and the answers so far."""

    client: Client
    database: str = field(default_factory=lambda: f"conformance_{uuid.uuid4().hex[:12]}")
    answers: list[Answer] = field(default_factory=list)

    def see(self, question: str, answered: object, expected: object) -> None:
        """Writes an answer down."""
        assert question not in {a.question for a in self.answers}, question
        self.answers.append(Answer(question, expected, answered))

    def ask(self, question: str, call: Callable[[], object], expected: object) -> None:
        """Asks and writes down the answer; an error counts by the name of its class."""
        try:
            answered = call()
        except SluiceError as error:
            answered = type(error).__name__
        self.see(question, answered, expected)

    def ask_until(self, question: str, call: Callable[[], object], expected: object) -> None:
        """Asks until the answer is the expected one: for what a cluster does after its answer."""
        deadline = time.monotonic() + SETTLE_WAIT_S
        while True:
            self.ask(question, call, expected)
            if self.answers[-1].agrees or time.monotonic() > deadline:
                return
            self.answers.pop()
            time.sleep(0.1)

    def path(self, table: str) -> TablePath:
        return TablePath(self.database, table)

    def create(
        self, table: str, columns: dict[str, DataType], *, key: Sequence[str] = (), **more: Any
    ) -> TablePath:
        """Creates a table; ``more`` as in TableDescriptor.

        The coordinator of Fluss 0.9.1 may miss it (:mod:`sluice.testing.lost_tables`): then it is
        created anew, a lake table under another name, because the lake still has the first one.
        """
        fields = tuple(Column(name, kind, i) for i, (name, kind) in enumerate(columns.items()))
        schema = Schema(fields, tuple(key), len(fields) - 1)
        descriptor = TableDescriptor(schema, **{"bucket_count": 1, **more})
        path = self.path(table)
        for number in range(1, CREATE_TRIES + 1):
            self.client.admin.create_table(path, descriptor)
            if descriptor.partition_keys or is_led(self.client, path, NOTICE_WAIT_S):
                return path
            self.client.admin.drop_table(path)
            if descriptor.properties.get("table.datalake.enabled") == "true":
                path = self.path(f"{table}_{number}")
        raise TimeoutError(f"{self.path(table)} was not noticed, {CREATE_TRIES} times created")

    def create_partitioned(self, table: str, columns: dict[str, DataType], key: str) -> TablePath:
        """Creates a lake table partitioned by a column, under the first name that is noticed.

        The coordinator of Fluss 0.9.1 may miss it; see :mod:`sluice.testing.lost_tables`.
        """
        for number in range(CREATE_TRIES):
            name = f"{table}_{number}"
            path = self.create(
                name, columns, partition_keys=(key,), bucket_count=2, properties=LAKE
            )
            if is_handed_out(self.client, path, NOTICE_WAIT_S):
                return path
        raise TimeoutError(f"{path} and {CREATE_TRIES - 1} others were not noticed")

    def append(self, path: TablePath, rows: pa.Table, **how: Any) -> None:
        with self.client.log_writer(path, **how) as writer:
            writer.write(rows)

    def claim(self, path: TablePath) -> Claim:
        """Waits until the coordinator hands the table out: its timers have a resolution of 1 s."""
        deadline = time.monotonic() + CLAIM_WAIT_S
        while (claim := self.client.tiering.claim([path])) is None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{path} was not handed out in {CLAIM_WAIT_S:.0f} s")
            time.sleep(0.1)
        return claim

    def beat(self, claim: Claim) -> str:
        """What the coordinator has against a claim."""
        error = self.client.tiering.heartbeat([claim])[claim.table_id]
        return "accepted" if error is None else type(error).__name__


Scenario = Callable[[Stage], None]
SCENARIOS: dict[str, Scenario] = {}


def scenario(play: Scenario) -> Scenario:
    SCENARIOS[play.__name__] = play
    return play


def run(client: Client, name: str) -> list[Answer]:
    """Plays a scenario in a database of its own, which is dropped afterwards."""
    stage = Stage(client)
    client.admin.create_database(stage.database)
    try:
        SCENARIOS[name](stage)
    finally:
        client.admin.drop_database(stage.database, cascade=True, ignore_if_not_exists=True)
    return stage.answers


def done(call: Callable[[], object]) -> Callable[[], str]:
    """A call whose answer says nothing but that it was done."""

    def asked() -> str:
        call()
        return "done"

    return asked
