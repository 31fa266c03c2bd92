"""What a user has made, other users cannot take away: leases, scans, and places for both."""

from __future__ import annotations

import re
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from click.testing import CliRunner

from sluice.cli.main import cli
from sluice.client import Client, connect
from sluice.client.leases.ids import lease_id
from sluice.client.leases.tier_lease import tier_lease_id
from sluice.config import ClientConfig
from sluice.driver.local import _leased_snapshots
from sluice.errors import (
    AuthorizationError,
    InvalidLease,
    LeaseNotExist,
    TooManyScanners,
    UnknownScannerId,
)
from sluice.model import BucketSnapshot, Claim, TableBucket
from sluice.server.cluster import EmbeddedCluster
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.error_codes import raise_in_body
from tests.support.network.bystander import Bystander
from tests.support.network.users import TOKENS, write_users
from tests.unit.server.kv_support import KV_PATH, KvCaller
from tests.unit.server.support import Node, config

USERS = {**TOKENS, "rob": ("read", "read-token-0b0b"), "wes": ("write", "write-token-3e5a")}
LISTENERS = ("grpc", "fluss")
HOUR = 3_600_000
QUIET = {"kv_snapshot_interval_ms": 0}
SCANS = {"kv_scanner_max_per_bucket": 4, "kv_scanner_max_per_server": 6}


@dataclass
class World:
    """A server with a users file, and a primary-key table of two buckets with a KV snapshot."""

    cluster: EmbeddedCluster
    stack: ExitStack
    bucket: TableBucket = field(init=False)
    clients: dict[tuple[str, str], Client] = field(default_factory=dict)

    def of(self, name: str, listener: str = "grpc") -> Client:
        """A client of a user."""
        if (name, listener) not in self.clients:
            address = self.cluster.addresses[LISTENERS.index(listener)]
            token = USERS[name][1]
            if listener == "grpc":
                login = ClientConfig(address, token=token)
            else:
                login = ClientConfig(address, username=name, password=token)
            self.clients[name, listener] = self.stack.enter_context(connect(login))
        return self.clients[name, listener]

    def snapshot(self, bucket: int = 0) -> BucketSnapshot:
        latest = self.of("ria").leases.latest(KV_PATH).snapshots
        return latest[TableBucket(self.bucket.table_id, None, bucket)]

    def scan(self, name: str, listener: str = "grpc", bucket: int = 0) -> Scan:
        """A new scan with more rows to read. :raises TooManyScanners: there is no place for it."""
        wanted = pb.PbScanReqForBucket(table_id=self.bucket.table_id, bucket_id=bucket)
        asked = pb.ScanKvRequest(bucket_scan_req=wanted, call_seq_id=0, batch_size_bytes=1)
        answer = self.ask(name, asked, listener)
        return Scan(self, answer.scanner_id)

    def ask(self, name: str, asked: pb.ScanKvRequest, listener: str = "grpc") -> pb.ScanKvResponse:
        def call(answer: pb.ScanKvResponse) -> pb.ScanKvResponse:
            raise_in_body(answer)
            return answer

        connection = self.of(name, listener)._connection
        found: pb.ScanKvResponse = connection.call_leader(
            KV_PATH, self.bucket, apis.SCAN_KV, asked, call
        )
        return found


@dataclass
class Scan:
    world: World
    scanner_id: bytes

    def more(self, name: str, call: int = 1) -> pb.ScanKvResponse:
        asked = pb.ScanKvRequest(scanner_id=self.scanner_id, call_seq_id=call, batch_size_bytes=1)
        return self.world.ask(name, asked)

    def close(self, name: str) -> None:
        self.world.ask(name, pb.ScanKvRequest(scanner_id=self.scanner_id, close_scanner=True))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    users = write_users(tmp_path / "users", USERS)
    settings = config(
        tmp_path / "data",
        listen="grpc://127.0.0.1:0,fluss://127.0.0.1:0",
        users_file=str(users),
        **QUIET,
        **SCANS,
    )
    with open_node(tmp_path) as first:
        kv = KvCaller(first.caller, bucket_count=2)
        for bucket in range(2):
            kv.put(*((key, "text", key) for key in range(5)), bucket=bucket)
        first.cluster.take_kv_snapshots(KV_PATH)
    with EmbeddedCluster(settings) as cluster, ExitStack() as stack:
        found = World(cluster, stack)
        found.bucket = TableBucket(kv.table_id, None, 0)
        yield found


@contextmanager
def open_node(tmp_path: Path) -> Iterator[Node]:
    """A server without a users file."""
    node = Node(tmp_path / "data", **QUIET)
    try:
        yield node
    finally:
        node.stop()


# ---- leases


def changes(
    client: Client, lease_id: str, snapshot: BucketSnapshot
) -> dict[str, Callable[[], object]]:
    """All calls that change a lease."""
    leases = client.leases
    nothing = pb.AcquireKvSnapshotLeaseRequest(lease_id=lease_id, lease_duration_ms=HOUR)
    return {
        "acquire": lambda: leases.acquire(lease_id, HOUR, [snapshot]),
        "renew": lambda: leases.renew(lease_id, HOUR),
        "renew as in Fluss": lambda: leases._ask(apis.ACQUIRE_KV_SNAPSHOT_LEASE, nothing),
        "release": lambda: leases.release(lease_id, [snapshot.bucket]),
        "drop": lambda: leases.drop(lease_id),
    }


@pytest.mark.parametrize("listener", LISTENERS)
def test_a_lease_is_its_owners(world: World, listener: str) -> None:
    snapshot, mine = world.snapshot(), world.of("ria", listener)
    mine.leases.acquire("job", HOUR, [snapshot])
    for other in ("rob", "wim"):
        for name, change in changes(world.of(other, listener), "job", snapshot).items():
            with pytest.raises(
                AuthorizationError, match="^lease job belongs to another user"
            ) as no:
                change()
            assert "ria" not in str(no.value), name
    for client in (mine, world.of("rob", listener)):
        [lease] = client.leases.all()
        assert (lease.lease_id, lease.owner, lease.buckets) == ("job", "ria", 1)
    for change in changes(mine, "job", snapshot).values():
        change()
    assert mine.leases.all() == []
    world.of("rob", listener).leases.drop("job")  # of a lease that is gone, as in Fluss
    with pytest.raises(LeaseNotExist):
        world.of("rob", listener).leases.renew("job", HOUR)


def test_an_admin_may_change_any_lease_and_it_keeps_its_owner(world: World) -> None:
    snapshot, mine, admin = world.snapshot(), world.of("ria"), world.of("ada")
    mine.leases.acquire("job", HOUR, [snapshot])
    admin.leases.acquire("job", HOUR, [world.snapshot(1)])
    admin.leases.renew("job", HOUR)
    assert [lease.owner for lease in mine.leases.all()] == ["ria"]
    mine.leases.renew("job", HOUR)
    admin.leases.drop("job")
    assert mine.leases.all() == []


@pytest.mark.parametrize("listener", LISTENERS)
def test_a_guessed_lease_id_does_not_block_a_round(
    world: World,
    listener: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with tier_lease_id(world.bucket.table_id) as guessed:
        pass
    world.of("wim").leases.acquire(guessed, HOUR, [world.snapshot()])
    claim = Claim(world.bucket.table_id, KV_PATH, 1, 1)
    tiering = world.of("wes", listener)
    with _leased_snapshots(tiering, claim, threading.Event(), is_repair=False) as snapshots:
        assert {snapshot.bucket.bucket for snapshot in snapshots} == {0, 1}
        owners = {lease.owner: lease.lease_id for lease in tiering.leases.all()}
    assert owners.pop("wim") == guessed
    assert re.fullmatch(r"sluice-tier-[0-9a-f-]{36}", owners["wes"])
    (warned,) = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert f"random id: lease {guessed} belongs to another user" in warned
    assert [lease.owner for lease in tiering.leases.all()] == ["wim"], "dropped at the end"


@pytest.mark.parametrize("listener", LISTENERS)
def test_only_users_who_may_tier_make_leases_with_ids_of_rounds(
    world: World, listener: str
) -> None:
    """A DAG run's id can be computed years ahead, and a retried task must find its own lease."""
    snapshot = world.snapshot()
    run = lease_id("airflow-0f5c", "sluice_lake_tiering", "scheduled__2027-01-01T00:00:00+00:00")
    for guessed in (run, "sluice-tier-of-any-kind"):
        for call in ("acquire", "renew as in Fluss"):
            with pytest.raises((AuthorizationError, LeaseNotExist)):
                changes(world.of("rob", listener), guessed, snapshot)[call]()
    assert world.of("rob").leases.all() == []
    with pytest.raises(
        AuthorizationError, match="^lease sluice-x: ids that begin with sluice- are for rounds"
    ):
        world.of("rob", listener).leases.acquire("sluice-x", HOUR, [snapshot])
    for name in ("wes", "ada"):
        world.of(name, listener).leases.acquire(run, HOUR, [snapshot])
        assert [lease.owner for lease in world.of("rob").leases.all()] == [name]
        world.of(name, listener).leases.drop(run)


def test_a_lease_id_is_free_again_after_its_end(world: World) -> None:
    for name in ("ria", "rob"):
        world.of(name).leases.acquire("job", HOUR, [world.snapshot()])
        assert [lease.owner for lease in world.of("wim").leases.all()] == [name]
        world.of(name).leases.drop("job")


def test_what_people_see_of_owners(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.of("ria").leases.acquire("job", HOUR, [world.snapshot()])
    monkeypatch.setenv("SLUICE_CLIENT_TOKEN", USERS["rob"][1])
    where = ("--bootstrap", world.cluster.address)
    lines = CliRunner().invoke(cli, ["leases", *where]).output.splitlines()
    columns = ["lease", "owner", "buckets", "bytes", "freed", "age", "expires", "in"]
    assert lines[0].split() == columns
    assert lines[2].split()[:3] == ["job", "ria", "1"]
    refused = CliRunner().invoke(cli, ["leases", "drop", "job", *where])
    assert (refused.exit_code, refused.stderr) == (
        1,
        "sluice: AuthorizationError: lease job belongs to another user: only that user and users"
        " with the role admin may change it; `sluice leases` shows whose it is\n",
    )


def test_an_owner_survives_a_restart_and_leases_of_nobody_are_everybodys(tmp_path: Path) -> None:
    """Also a data directory of a version that knew no owners, which has no column for them."""
    users = str(write_users(tmp_path / "users", USERS))
    with open_node(tmp_path) as node:
        kv = KvCaller(node.caller)
        kv.put((1, "a", 1))
        node.cluster.take_kv_snapshots(KV_PATH)
        with connect(node.cluster.address) as client:
            [snapshot] = client.leases.latest(KV_PATH).snapshots.values()
            for lease_id in ("old", "older"):
                client.leases.acquire(lease_id, HOUR, [snapshot])
            assert [lease.owner for lease in client.leases.all()] == ["", ""]
    with closing(sqlite3.connect(tmp_path / "data" / "metadata.sqlite")) as database:
        database.execute("ALTER TABLE kv_snapshot_leases DROP COLUMN owner")
        database.commit()
    guarded = config(tmp_path / "data", users_file=users, **QUIET)
    for _ in range(2):
        with EmbeddedCluster(guarded) as cluster, ExitStack() as stack:
            world = World(cluster, stack)
            rob = world.of("rob")
            rob.leases.renew("old", HOUR)
            world.of("ria").leases.acquire("new", HOUR, [snapshot])
            with pytest.raises(AuthorizationError):
                rob.leases.drop("new")
            owners = {lease.lease_id: lease.owner for lease in rob.leases.all()}
            assert owners == {"new": "ria", "old": "", "older": ""}
    with open_node(tmp_path) as node, connect(node.cluster.address) as client:
        client.leases.drop("new")  # without a users file everybody is an admin
        client.leases.drop("old")
        assert [lease.lease_id for lease in client.leases.all()] == ["older"]


def test_one_user_cannot_take_all_leases(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other goes on before, while and after one takes all that it gets."""
    monkeypatch.setattr("sluice.leases.limits.LEASES_MAX", 6)
    snapshot, owner = world.snapshot(), world.of("ria")
    owner.leases.acquire("mine", HOUR, [snapshot])
    greedy = world.of("rob")

    def work() -> None:
        owner.leases.renew("mine", HOUR)
        owner.leases.acquire("more", HOUR, [snapshot])
        owner.leases.drop("more")

    bystander = Bystander(work)
    with bystander.beside():
        for number in range(3):
            greedy.leases.acquire(f"greedy-{number}", HOUR, [snapshot])
        for number in range(20):
            with pytest.raises(InvalidLease, match="user 'rob' would have 4 leases, more than one"):
                greedy.leases.acquire(f"more-{number}", HOUR, [snapshot])
            with pytest.raises(AuthorizationError):
                greedy.leases.drop("mine")
    bystander.assert_served()
    greedy.leases.acquire("greedy-0", HOUR, [snapshot])
    greedy.leases.drop("greedy-0")
    greedy.leases.acquire("greedy-3", HOUR, [snapshot])
    monkeypatch.setattr("sluice.leases.limits.HELD_MAX", 7)
    with pytest.raises(InvalidLease, match="user 'rob' would have 4 buckets in leases"):
        greedy.leases.acquire("greedy-1", HOUR, [world.snapshot(1)])


# ---- scans


@pytest.mark.parametrize("listener", LISTENERS)
def test_one_user_cannot_take_all_scans_of_a_bucket(world: World, listener: str) -> None:
    """The other scans before, while and after one opens all that it gets."""

    def work() -> None:
        world.scan("ria", listener).close("ria")

    bystander = Bystander(work)
    with bystander.beside():
        taken = [world.scan("rob", listener) for _ in range(2)]
        for _ in range(20):
            with pytest.raises(TooManyScanners) as no:
                world.scan("rob", listener)
        assert "user 'rob' has 2 open scans of it, the limit of one user (half of" in str(no.value)
    bystander.assert_served()
    taken[0].close("rob")
    world.scan("rob", listener)


def test_one_user_cannot_take_all_scans_of_a_server(world: World) -> None:
    for bucket in (0, 0, 1):
        world.scan("rob", bucket=bucket)
    with pytest.raises(TooManyScanners, match="user 'rob' has 3 open scans on this server"):
        world.scan("rob", bucket=1)
    for bucket in (0, 1, 1):
        world.scan("ria", bucket=bucket)
    with pytest.raises(TooManyScanners, match="6 scans are open on this server"):
        world.scan("ada")


def test_nobody_goes_on_with_or_ends_the_scan_of_another(world: World) -> None:
    scan = world.scan("ria")
    for other in ("rob", "ada"):
        with pytest.raises(UnknownScannerId):
            scan.more(other)
        scan.close(other)
    calls = 1
    while scan.more("ria", calls).has_more_results:
        calls += 1
    assert calls == 4
    for other in ("rob", "ada"):  # the last batch is kept for its own client
        scan.close(other)
        with pytest.raises(UnknownScannerId):
            scan.more(other, calls)
    assert scan.more("ria", calls).records
    scan.close("ria")
    with pytest.raises(UnknownScannerId):
        scan.more("ria", calls)


def test_without_a_users_file_one_may_take_all_scans(tmp_path: Path) -> None:
    node = Node(tmp_path / "data", **QUIET, **SCANS)
    kv = KvCaller(node.caller)
    kv.put(*((key, "text", key) for key in range(5)))
    wanted = pb.PbScanReqForBucket(table_id=kv.table_id, bucket_id=0)
    asked = pb.ScanKvRequest(bucket_scan_req=wanted, call_seq_id=0, batch_size_bytes=1)
    for _ in range(4):
        raise_in_body(node.caller.call(apis.SCAN_KV, asked))
    with pytest.raises(TooManyScanners, match="4 scans of it are open"):
        raise_in_body(node.caller.call(apis.SCAN_KV, asked))
    node.stop()
