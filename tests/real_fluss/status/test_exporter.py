"""`sluice exporter` for a real Fluss, which has no metrics of tiering itself."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from sluice.model import Reason
from tests.real_fluss.place import DUE_S, Place
from tests.support.network.scrapes import Samples, scrape
from tests.support.programs.processes import SLUICE, environment

pytestmark = [pytest.mark.real_fluss, pytest.mark.spark, pytest.mark.slow]


@dataclass
class Exporter:
    """A running exporter; its page is read until it shows what a test waits for."""

    url: str

    def soon(self, what: Callable[[Samples], bool]) -> Samples:
        deadline = time.monotonic() + DUE_S
        while not what(found := scrape(self.url)):
            assert time.monotonic() < deadline, found
        return found


@contextmanager
def exporter(place: Place) -> Iterator[Exporter]:
    """A process that ends cleanly at a signal."""
    command = [SLUICE, "exporter", "--bootstrap", place.fluss.bootstrap, "--listen", "127.0.0.1:0"]
    with subprocess.Popen(
        [*command, "--cache", "0s", "--timeout", "60s"],
        env=environment(place.environment),
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        ready = process.stdout.readline().split()
        assert ready[:2] == ["sluice:", "ready,"], ready
        try:
            yield Exporter(ready[-1])
        finally:
            process.send_signal(signal.SIGTERM)
            rest = process.stdout.read()
    assert (process.returncode, rest) == (0, "sluice: stopped\n")


def test_pauses_and_rounds_move_the_metrics(place: Place) -> None:
    good, bad = place.create("good"), place.create("bad")
    with exporter(place) as served:
        table, other = (place.database, "good"), (place.database, "bad")
        first = served.soon(lambda found: found["sluice_up",] == 1)
        assert first["sluice_table_state", place.database, "Unknown", "good"] == 1
        assert first["sluice_table_lag_rows", *table] == 3
        assert first["sluice_rounds_total", "failed"] == 0
        assert not [key for key in first if key[0].startswith("sluice_lease")]

        assert place.tier(good).rows == 3
        reason = Reason.from_text("LakeNotWritable: s3://lake")
        place.client.tiering.failed(place.claim(bad), reason)
        assert place.sluice("pause", str(bad)).exit_code == 0
        found = served.soon(lambda found: found["sluice_table_paused", *other] == 1)
        assert found["sluice_table_lag_rows", *table] == 0
        assert found["sluice_table_last_round_seconds", *table] > 0
        assert time.time() - found["sluice_table_last_tiered_timestamp_seconds", *table] < DUE_S
        assert found["sluice_table_failures", *other] == 1
        assert found["sluice_rounds_total", "finished"] >= 1
        assert found["sluice_rounds_total", "failed"] == 1
        assert found["sluice_round_seconds_sum", "finished"] > 0
        assert found["sluice_read_seconds",] < 30
