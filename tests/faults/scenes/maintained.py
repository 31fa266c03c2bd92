"""Rounds of a table with a primary key, beside a Spark that compacts its lake and deletes rows.

Drivers are processes that are killed, and stopped before a commit until their data files have been
rewritten. What the lake has to hold follows from main's snapshots in their order: those of rounds
bring the changes up to their offsets; those of a DELETE take its keys away until these change.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.faults.scenes.keyed_world import IDS, REGIONS, KeyedScene, KeyedTable, compaction_of
from tests.faults.scenes.scene import COMPACT
from tests.support.harness.findings import finding
from tests.support.lake.lake_checker import OURS
from tests.support.programs.processes import ROOT, environment
from tests.support.tables.changelogs import DELETE, UPDATE_BEFORE
from tests.support.tables.server_files import read_offsets, read_partitions, table_folder

PATIENCE_S = 180.0
REFUSED = ("ValidationException", "CommitFailedException", "Cannot commit", "conflict")
"""In what Spark says if others have committed."""
KILLED_AT = (
    "round.plan.after",
    "round.copy.after",
    "round.prepare.after",
    "round.lake_commit.ready",
    "round.lake_commit.after",
    "round.fluss_commit.after",
    "round.unused_files.before",
    "round.report.before",
)
KILLED_AGAIN_AT = ("round.lookup_again.before", "round.lookup_again.after")

Key = tuple[str, int]
Rows = dict[Key, tuple[Any, Any]]
"""name and amount, by region and id"""


class LoopedDriver:
    """A process that runs rounds one after the other (``round_loop.py``)."""

    def __init__(self, scene: KeyedScene, failpoints: str) -> None:
        given = {
            "bootstrap": scene.address,
            "lake": scene.lake,
            "jars": scene.config().tiering.jars,
            "table": [scene.path.database, scene.path.table],
        }
        self._errors = (scene.home / "loop.err").open("ab")
        self._process = subprocess.Popen(
            [sys.executable, str(ROOT / "tests/faults/scenes/round_loop.py"), json.dumps(given)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environment({"SLUICE_FAILPOINTS": failpoints, "PYTHONPATH": str(ROOT)}),
        )
        assert self._answer(lambda: None) == {}

    def round(self, when_stopped: Callable[[], object]) -> dict[str, Any] | None:
        """What a round came to; None: it was killed."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()
        return self._answer(when_stopped)

    def close(self) -> None:
        self._process.kill()
        self._process.wait(PATIENCE_S)
        for pipe in (self._process.stdin, self._process.stdout, self._errors):
            assert pipe is not None
            pipe.close()

    def _answer(self, when_stopped: Callable[[], object]) -> dict[str, Any] | None:
        out = self._process.stdout
        assert out is not None
        deadline = time.monotonic() + PATIENCE_S
        while not select.select([out], [], [], 0.05)[0]:
            assert time.monotonic() < deadline, "no answer"
            found, status = os.waitpid(self._process.pid, os.WNOHANG | os.WUNTRACED)
            if found and os.WIFSTOPPED(status):
                when_stopped()
                self._process.send_signal(signal.SIGCONT)
            elif found:
                self._process.returncode = os.waitstatus_to_exitcode(status)
        line = out.readline()
        if line:
            answer: dict[str, Any] = json.loads(line)
            return answer
        assert self._process.wait(PATIENCE_S) == -signal.SIGKILL
        return None


@dataclass
class Maintenance:
    """Compactions and DELETEs by Spark in turns, on a thread of their own."""

    scene: KeyedScene
    random: Random
    landed: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    deleted: dict[int, list[Key]] = field(default_factory=dict)
    """The keys of each snapshot of a DELETE."""
    cycles: int = 0
    _known: set[int] = field(default_factory=set)
    _one_at_a_time: threading.Lock = field(default_factory=threading.Lock)
    _over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self._over.is_set():
            with self._one_at_a_time:
                self._once()
            self.cycles += 1

    def end(self) -> None:
        self._over.set()

    def compact(self) -> None:
        """Rewrites every file, while no round can commit."""
        with self._one_at_a_time:
            self.scene.sql(COMPACT)
        self.landed["while a driver stood"] += 1

    def wait_for_a_cycle(self) -> None:
        before, deadline = self.cycles, time.monotonic() + PATIENCE_S
        while self.cycles == before and not self._over.is_set():
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def _once(self) -> None:
        kind, region = ("rewrite", "DELETE")[self.cycles % 2], self.random.choice(REGIONS)
        ids = sorted(self.random.sample(range(IDS), 5))
        statement = compaction_of(region)
        if kind == "DELETE":
            numbers = ", ".join(map(str, ids))
            statement = f"DELETE FROM {{t}} WHERE region = '{region}' AND id IN ({numbers})"
        try:
            self.scene.sql(statement)
            self.landed[kind] += 1
        except Exception as error:
            if not any(word in str(error) for word in REFUSED):
                raise
            self.refused[kind] += 1
        new = [row.snapshot_id for row in self._foreign() if row.snapshot_id not in self._known]
        self._known.update(new)
        for snapshot_id in new:
            assert kind == "DELETE"
            self.deleted[snapshot_id] = [(region, number) for number in ids]

    def _foreign(self) -> list[Any]:
        """The snapshots of others that change rows."""
        return self.scene.sql(
            "SELECT snapshot_id FROM {t}.snapshots WHERE operation <> 'replace'"
            f" AND coalesce(summary['commit-user'], '') <> '{OURS}'"
        )


@dataclass
class Outcome:
    """What the rounds came to."""

    rounds: int = 0
    killed: int = 0
    looked_up_again: int = 0
    equality: int = 0
    """Rounds that fell back to equality deletes."""
    files_compacted: int = 0
    given_up: int = 0
    """Rounds that gave a compaction up, because others were there first."""
    deletes_as: Counter[str] = field(default_factory=Counter)

    def add(self, answer: dict[str, Any]) -> None:
        """A whole round."""
        self.rounds += 1
        self.looked_up_again += "looked up again" in str(answer["notes"])
        self.equality += "equality" in answer["deletes_as"]
        self.deletes_as[answer["deletes_as"]] += 1
        self.files_compacted += answer.get("files_compacted", 0)
        self.given_up += "the compaction was given up" in str(answer["notes"])


def play(
    table: KeyedTable, maintenance: Maintenance, rounds: int, random: Random, between_kills: int
) -> Outcome:
    """So many whole rounds, each after new changes; none may fail.

    :param between_kills: how many rounds a driver makes at most before it is killed.
    """
    outcome, driver = Outcome(), None
    try:
        while outcome.rounds < rounds:
            driver = driver or LoopedDriver(table.scene, _failpoints(random, between_kills))
            table.write(random.randrange(1, 3))
            if random.random() < 0.3:
                maintenance.wait_for_a_cycle()
            answer = driver.round(maintenance.compact)
            if answer is None:
                driver.close()
                driver = None
                outcome.killed += 1
                table.scene.report_lost()
                continue
            with finding():
                assert answer.get("outcome") in ("committed", "nothing_new"), answer
            outcome.add(answer)
    finally:
        if driver is not None:
            driver.close()
    return outcome


def _failpoints(random: Random, between_kills: int) -> str:
    """One kill, and one stop before a commit if the kill is elsewhere."""
    stop = f"round.lake_commit.ready=stop@{random.randint(1, between_kills)}"
    step = random.choice((*KILLED_AT, *KILLED_AGAIN_AT))
    if step in KILLED_AGAIN_AT:
        return f"{stop},{step}=kill"
    killed = f"{step}=kill@{random.randint(2, between_kills)}"
    return killed if step == "round.lake_commit.ready" else f"{stop},{killed}"


def replayed(scene: KeyedScene, deleted: dict[int, list[Key]]) -> Iterator[tuple[int, Rows]]:
    """What each snapshot of main has to hold, the oldest first; the same object each time."""
    place = (scene.server.data_dir, scene.path.database, scene.path.table)
    folder = table_folder(scene.server.data_dir / "log", *place[1:])
    logs = {bucket: log.to_pylist() for bucket, log in scene.logs(folder).items()}
    partitions = read_partitions(*place)
    rows: Rows = {}
    ends: dict[tuple[str, int], int] = {}
    for snapshot in main_snapshots(scene):
        summary = dict(snapshot.summary)
        if summary.get("commit-user") == OURS:
            reached = read_offsets(summary["sluice.offsets"], partitions)
            for bucket, end in reached.items():
                changes = [c for c in logs[bucket] if ends.get(bucket, 0) <= c["__offset"] < end]
                _apply(rows, changes)
                ends[bucket] = end
        elif snapshot.snapshot_id in deleted:
            for key in deleted[snapshot.snapshot_id]:
                rows.pop(key, None)
        else:
            assert snapshot.operation == "replace", snapshot
        yield snapshot.snapshot_id, rows


def _apply(rows: Rows, changes: list[dict[str, Any]]) -> None:
    for change in changes:
        key = (change["region"], change["id"])
        if change["__change"] == DELETE:
            rows.pop(key, None)  # a foreign DELETE may have been there before
        elif change["__change"] != UPDATE_BEFORE:
            rows[key] = (change["name"], change["amount"])


def main_snapshots(scene: KeyedScene) -> list[Any]:
    """Main's ancestry, the oldest first; nothing has expired."""
    query = "SELECT snapshot_id, parent_id, operation, summary FROM {t}.snapshots"
    known = {row.snapshot_id: row for row in scene.sql(query)}
    [main] = scene.sql("SELECT snapshot_id FROM {t}.refs WHERE name = 'main'")
    found, at = [], main.snapshot_id
    while at is not None:
        found.append(known[at])
        at = known[at].parent_id
    return found[::-1]


def rows_at(scene: KeyedScene, snapshot_id: int) -> Rows:
    """What Spark reads of a snapshot."""
    query = f"SELECT region, id, name, amount FROM {{t}} VERSION AS OF {snapshot_id}"
    read = scene.sql(query)
    found = {(row.region, row.id): (row.name, row.amount) for row in read}
    assert len(found) == len(read), f"a key is there twice in snapshot {snapshot_id}"
    return found
