"""`sluice leases` against a real server, and on the data directory of one that cannot start."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sluice.cli.main import cli
from sluice.client import connect
from sluice.client.leases.ids import lease_id
from sluice.client.leases.tier_lease import tier_lease_id
from sluice.config import ServerConfig
from sluice.errors import StorageError
from sluice.model import LeaseInfo, Reason, TablePath
from sluice.server.cluster import EmbeddedCluster
from tests.support.statuses.no_lease_list import list_no_leases
from tests.support.statuses.planned_rounds import claim_and_plan
from tests.unit.server.kv_support import KvCaller
from tests.unit.server.support import Caller


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[EmbeddedCluster]:
    config = ServerConfig(
        data_dir=str(tmp_path / "data"), listen="grpc://127.0.0.1:0", kv_snapshot_interval_ms=0
    )
    cluster = EmbeddedCluster(config)
    caller = Caller(cluster.start())
    kv = KvCaller(caller, bucket_count=2)
    kv.put((1, "a", 1), bucket=0)
    kv.put((2, "b", 2), bucket=1)
    cluster.take_kv_snapshots(kv.path)
    caller.transport.close()
    with (
        connect(cluster.address) as client,
        client.snapshot_lease("job-7", kv.path, on_exit="keep", duration_ms=90_000_000),
    ):
        pass
    yield cluster
    cluster.stop()


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["leases", *arguments])


def test_leases_for_people(cluster: EmbeddedCluster) -> None:
    lines = run("--bootstrap", cluster.address).output.splitlines()
    assert lines[0].split() == ["lease", "buckets", "bytes", "freed", "age", "expires", "in"]
    assert lines[2].split()[:4] == ["job-7", "2", "30.0", "kB"]
    assert "0 bytes" in lines[2], "its snapshots are the newest"
    assert lines[2].endswith(("1 d 1 h", "1 d", "24 h 59 min"))
    assert lines[3:] == ["job-7: its oldest is snapshot 0 of db.kv, bucket 0"]


def test_leases_for_machines(cluster: EmbeddedCluster) -> None:
    [lease] = json.loads(run("--format", "json", "--bootstrap", cluster.address).output)
    assert (lease["lease_id"], lease["buckets"], lease["oldest_path"]) == ("job-7", 2, "db.kv")
    # The expiry is shown by the wall clock and judged by another, so a millisecond may be missing.
    assert abs(lease["expires_ms"] - lease["renewed_ms"] - 90_000_000) < 1_000
    assert 0 < lease["left_ms"] <= 90_000_000
    [table] = lease["tables"]
    assert table == {
        "table_id": 0,
        "path": "db.kv",
        "buckets": 2,
        "oldest_snapshot_id": 0,
        "held_bytes": lease["held_bytes"],
        "freed_bytes": 0,
    }


def test_drop(cluster: EmbeddedCluster) -> None:
    where = ("--bootstrap", cluster.address)
    assert run("drop", "job-7", *where).output.endswith("lease job-7 is dropped\n")
    again = run("drop", "job-7", *where)
    assert again.exit_code == 1
    assert again.stderr == (
        "sluice: LeaseNotExist: lease 'job-7' does not exist; `sluice leases` lists all leases\n"
    )
    assert run(*where).output == "no leases\n"


@pytest.fixture
def lists_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers have no call that lists leases, as Fluss 0.9.1."""
    list_no_leases(monkeypatch)


@pytest.mark.usefixtures("lists_none")
def test_drop_where_leases_cannot_be_listed(tmp_path: Path) -> None:
    """A real Fluss drops a lease and does not tell whether there was one."""
    config = ServerConfig(data_dir=str(tmp_path / "data"), listen="grpc://127.0.0.1:0")
    with EmbeddedCluster(config) as cluster:
        result = run("drop", "job-7", "--bootstrap", cluster.address)
        assert result.exit_code == 0
        assert (
            result.output == "lease job-7 is dropped, if it existed: this cluster lists no leases\n"
        )


@pytest.mark.usefixtures("lists_none")
def test_leases_of_rounds_where_leases_cannot_be_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    config = ServerConfig(data_dir=str(tmp_path / "data"), listen="grpc://127.0.0.1:0")
    with EmbeddedCluster(config) as cluster, connect(cluster.address) as client:
        where = ("--bootstrap", cluster.address)
        ran = run(*where)
        assert (ran.exit_code, ran.stdout) == (0, "no round in progress can have a lease\n")
        assert ran.stderr.startswith("note: This cluster lists no leases. Shown are those")

        caller = Caller(cluster.address)
        tiered = {"table.datalake.enabled": "true"}
        paths = [TablePath("db", name) for name in ("a", "b", "c", "log", "idle")]
        for path in paths[:3]:
            KvCaller(caller, path, properties=tiered)
        caller.create_table(paths[3], properties=tiered)
        KvCaller(caller, paths[4], properties=tiered)
        caller.transport.close()
        of_run = lease_id("west", "dag", "run")
        for path in (paths[0], paths[1], paths[3]):
            assert client.tiering.claim([path], of_run)
        claim = client.tiering.claim([paths[2]])
        assert claim is not None
        with tier_lease_id(claim.table_id) as of_tier:
            unknown = ["-"] * 3
            expected = [[of_run, *unknown, "db.a, db.b"], [of_tier, *unknown, "db.c"]]
            lines = run(*where).stdout.splitlines()
            assert lines[0].split() == ["lease", "buckets", "bytes", "age", "tables"]
            assert [line.split(maxsplit=4) for line in lines[2:]] == sorted(expected)
            found = json.loads(run("--format", "json", *where).stdout)
            client.tiering.release(claim, Reason.from_text("ended"))
            found_then = json.loads(run("--format", "json", *where).stdout)
        told = {one["lease_id"]: [table["path"] for table in one["tables"]] for one in found}
        assert told == {of_run: ["db.a", "db.b"], of_tier: ["db.c"]}
        assert {lease["buckets"] for lease in found} == {None}
        assert {lease["lease_id"] for lease in found_then} == {of_run}


@pytest.mark.usefixtures("lists_none")
def test_what_runs_hold_is_read_from_their_plans(tmp_path: Path) -> None:
    config = ServerConfig(
        data_dir=str(tmp_path / "data"), listen="grpc://127.0.0.1:0", kv_snapshot_interval_ms=0
    )
    with EmbeddedCluster(config) as cluster, connect(cluster.address) as client:
        caller = Caller(cluster.address)
        kv = KvCaller(caller, properties={"table.datalake.enabled": "true"})
        kv.put((1, "a", 1))
        cluster.take_kv_snapshots(kv.path)
        caller.transport.close()
        of_run = lease_id("west", "dag", "run")
        claim_and_plan(client, tmp_path / "work", of_run, kv.path)
        where = ("--bootstrap", cluster.address, "--work-uri", str(tmp_path / "work"))
        ran = run(*where)
        [found] = json.loads(run("--format", "json", *where).stdout)
        assert run("drop", of_run, *where).output.startswith(f"lease {of_run} is dropped, if it")
        assert run("drop", of_run, *where).output.startswith(f"lease {of_run} was dropped before")
        assert json.loads(run("--format", "json", *where).stdout) == []
    line = ran.stdout.splitlines()[2].split()
    assert line[:4] == [of_run, "1", "15.0", "kB"]
    assert line[-1] == "db.kv"
    assert "from their plan files" in ran.stderr
    assert (found["buckets"], found["table_count"], found["expires_ms"]) == (1, 1, None)
    assert found["held_bytes"] == found["tables"][0]["held_bytes"] > 10_000


def test_the_same_is_known_of_each_lease(cluster: EmbeddedCluster) -> None:
    """Whether the cluster lists leases or not, JSON has the same fields."""
    [lease] = json.loads(run("--format", "json", "--bootstrap", cluster.address).output)
    assert set(lease) == {*LeaseInfo.__slots__, "age_ms", "left_ms", "tables"}


def test_a_lease_that_cannot_be_read_is_dropped_on_the_disk(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    data = str(tmp_path / "data")
    running = run("drop", "job-7", "--data-dir", data)
    assert running.exit_code == 1
    assert "in use by another server" in running.stderr
    cluster.stop()
    with closing(sqlite3.connect(tmp_path / "data/metadata.sqlite")) as connection:
        connection.execute("UPDATE kv_snapshot_leases SET head = x'01'")
        connection.commit()
    with pytest.raises(StorageError, match="sluice leases drop 'job-7' --data-dir"):
        cluster.start()
    assert run("drop", "job-7", "--data-dir", data).output == "lease job-7 is dropped\n"
    cluster.start()
    assert run("--bootstrap", cluster.address).output == "no leases\n"


def test_a_folder_that_is_no_data_directory_is_left_alone(tmp_path: Path) -> None:
    result = run("drop", "x", "--data-dir", str(tmp_path))
    assert result.exit_code == 1
    assert "is not a data directory" in result.stderr
    assert list(tmp_path.iterdir()) == []
