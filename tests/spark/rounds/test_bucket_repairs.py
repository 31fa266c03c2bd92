"""Logs that begin late and batches that cannot be read, repaired on Iceberg."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

from sluice.cli.main import cli
from sluice.client import connect
from sluice.config import ClientConfig, Config, DatalakeConfig, ServerConfig
from sluice.driver.lakes.jvm import Jvm
from sluice.driver.repairing import diagnose_table, repair
from sluice.errors import (
    ConfigurationError,
    LakeCommitRefused,
    LogBeginsAfterLake,
    SplitFailed,
)
from sluice.formats.log.batch import iter_batches
from sluice.lake.iceberg.lake import IcebergLake
from sluice.model import TablePath
from sluice.model import types as t
from sluice.rounds.values.progress import NoProgress
from sluice.server.cluster import EmbeddedCluster
from tests.spark.conftest import LONG_MS, STOCK, LocalStock, Site
from tests.spark.tier.test_tier_local import tier

pytestmark = pytest.mark.spark
PATH = TablePath("shop", "orders")


def damage_last(log: Path) -> int:
    """Changes one byte of the last batch; returns its base offset."""
    content = bytearray(log.read_bytes())
    base = [header.base_offset for header, _ in iter_batches(bytes(content))][-1]
    content[-3] ^= 1
    log.write_bytes(content)
    return base


def log_of(data_dir: Path, bucket: int) -> Path:
    [found] = data_dir.rglob(f"log-{bucket}/*.log")
    return found


def summary(site: Site, path: TablePath) -> dict[str, str]:
    [row] = site.rows(
        f"SELECT summary FROM lake.{path}.snapshots ORDER BY committed_at DESC LIMIT 1"
    )
    return dict(row[0])


def test_a_batch_that_cannot_be_read_is_skipped_on_a_users_word(site: Site, tmp_path: Path) -> None:
    site.create(PATH, {"id": t.BIGINT})
    for first in (0, 10, 20):
        site.append(PATH, pa.table({"id": range(first, first + 10)}))
        if not first:
            tier(site)
        if first == 10:
            offset = damage_last(log_of(tmp_path / "server", 0))
    with pytest.raises(SplitFailed, match=r"`sluice repair shop\.orders --skip 0:10`"):
        tier(site)
    last = diagnose_table(site.config, PATH, site.jvm)
    assert (last.healthy, last.batch) == (False, "0:10")
    with pytest.raises(
        ConfigurationError, match=r"run `sluice repair shop\.orders --skip 0:10 --y"
    ):
        repair(site.config, PATH, jvm=site.jvm)
    answer = diagnose_table(site.config, PATH, site.jvm, ("0", offset))
    assert [(one.name, one.risks) for one in answer.actions] == [
        (
            "skip",
            (
                "lost for good: bucket 0: offsets 10 to 19 (the batch cannot be read)",
                "with replication, another replica may have an intact batch: let it lead the bucket"
                " first",
            ),
        )
    ]
    done = repair(site.config, PATH, "skip", skip=("0", offset), jvm=site.jvm, wait_ms=20_000)
    assert done.result is not None
    assert (done.result.outcome, done.result.rows) == ("committed", 0)
    assert "bucket 0: offsets 10 to 19 were skipped" in done.notes
    assert json.loads(summary(site, PATH)["sluice.skipped"]) == {"0": [10, 20]}
    with pytest.raises(ConfigurationError, match="already left out offset 10"):
        diagnose_table(site.config, PATH, site.jvm, ("0", offset))
    tier(site)
    found = site.rows(f"SELECT id FROM lake.{PATH} ORDER BY 1")
    assert [row[0] for row in found] == [*range(10), *range(20, 30)]
    [status] = site.client.statuses.list(PATH)
    assert status.accepted == "bucket 0: offsets 10 to 19 were skipped"
    shown = CliRunner().invoke(cli, ["status", "--bootstrap", site.config.client.bootstrap])
    assert (
        f"rows are missing in the lake, as accepted by a user ({status.accepted})" in shown.output
    )


def test_a_rollback_past_a_skip_is_tiered_again_though_its_snapshot_has_expired(
    site: Site, tmp_path: Path
) -> None:
    """Only an earlier metadata file still records the skip; the tag keeps a later snapshot."""
    site.create(PATH, {"id": t.BIGINT})
    for first in (0, 10, 20):
        site.append(PATH, pa.table({"id": range(first, first + 10)}))
        if not first:
            kept = tier(site).lake_snapshot_id
        if first == 10:
            damage_last(log_of(tmp_path / "server", 0))
    repair(site.config, PATH, "skip", skip=("0", 10), jvm=site.jvm, wait_ms=20_000)
    tier(site)
    assert kept is not None
    roll_back_and_expire(site, kept)
    done = repair(site.config, PATH, "retier", jvm=site.jvm, wait_ms=20_000)
    assert done.result is not None
    assert done.result.accepted == "bucket 0: offsets 10 to 19 were skipped"
    found = site.rows(f"SELECT id FROM lake.{PATH} ORDER BY 1")
    assert [row[0] for row in found] == [*range(10), *range(20, 30)]
    assert diagnose_table(site.config, PATH, site.jvm).healthy


@pytest.mark.parametrize("is_named", [True, False])
def test_a_batch_whose_skip_nothing_records_any_more_is_skipped_again_by_name(
    site: Site, tmp_path: Path, is_named: bool
) -> None:
    """Neither retier alone nor --skip alone is a way out, so each must name the other."""
    site.create(PATH, {"id": t.BIGINT})
    for first in (0, 10, 20):
        site.append(PATH, pa.table({"id": range(first, first + 10)}))
        snapshot = tier(site).lake_snapshot_id
        if not first:
            kept = snapshot
        if first == 10:
            damage_last(log_of(tmp_path / "server", 0))
    assert kept is not None
    roll_back_and_expire(site, kept)
    with pytest.raises(SplitFailed, match=r"Run `sluice repair shop\.orders --skip 0:10`"):
        repair(site.config, PATH, "retier", jvm=site.jvm, wait_ms=20_000)
    with pytest.raises(ConfigurationError, match="the batch at offset 20 can be read"):
        diagnose_table(site.config, PATH, site.jvm, ("0", 20))
    with pytest.raises(ConfigurationError, match=r"First run `sluice repair shop\.orders --yes`"):
        repair(site.config, PATH, skip=("0", 30), jvm=site.jvm)
    named = r"`sluice repair shop\.orders --skip 0:10 --by retier --yes`"
    with pytest.raises(ConfigurationError, match=f"choose the repair: .*{named}"):
        repair(site.config, PATH, skip=("0", 10), jvm=site.jvm)
    by = "retier" if is_named else "restore"
    done = repair(site.config, PATH, by, skip=("0", 10), jvm=site.jvm, wait_ms=20_000)
    accepted = "bucket 0: offsets 10 to 19 were skipped"
    if is_named:
        assert done.result is not None
        assert done.result.accepted == accepted
    rows = [row[0] for row in site.rows(f"SELECT id FROM lake.{PATH} ORDER BY 1")]
    assert rows == [one for one in range(30) if not (is_named and 10 <= one < 20)]
    assert diagnose_table(site.config, PATH, site.jvm).healthy


def roll_back_and_expire(site: Site, snapshot_id: int) -> None:
    """Main goes back to a snapshot; of the newer ones only the tagged one remains."""
    lake = IcebergLake(site.jvm.gateway, {"type": "hadoop", "warehouse": str(site.warehouse)})
    table = lake.load(PATH)
    assert table is not None
    table._loaded.java.manageSnapshots().setCurrentSnapshot(snapshot_id).commit()
    table._loaded.java.expireSnapshots().expireOlderThan(2**62).retainLast(1).commit()
    assert len(table.history().snapshots) == 2


def test_a_bucket_with_a_primary_key_is_rebuilt(stock: LocalStock) -> None:
    stock.create()
    stock.put({key: key for key in range(100)})
    stock.tier()
    stock.put({key: -key for key in range(50)})  # deletes
    stock.tier()
    stock.delete(*range(0, 100, 3))
    log = log_of(stock.data_dir, 1)
    offset = damage_last(log)
    with pytest.raises(SplitFailed, match=f"--skip 1:{offset}`"):
        stock.tier()
    stock.snapshots()
    stock.put(dict.fromkeys(range(20, 30), 7))
    skip = ("1", offset)
    before = stock.rows("SELECT file_path FROM {lake}.files WHERE partition.id_bucket = 0")
    actions = diagnose_table(stock.site.config, STOCK, stock.site.jvm, skip).actions
    assert [(one.name, len(one.risks)) for one in actions] == [("rebuild", 0), ("skip", 3)]

    class OtherWriter(NoProgress):
        def phase(self, name: str) -> None:
            if name == "lake_commit":
                stock.rows("INSERT INTO {lake} SELECT * FROM {lake} WHERE false")

    with pytest.raises(LakeCommitRefused, match=r"another writer has committed .*Run `sluice repa"):
        repair(
            stock.site.config,
            STOCK,
            "rebuild",
            skip=skip,
            jvm=stock.site.jvm,
            progress=OtherWriter(),
            wait_ms=20_000,
        )
    done = repair(
        stock.site.config, STOCK, "rebuild", skip=skip, jvm=stock.site.jvm, wait_ms=20_000
    )
    assert done.result is not None
    assert done.result.outcome == "committed"
    rebuilt = summary(stock.site, STOCK)
    files = stock.rows("SELECT content, partition.id_bucket, file_path FROM {lake}.files")
    assert [content for content, bucket, _ in files if bucket == 1] == [0]
    assert {row[0] for row in before} <= {path for _, bucket, path in files if bucket == 0}
    assert "sluice.rebuilt" in rebuilt
    stock.tier()
    stock.assert_equal()
    stock.put({3: 3})
    stock.tier()
    stock.assert_equal()


def test_a_log_that_begins_late_is_accepted(tmp_path: Path, jvm: Jvm) -> None:
    """The first segments are deleted while the server is down, as after a long pause."""
    server = ServerConfig(
        data_dir=str(tmp_path / "server"),
        listen="grpc://127.0.0.1:0",
        tiering_check_interval_ms=100,
        tiering_timeout_ms=LONG_MS,
        tiering_backoff_ms=0,
        segment_bytes=1,
    )
    lake = DatalakeConfig("iceberg", {"type": "hadoop", "warehouse": str(tmp_path / "lake")})

    def site(cluster: EmbeddedCluster) -> Site:
        config = Config(client=ClientConfig(bootstrap=cluster.address), datalake=lake)
        client = connect(config.client)
        return Site(client, config, tmp_path / "lake", "", lambda _, __: [], jvm)

    with EmbeddedCluster(server) as cluster:
        first = site(cluster)
        first.create(PATH, {"id": t.BIGINT})
        first.append(PATH, pa.table({"id": range(10)}))
        tier(first)
        for start in (10, 20):
            first.append(PATH, pa.table({"id": range(start, start + 10)}))
        first.client.close()
    for path in (tmp_path / "server").rglob("log-0/*"):
        if path.stem.isdecimal() and int(path.stem) < 20:
            path.unlink()
    with EmbeddedCluster(server) as cluster:
        again = site(cluster)
        with pytest.raises(LogBeginsAfterLake, match="begins at offset 20, the lake ends at off"):
            tier(again)
        [status] = again.client.statuses.list(PATH)
        assert "Run `sluice repair shop.orders`" in (status.last_error or "")
        with pytest.raises(LogBeginsAfterLake, match="--by accept-gap"):
            repair(again.config, PATH, jvm=jvm)
        done = repair(again.config, PATH, "accept-gap", jvm=jvm, wait_ms=20_000)
        assert done.result is not None
        assert (done.result.rows, done.result.offsets) == (0, {"0": 20})
        assert tier(again).rows == 10
        assert diagnose_table(again.config, PATH, jvm).healthy
        [status] = again.client.statuses.list(PATH)
        assert status.accepted == "bucket 0: offsets 10 to 19 were no longer in the log"
        again.client.close()
