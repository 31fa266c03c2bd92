"""A table with a primary key against a dictionary: puts, partial updates, faults, restarts."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from sluice import failpoints
from sluice.errors import UnknownServerError
from tests.unit.server.kv_support import KvCaller, Row, replayed
from tests.unit.server.support import Node

KEYS = st.integers(0, 6)
TEXTS = st.one_of(st.none(), st.text("abcä", max_size=3))
NUMBERS = st.one_of(st.none(), st.integers(-3, 3))
CHANGES = st.lists(st.tuples(KEYS, TEXTS, NUMBERS, st.booleans()), max_size=8)
STEPS = ("server.put_kv.before_log", "server.put_kv.after_log", "server.put_kv.after_store")


class KvMachine(RuleBasedStateMachine):
    """The model is ``rows``; ``log`` counts the changes that it has made."""

    image = "FULL"

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="kv-"))
        self.node = Node(self.folder / "data", kv_snapshot_interval_ms=0, segment_bytes=2_000)
        properties = {"table.changelog.image": self.image}
        self.kv = KvCaller(self.node.caller, properties=properties)
        self.writer = self.node.caller.init_writer()
        self.sequence = 0
        self.rows: dict[int, Row] = {}
        self.last: tuple[bytes, tuple[int, ...], int] | None = None

    def teardown(self) -> None:
        if hasattr(self, "node"):
            self.node.stop()
            shutil.rmtree(self.folder)

    # -- rules

    @rule(changes=CHANGES, columns=st.sampled_from([(), (0, 1), (0, 2), (0,)]))
    def put(self, changes: list[Any], columns: tuple[int, ...]) -> None:
        records = self.encoded(changes)
        end = self.kv.send(records, targets=columns)
        self.done(changes, columns, records, end)

    @rule(
        changes=CHANGES,
        columns=st.sampled_from([(), (0, 1)]),
        step=st.sampled_from(STEPS),
        restart=st.booleans(),
    )
    def put_that_fails(
        self, changes: list[Any], columns: tuple[int, ...], step: str, restart: bool
    ) -> None:
        """Its outcome is unknown; sent again it is stored once."""
        records = self.encoded(changes)
        failpoints._armed[step] = ("raise", failpoints._passages.get(step, 0) + 1)
        try:
            self.kv.send(records, targets=columns)
        except UnknownServerError:
            pass
        else:
            raise AssertionError("the failpoint was not passed")
        finally:
            del failpoints._armed[step]
        if restart:
            self.restart()
        self.done(changes, columns, records, self.kv.send(records, targets=columns))

    @precondition(lambda self: self.last is not None)
    @rule()
    def send_again(self) -> None:
        assert self.last is not None
        records, columns, end = self.last
        assert self.kv.send(records, targets=columns) == end

    @rule()
    def snapshot(self) -> None:
        self.node.cluster.take_kv_snapshots(self.kv.path)

    @rule()
    def restart(self) -> None:
        self.node.restart()
        self.kv = KvCaller(self.node.caller, create=False)

    @rule()
    def lose_the_store(self) -> None:
        self.node.stop()
        shutil.rmtree(self.folder / "data" / "kv")
        self.node.restart()
        self.kv = KvCaller(self.node.caller, create=False)

    # -- what must hold

    @invariant()
    def the_table_is_the_model(self) -> None:
        if hasattr(self, "rows"):
            assert self.kv.table() == self.rows

    @invariant()
    def so_is_its_changelog(self) -> None:
        if not hasattr(self, "rows"):
            return
        changes = self.kv.changelog()
        if self.image == "WAL":  # it has no rows before, and may delete nothing that it inserted
            changes = [change for change in changes if change[0] != "-U"]
        assert replayed(changes) == self.rows

    # -- parts

    def encoded(self, changes: list[Any]) -> bytes:
        rows = [change[:3] for change in changes]
        deletes = [change[3] for change in changes]
        return self.kv.records(rows, deletes, writer_id=self.writer, sequence=self.sequence)

    def done(self, changes: list[Any], columns: tuple[int, ...], records: bytes, end: int) -> None:
        for key, text, number, is_delete in changes:
            self.change(key, (key, text, number), is_delete, columns or (0, 1, 2))
        self.sequence += 1
        self.last = (records, columns, end)
        assert self.kv.end() == end

    def change(self, key: int, new: Row, is_delete: bool, columns: tuple[int, ...]) -> None:
        old = self.rows.get(key)
        if not is_delete:
            base = old or (key, None, None)
            self.rows[key] = tuple(new[i] if i in columns else base[i] for i in range(3))
        elif old is not None:
            left = tuple(None if i in columns and i else old[i] for i in range(3))
            others = [old[i] for i in range(3) if i not in columns]
            if any(value is not None for value in others):
                self.rows[key] = left
            else:
                del self.rows[key]


class WalMachine(KvMachine):
    image = "WAL"


def run(machine: type[KvMachine], examples: int, steps: int) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_a_table_is_a_dictionary() -> None:
    run(KvMachine, 4, 15)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("machine", [KvMachine, WalMachine])
def test_a_table_is_a_dictionary_for_long(machine: type[KvMachine]) -> None:
    run(machine, 40, 40)
