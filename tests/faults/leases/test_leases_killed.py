"""kill -9 of the server while leases come and go and snapshots are deleted all the time.

Each lease holds one snapshot of one bucket, so the list of leases tells exactly what is held. A
call whose answer is lost has happened or has not; everything that was acknowledged must be there
after the start, and every file of every snapshot that is held.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from sluice.client import Client, connect
from sluice.config import ClientConfig
from sluice.errors import FlussError
from sluice.model import TableBucket
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from tests.support.harness.findings import finding
from tests.support.programs.processes import ServerProcess
from tests.unit.server.kv_support import KV_PATH, KvCaller
from tests.unit.server.support import Caller

SETTINGS = {
    "SLUICE_SERVER_KV_SNAPSHOT_INTERVAL_MS": "10",
    "SLUICE_SERVER_KV_SNAPSHOT_NUM_RETAINED": "1",
    "SLUICE_SERVER_KV_SNAPSHOT_LEASE_CHECK_INTERVAL_MS": "10",
}
LEASES = ("a", "b", "c", "d")
HOUR_MS = 3_600_000


class Tenant:
    """Takes and gives up leases at random; ``held`` is the snapshot id that was acknowledged."""

    def __init__(self, server: ServerProcess, seed: int) -> None:
        self.server = server
        self.random = random.Random(seed)
        self.held: dict[str, int] = {}
        self.unsure: tuple[str, int | None] | None = None
        self.steps = 0
        with self.connected():
            self.kv = KvCaller(self.caller)
        self.bucket = TableBucket(self.kv.table_id, None, 0)

    @contextmanager
    def connected(self) -> Iterator[None]:
        self.caller = Caller(self.server.address)
        config = ClientConfig(self.server.address, request_timeout_ms=60_000, retry_timeout_ms=0)
        self.client: Client = connect(config)
        try:
            yield
        finally:
            self.client.close()
            self.caller.transport.close()

    def live_until_dead(self) -> None:
        """Puts make new snapshots, which delete the old ones, while leases come and go."""
        over = threading.Event()

        def put() -> None:
            try:
                kv = KvCaller(self.caller, create=False)
                while not over.is_set():
                    kv.put((self.steps, "text", 1))
            except FlussError:
                pass

        putting = threading.Thread(target=put)
        putting.start()
        try:
            while True:
                self.step()
        except FlussError:
            pass
        finally:
            over.set()
            putting.join(60)

    def step(self) -> None:
        """:raises FlussError: the outcome is unknown."""
        lease = self.random.choice(LEASES)
        kind = self.random.random()
        if kind < 0.6:
            newest = self.client.leases.latest(KV_PATH).snapshots.get(self.bucket)
            if newest is None:
                return
            self.unsure = (lease, newest.snapshot_id)
            if self.client.leases.acquire(lease, HOUR_MS, [newest]):
                self.unsure = None  # gone meanwhile: what was held before stays
                return
        elif kind < 0.7 and lease in self.held:
            self.client.leases.renew(lease, HOUR_MS, retry=False)
            return
        else:
            self.unsure = (lease, None)
            if kind < 0.85:
                self.client.leases.release(lease, [self.bucket])
            else:
                self.client.leases.drop(lease)
        self.settle(self.unsure[1])
        self.steps += 1

    def settle(self, snapshot_id: int | None) -> None:
        assert self.unsure is not None
        lease, self.unsure = self.unsure[0], None
        if snapshot_id is None:
            self.held.pop(lease, None)
        else:
            self.held[lease] = snapshot_id

    @finding()
    def check(self) -> None:
        """What the server has after a start is what was acknowledged, and can be read."""
        found = {lease.lease_id: lease.oldest_snapshot_id for lease in self.client.leases.all()}
        if self.unsure is not None:
            lease, after = self.unsure
            assert found.get(lease) in (self.held.get(lease), after)
            self.settle(found.get(lease))
        assert found == self.held
        for snapshot_id in self.held.values():
            request = pb.GetKvSnapshotMetadataRequest(
                table_id=self.bucket.table_id, bucket_id=0, snapshot_id=snapshot_id
            )
            reply = self.caller.call(apis.GET_KV_SNAPSHOT_METADATA, request)
            for file in reply.snapshot_files:
                assert Path(urlsplit(file.remote_path).path).is_file(), file


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    process = ServerProcess(tmp_path / "data", SETTINGS)
    yield process
    process.kill()


def killed_at(server: ServerProcess, armed: Sequence[str]) -> None:
    """Kills it at one failpoint after the other; what each left is checked at the next start."""
    tenant = None
    for failpoint in armed:
        server.start(SLUICE_FAILPOINTS=failpoint)
        tenant = tenant or Tenant(server, 1)
        with tenant.connected():
            tenant.check()
            tenant.live_until_dead()
        assert server.wait_until_dead() == -9
        server.kill()
    assert tenant is not None
    server.start()
    with tenant.connected():
        tenant.check()
    assert tenant.steps > 0


def test_killed_before_and_after_a_change_is_stored(server: ServerProcess) -> None:
    killed_at(server, ["server.lease.before_commit=kill@9", "server.lease.after_commit=kill@7"])


@pytest.mark.long
@pytest.mark.parametrize("step", ["lease.before_commit", "lease.after_commit"])
def test_killed_at_many_changes(server: ServerProcess, step: str) -> None:
    killed_at(server, [f"server.{step}=kill@{passage}" for passage in (1, 2, 5, 12, 40)])


@pytest.mark.slow
def test_killed_while_snapshots_are_deleted(server: ServerProcess) -> None:
    killed_at(server, [f"server.kv_snapshot.before_delete=kill@{n}" for n in (1, 3, 8)])


@pytest.mark.long
@pytest.mark.timeout(900)
def test_killed_forty_times_at_any_moment(server: ServerProcess) -> None:
    server.start()
    tenant = Tenant(server, 3)
    for _ in range(40):
        assert server.process is not None
        timer = threading.Timer(tenant.random.uniform(0.05, 0.6), server.process.kill)
        with tenant.connected():
            timer.start()
            tenant.live_until_dead()
        timer.join()
        server.kill()
        server.start()
        with tenant.connected():
            tenant.check()
    assert tenant.steps > 40
