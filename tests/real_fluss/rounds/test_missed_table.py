"""A new table that the coordinator of Fluss 0.9.1 misses: what users see, and what heals it."""

from __future__ import annotations

import json
import time
from contextlib import closing

import pytest
from click.testing import Result

from sluice.driver.table_health import failed_rounds
from sluice.errors import TableNotDue
from sluice.model import Column, Schema, TableDescriptor, TablePath
from sluice.model import types as t
from sluice.page.cluster.health import verdict
from sluice.page.cluster.seen import SeenTable
from tests.real_fluss.place import LAKE, Place
from tests.support.fluss.missed_table import miss_table
from tests.support.fluss.table_creation import has_leaders

pytestmark = [pytest.mark.real_fluss, pytest.mark.spark, pytest.mark.timeout(600)]

MISSED_IDS = (1_000_001, 1_000_002)


def spoken(told: Result) -> str:
    return " ".join(told.output.split())


def partitioned(place: Place) -> TablePath:
    """A missed table without partitions: it has no bucket that could have a leader."""
    model, path = (TablePath(place.database, name) for name in ("parted_model", "parted"))
    columns = (Column("id", t.BIGINT, 0), Column("day", t.STRING, 1))
    described = TableDescriptor(
        Schema(columns, highest_field_id=1),
        partition_keys=("day",),
        bucket_count=1,
        properties=LAKE | {"table.datalake.freshness": "1d"},
    )
    place.client.admin.create_table(model, described)
    miss_table(place.fluss, model, path, MISSED_IDS[1])
    return path


@pytest.mark.slow
def test_a_missed_table_is_named_until_the_coordinator_restarts(place: Place) -> None:
    model = place.create("model", freshness="1d")
    path = TablePath(place.database, "missed")
    miss_table(place.fluss, model, path, MISSED_IDS[0])
    parted = partitioned(place)
    advice = (
        f"no leader: bucket 0 of table {path}, although the tablet servers run: Fluss's coordinator"
        " has missed the table. Restart the coordinator"
    )

    made = place.sluice("create-table", str(model), "--schema", "id BIGINT", "--if-not-exists")
    assert (made.exit_code, made.output) == (0, f"{model}: exists already, unchanged\n")
    made = place.sluice("create-table", str(model), "--schema", "id BIGINT")
    assert "--if-not-exists accepts an existing table" in spoken(made)
    began_s = time.monotonic()
    made = place.sluice("create-table", str(path), "--schema", "id BIGINT", "--if-not-exists")
    assert (made.exit_code, advice in spoken(made)) == (1, True), made.output
    assert 10 <= time.monotonic() - began_s < 40
    shown = place.sluice("status", str(path))
    assert (shown.exit_code, f"{path}: {advice}" in spoken(shown)) == (1, True), shown.output
    everything = place.sluice("status")
    assert advice in spoken(everything)
    assert f"{model}: no leader" not in spoken(everything), "the others are as they are"
    lake = ("--warehouse", str(place.fluss.warehouse))
    for words in ((), ("--now",)):
        refused = place.sluice("tier", str(path), *lake, *words)
        assert refused.exit_code == 1
        assert f"cannot be tiered: {advice}" in spoken(refused), refused.output
    kept = place.sluice("maintain", str(path), *lake)  # CREATE TABLE has made its lake table
    assert (advice in spoken(kept), "healthy" in kept.output) == (True, False), kept.output
    began_s = time.monotonic()
    waited = place.sluice("tier", str(path), *lake, "--now", "--wait", "3s")
    assert (waited.exit_code, "no leader for the last" in spoken(waited)) == (1, True)
    assert time.monotonic() - began_s > 3, "an election would end within the wait"
    with pytest.raises(TableNotDue, match="has missed the creation of table"):
        place.client.statuses.request_round(path)
    [finding] = [one for one in failed_rounds(place.config) if one.what == f"table {path}"]
    assert (finding.ok, finding.seen) == (False, advice)
    now_ms = int(time.time() * 1000)
    judged = verdict(SeenTable(place.status(path), now_ms), now_ms)
    assert (judged.health, judged.why) == ("failing", advice)
    with closing(place.client.status_watch()) as watch:
        tables = watch.described([path, model])
        notes = {status.path: status.note for status in watch.recorded([*tables.values()])}
    assert notes[path] == advice
    assert notes[model] != advice

    unknown = (
        f"no leader: Fluss's coordinator has missed the creation of table {parted}. Restart the"
        " coordinator, and create no partition of the table before"
    )
    assert place.status(parted).note == unknown
    made = place.sluice("create-table", str(parted), "--schema", "id BIGINT", "--if-not-exists")
    assert (made.exit_code, unknown in spoken(made)) == (1, True), made.output

    place.fluss.kill_coordinator()
    place.fluss.start_coordinator()
    assert has_leaders(place.client, path, 60.0)
    place.client.admin.await_leaders(place.client.admin.table_info(path))
    assert not place.status(parted).has_no_leader
    [status] = json.loads(place.sluice("status", str(path), "--format", "json").output)
    assert "no leader" not in (status["note"] or "")
