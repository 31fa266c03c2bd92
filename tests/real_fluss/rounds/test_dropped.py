"""Partitions and the table are dropped on a real Fluss while a round runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import pyarrow as pa
import pytest

from sluice.client.tiering.tiering import TieringClient
from sluice.model import TablePath
from tests.real_fluss.conftest import RealSite

pytestmark = [pytest.mark.real_fluss, pytest.mark.spark]
GONE_S = 30
DAYS = ("while_planned", "before_copy", "before_commit", "stays")


def rows_of(days: Sequence[str]) -> pa.Table:
    """Ten rows of each day."""
    ids = pa.array(range(10 * len(days)), pa.int64())
    return pa.table({"id": ids, "day": list(days) * 10})


def test_dropped_while_a_round_runs(site: RealSite, monkeypatch: pytest.MonkeyPatch) -> None:
    path = site.create("days", rows_of(DAYS), partition_keys=("day",), bucket_count=1)
    site.append(path, rows_of(DAYS), dynamic_partitions=True)
    assert site.tier(path).rows == 40
    site.append(path, rows_of(DAYS), dynamic_partitions=True)
    ids = {p.values[0]: p.partition_id for p in site.client.admin.partitions(path)}

    def drop(day: str) -> None:
        site.client.admin.drop_partition(path, {"day": day}, ignore_if_not_exists=True)

    steps: dict[str, Callable[[], None]] = {
        "round.copy.before": lambda: drop("before_copy"),
        "round.prepare.before": lambda: drop("before_commit"),
    }
    monkeypatch.setattr(
        "sluice.rounds.values.phases.failpoint", lambda name: steps.get(name, lambda: None)()
    )
    latest = TieringClient.latest_offsets

    def dropping(
        self: TieringClient, asked: TablePath, table_id: int, partition: int | None, of: range
    ) -> dict[int, int]:
        if partition == ids["while_planned"]:
            drop("while_planned")
            until = time.monotonic() + GONE_S
            while time.monotonic() < until:  # the tablet server answers until it has deleted it
                latest(self, asked, table_id, partition, of)
                time.sleep(0.02)
        return latest(self, asked, table_id, partition, of)

    monkeypatch.setattr(TieringClient, "latest_offsets", dropping)
    result = site.tier(path)
    assert (result.outcome, result.rows) == ("committed", 20)
    ends = {day: result.offsets[f"{number}/0"] for day, number in ids.items()}
    assert ends == {"while_planned": 10, "before_copy": 10, "before_commit": 20, "stays": 20}
    assert len(result.notes) == 2
    assert f"{ids['while_planned']} (bucket:offset 0:10)" in result.notes[0]
    assert result.notes[1] == (
        f"partition before_copy (id {ids['before_copy']}) was dropped during the round: bucket 0"
        " offsets [10, 20) were not tiered"
    )
    registered = site.client.admin.lake_snapshot(path)
    assert registered is not None
    assert registered.snapshot_id == result.lake_snapshot_id

    site.append(path, rows_of(["stays"]), dynamic_partitions=True)
    steps["round.copy.before"] = lambda: site.client.admin.drop_table(path)
    lost = site.tier(path)
    assert lost.is_given_up
    assert "was dropped" in lost.notes[0]
    assert site.rows("SELECT count(*) FROM lake.{db}.days")[0][0] == 60
