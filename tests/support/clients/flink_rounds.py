"""Rounds of a table with a primary key, in turns by Fluss's tiering job on Flink and by us."""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bench.flink.flink_job import FlinkJob, default_folder, flink_jars
from sluice.client import Client
from sluice.errors import TableNotDue
from sluice.model import Claim, Reason, TableBucket
from sluice.rounds.records.result import RoundResult
from tests.support.programs.processes import ROOT, wait_for
from tests.support.tables.keyed_stock import Stock

KEYS = range(60)
FLINK_ROUND_S = 180
MAVEN_S = 600


def fetched_flink_jars() -> list[Path]:
    """The jars of the job. Maven fetches them (145 MB) if they are missing."""
    jars, missing = flink_jars()
    if jars:
        return jars
    if shutil.which("mvn") is None:
        pytest.fail(f"{missing}. Maven comes with `apt-get install maven`; then repeat this")
    command = ["mvn", "-q", "-f", "bench/flink.xml", "package", f"-Dinto={default_folder()}"]
    subprocess.run(command, cwd=ROOT, check=True, timeout=MAVEN_S)
    jars, missing = flink_jars()
    assert jars, missing
    return jars


@dataclass
class Turns:
    """One table, who tiers it, and the changes in between.

    Its freshness is longer than the test: a round begins only where the test requests one.
    """

    stock: Stock
    days: Sequence[str]
    tier: Callable[[], RoundResult]
    """A round of ours, at once."""
    rng: random.Random
    epoch: int = 0
    """The tiering epoch of the last round."""
    _last_value: int = field(default=1000)

    @property
    def client(self) -> Client:
        return self.stock.client

    def fill(self) -> None:
        for day in self.days:
            self.stock.put({key: key for key in KEYS}, day)

    def change(self) -> None:
        """Each key changes at most once: new rows, changed rows, deleted rows."""
        for day in self.days:
            held, gone = self._keys(day)
            changed = self.rng.sample(held, 9)
            back = self.rng.sample(gone, min(len(gone), 3))
            self.stock.put(dict.fromkeys([*changed[:6], *back], self._value()), day)
            self.stock.delete(*changed[6:], day=day)

    def change_twice(self) -> None:
        """Keys that change once as in :meth:`change`, and others that change twice.

        Some of these were deleted in earlier rounds.
        """
        self.change()
        for day in self.days:
            held, gone = self._keys(day)
            changed = self.rng.sample(held, 6)
            returning, passing = self.rng.sample(gone, 2)
            for _ in range(2):
                self.stock.put(dict.fromkeys([*changed[:4], returning], self._value()), day)
            self.stock.delete(*changed[4:], day=day)
            self.stock.put({changed[4]: self._value(), passing: self._value()}, day)
            self.stock.delete(passing, day=day)

    def ours(self) -> RoundResult:
        result = self.tier()
        self.epoch = result.tiering_epoch
        assert result.outcome == "committed"
        return result

    def request(self) -> None:
        """Lets the job have the table. It has to be Scheduled."""
        self.client.statuses.request_round(self.stock.path)
        self.epoch += 1

    def wait_for_flink(self, job: FlinkJob) -> None:
        """Until the job has registered all that was written, and has reported its round."""
        wait_for(f"Flink's round of {self.stock.path}", lambda: self._is_done(job), FLINK_ROUND_S)

    def end_claim(self) -> None:
        """Ends the claim of a killed job. Fluss does that itself 120 s after its last heartbeat."""
        try:
            self.client.statuses.request_round(self.stock.path)
        except TableNotDue as held:
            claim = self._claim(held.details["tiering_epoch"])
            self.client.tiering.release(claim, Reason.from_text("its job was killed"))

    def assert_registered(self) -> None:
        """Fluss names the newest snapshot of the lake, with the ends of all logs."""
        registered = self.client.admin.lake_snapshot(self.stock.path)
        assert registered is not None
        assert registered.offsets == self._ends()
        assert registered.snapshot_id == self._newest().snapshot_id

    def summary(self) -> dict[str, str]:
        """What the newest snapshot of the lake says of itself."""
        return dict(self._newest().summary)

    def _newest(self) -> Any:
        query = "SELECT s.snapshot_id, s.summary FROM {lake}.snapshots s JOIN {lake}.refs r"
        [row] = self.stock.rows(f"{query} ON s.snapshot_id = r.snapshot_id WHERE r.name = 'main'")
        return row

    def _keys(self, day: str) -> tuple[list[int], list[int]]:
        held = sorted(key for of, key in self.stock.held if of == day)
        return held, sorted(set(KEYS).difference(held))

    def _value(self) -> int:
        self._last_value += 1
        return self._last_value

    def _claim(self, epoch: int) -> Claim:
        info = self.client.admin.table_info(self.stock.path)
        return Claim(info.table_id, self.stock.path, epoch, 0)

    def _ends(self) -> dict[TableBucket, int]:
        info = self.client.admin.table_info(self.stock.path)
        return self.client.admin.table_offsets(info)

    def _is_done(self, job: FlinkJob) -> bool:
        assert not job.has_ended(), job.said()[-3000:]
        registered = self.client.admin.lake_snapshot(self.stock.path)
        if registered is None or registered.offsets != self._ends():
            return False
        claim = self._claim(self.epoch)
        return self.client.tiering.beat([claim])[claim.table_id] is not None
