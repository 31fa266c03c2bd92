"""What a client does with the leases of a server that is killed, beside a model of them.

The time stands still until it is moved. So the model says exactly what is stored: what it says
before or after the change that was under way when the server died, and nothing else.
"""

from __future__ import annotations

import copy
import os
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sluice.client import connect
from sluice.config import ClientConfig
from sluice.errors import LeaseNotExist, NetworkError, RequestTimeOut
from sluice.formats.kv.snapshot_metadata import METADATA_FILE
from sluice.leases import RESTART_GRACE_MS, bucket_of, key_of
from sluice.model import TableBucket
from sluice.server.coordinator.leases.store import SqliteLeaseStore
from sluice.server.storage.database import Database
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import Api, Role
from tests.support.harness.findings import finding
from tests.support.programs.clocked_server import ClockedServerProcess
from tests.support.programs.processes import wait_for
from tests.support.statuses.lease_parts import Model
from tests.unit.server.kv_support import KV_PATH, KvCaller
from tests.unit.server.support import Caller

BUCKETS = 3
LEASES = ("a", "b", "c", "d", "e")
MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS
DURATIONS_MS = (1_000, MINUTE_MS, RESTART_GRACE_MS, DAY_MS)
STEPS_MS = (999, 1_000, MINUTE_MS, RESTART_GRACE_MS)
PATIENCE_MS = 60_000
DEAD = (NetworkError, RequestTimeOut)
"""What a call raises whose answer is lost."""

Change = Callable[[Model, set[TableBucket]], object]
"""What a call does to the model; told of which buckets the wanted snapshot is not there."""


class PatientCaller(Caller):
    """Waits as long as a busy machine may need: what is not answered then is taken for dead."""

    def call(self, api: Api, request: Any, role: Role | None = None) -> Any:
        asked = role or (Role.COORDINATOR if Role.COORDINATOR in api.roles else Role.TABLET)
        return self.transport.call(asked, api, request, PATIENCE_MS)


class History:
    """One client; its table has three buckets, and snapshots that go as soon as they may."""

    def __init__(
        self, server: ClockedServerProcess, *, seed: int = 0, failpoints: str = ""
    ) -> None:
        self.server, self.clock = server, server.clock
        self.random = random.Random(seed)
        self.model = Model()
        self.unsure: Change | None = None
        self.wanted: dict[TableBucket, int] = {}
        self.puts = 0
        self.start(failpoints)
        with self.connected():
            table_id = KvCaller(self.caller, bucket_count=BUCKETS).table_id
        self.buckets = [TableBucket(table_id, None, number) for number in range(BUCKETS)]

    # -- the server's life

    def start(self, failpoints: str = "") -> None:
        self.started_ms = self.clock.now_ms()
        self.server.start(
            SLUICE_FAILPOINTS=failpoints,
            SLUICE_SERVER_KV_SNAPSHOT_INTERVAL_MS="10",
            SLUICE_SERVER_KV_SNAPSHOT_NUM_RETAINED="1",
            SLUICE_SERVER_KV_SNAPSHOT_LEASE_CHECK_INTERVAL_MS="10",
        )

    @contextmanager
    def connected(self) -> Iterator[None]:
        """A new connection, for as long as the server lives: no call is sent twice."""
        config = ClientConfig(
            self.server.address, request_timeout_ms=PATIENCE_MS, retry_timeout_ms=0
        )
        self.caller = caller = PatientCaller(self.server.address)
        with closing(caller.transport), connect(config) as self.client:
            yield

    @finding()
    def look(self, also: Sequence[Model] = ()) -> None:
        """Kills the server, if it lives, and looks what it has stored: that is the model now.

        :param also: what may be stored, too, because others have changed it.
        """
        self.server.kill()
        with closing(Database(self.server.data_dir / "metadata.sqlite")) as database:
            stored = Model()
            for lease in SqliteLeaseStore(database).load():
                for table_id, holds in lease.held.items():
                    got = {bucket_of(table_id, key): number for key, number in holds.items()}
                    stored.hold(lease.lease_id, got, lease.expires_ms)
            rows = database.query("SELECT table_id, bucket, snapshot_id FROM kv_snapshots")
        there = {(TableBucket(table_id, None, number), s) for table_id, number, s in rows}
        after = copy.deepcopy(self.model)
        if self.unsure is not None:
            gone = {bucket for bucket, s in self.wanted.items() if (bucket, s) not in there}
            self.unsure(after, gone)
            self.unsure = None
        assert vars(stored) in [vars(each) for each in (self.model, after, *also)]
        self.model = stored
        for holds in stored.held.values():
            assert holds.items() <= there, "a snapshot is leased that is not there"

    # -- calls; each raises DEAD if the server dies meanwhile

    def put(self, bucket: TableBucket) -> None:
        self.puts += 1
        KvCaller(self.caller, create=False).put((self.puts, "text", 1), bucket=bucket.bucket)

    def put_everywhere(self) -> None:
        """A snapshot of each bucket."""
        for bucket in self.buckets:
            self.put(bucket)
        self.settle()

    def do(self, call: Callable[[], set[TableBucket] | None], change: Change) -> None:
        self.unsure = change
        gone = call()
        self.unsure = None
        change(self.model, gone or set())

    def acquire(self, lease: str, duration_ms: int, buckets: list[TableBucket]) -> None:
        latest = self.client.leases.latest(KV_PATH).snapshots
        snapshots = [latest[bucket] for bucket in buckets if bucket in latest]
        if not snapshots:
            return
        self.wanted = wanted = {each.bucket: each.snapshot_id for each in snapshots}
        until_ms = self.clock.now_ms() + duration_ms

        def change(model: Model, gone: set[TableBucket]) -> None:
            model.hold(lease, {b: s for b, s in wanted.items() if b not in gone}, until_ms)

        self.do(lambda: self.client.leases.acquire(lease, duration_ms, snapshots), change)

    def renew(self, lease: str, duration_ms: int) -> None:
        until_ms = self.clock.now_ms() + duration_ms

        def call() -> None:
            try:
                self.client.leases.renew(lease, duration_ms, retry=False)
            except LeaseNotExist:
                assert lease not in self.model.held

        self.do(call, lambda model, _: model.hold(lease, {}, until_ms))

    def release(self, lease: str, buckets: list[TableBucket]) -> None:
        self.do(
            lambda: self.client.leases.release(lease, buckets),
            lambda model, _: model.free(lease, buckets.__contains__),
        )

    def drop(self, lease: str) -> None:
        self.do(
            lambda: self.client.leases.drop(lease),
            lambda model, _: model.free(lease, lambda b: True),
        )

    def let_pass(self, ms: int) -> None:
        """Moves the clock and waits for the leases that are over by then, all at once or none."""
        self.clock.move(ms)
        now_ms = self.clock.now_ms()
        after = copy.deepcopy(self.model)
        after.expire(now_ms, now_ms - self.started_ms)
        self.unsure = lambda model, _: model.expire(now_ms, now_ms - self.started_ms)

        def are_expired() -> bool:
            told = self.told()
            assert told in (described(self.model), described(after))
            return told == described(after)

        wait_for("leases to expire", are_expired)
        self.unsure = None
        self.model = after

    def step(self) -> None:
        """One of these calls, by chance."""
        lease, duration_ms = self.random.choice(LEASES), self.random.choice(DURATIONS_MS)
        some = self.random.sample(self.buckets, self.random.randint(1, BUCKETS))
        calls: list[Callable[[], None]] = [
            partial(self.put, some[0]),
            partial(self.acquire, lease, duration_ms, some),
            partial(self.renew, lease, duration_ms),
            partial(self.release, lease, some),
            partial(self.drop, lease),
            partial(self.let_pass, self.random.choice(STEPS_MS)),
        ]
        [call] = self.random.choices(calls, [4, 6, 2, 2, 1, 2])
        call()

    # -- what must hold

    def told(self) -> list[tuple[object, ...]]:
        return [
            (each.lease_id, each.expires_ms, each.buckets, each.oldest_snapshot_id, each.oldest)
            for each in self.client.leases.all()
        ]

    @finding()
    def agree(self) -> None:
        """The server tells of the leases of the model, and each file of theirs is there."""
        assert self.told() == described(self.model)
        for holds in self.model.held.values():
            for bucket, snapshot_id in holds.items():
                assert all(file.is_file() for file in self.files(bucket, snapshot_id))

    def files(self, bucket: TableBucket, snapshot_id: int) -> list[Path]:
        request = pb.GetKvSnapshotMetadataRequest(
            table_id=bucket.table_id, bucket_id=bucket.bucket, snapshot_id=snapshot_id
        )
        reply = self.caller.call(apis.GET_KV_SNAPSHOT_METADATA, request)
        return [Path(urlsplit(file.remote_path).path) for file in reply.snapshot_files]

    def snapshots(self) -> dict[TableBucket, set[int]]:
        request = pb.ListKvSnapshotsRequest(table_id=self.buckets[0].table_id)
        found: dict[TableBucket, set[int]] = {bucket: set() for bucket in self.buckets}
        for each in self.caller.call(apis.LIST_KV_SNAPSHOTS, request).active_snapshots:
            found[self.buckets[each.bucket_id]].add(each.snapshot_id)
        return found

    def settle(self) -> None:
        """Waits until every put is in a snapshot, and nothing is left that may go."""

        def is_settled() -> bool:
            ends = self.client.admin.list_offsets(KV_PATH)
            latest = self.client.leases.latest(KV_PATH).snapshots.items()
            covered = {bucket.bucket: snapshot.log_offset for bucket, snapshot in latest}
            there = self.snapshots()
            for bucket, known in there.items():
                held = {holds[bucket] for holds in self.model.held.values() if bucket in holds}
                assert held <= known, f"bucket {bucket}: {held} are leased, {known} are there"
                if known != held | {max(known, default=0)} & known:
                    return False
            if covered != {bucket: end for bucket, end in ends.items() if end}:
                return False
            used = [set(self.files(b, s)) for b, known in there.items() for s in known]
            stored = self._stored()
            files = {path for path in stored if path.name != METADATA_FILE}
            return files == set().union(*used) and len(stored) == len(files) + len(used)

        wait_for("snapshots to be taken and deleted", is_settled)

    def _stored(self) -> list[Path]:
        """Every file of the snapshots, while folders go: a glob fails when one does under it."""
        walk = os.walk(self.server.data_dir / "remote/kv")
        return [Path(folder, name) for folder, _, names in walk for name in names]


def described(model: Model) -> list[tuple[object, ...]]:
    """As :meth:`History.told`."""
    lines: list[tuple[object, ...]] = []
    for lease, holds in sorted(model.held.items()):
        oldest, _, _, bucket = min((s, b.table_id, key_of(b), b) for b, s in holds.items())
        lines.append((lease, model.until[lease], len(holds), oldest, bucket))
    return lines
