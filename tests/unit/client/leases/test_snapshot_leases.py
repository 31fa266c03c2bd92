"""Leases by the client on a real server whose snapshots are really deleted."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from sluice.client import Client, LeaseClient, connect
from sluice.client.leases import calls as client_leases
from sluice.client.leases import keeper as lease_keeper
from sluice.client.leases.calls import TRIES_MAX, BucketSelection, LatestSnapshots
from sluice.client.leases.snapshot_lease import SnapshotLease, bucket_selections
from sluice.clock import Clock
from sluice.config import ServerConfig
from sluice.errors import (
    CorruptMessage,
    LeaseLost,
    LeaseNotExist,
    LeaseNotObtained,
    NetworkError,
    NonPrimaryKeyTable,
    TableNotExist,
)
from sluice.model import Partition, TableBucket, TablePath
from sluice.server.cluster import EmbeddedCluster
from sluice.server.coordinator.calls.lease_calls import LeaseService
from sluice.server.coordinator.leases.leases import Snapshots
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from tests.support.statuses.lease_parts import ManualClock
from tests.unit.server.kv_support import KvCaller
from tests.unit.server.support import LOG_TABLE, Caller


class Place:
    """A server that deletes all but the newest snapshot, a client, and a table of two buckets."""

    def __init__(self, folder: Path, clock: Clock | None = None) -> None:
        config = ServerConfig(
            data_dir=str(folder),
            listen="grpc://127.0.0.1:0,fluss://127.0.0.1:0",
            kv_snapshot_interval_ms=0,
            kv_snapshot_num_retained=1,
            max_workers=8,
        )
        self.cluster = EmbeddedCluster(config, clock)
        self.caller = Caller(self.cluster.start())
        self.client: Client = connect(self.cluster.address)
        self.kv = KvCaller(self.caller, bucket_count=2)

    def snapshot(self, *buckets: int) -> None:
        """A new snapshot of buckets, of both by default; the ones before go if they may."""
        for bucket in buckets or (0, 1):
            self.kv.put((1, "text", 1), bucket=bucket)
        self.cluster.take_kv_snapshots(self.kv.path)

    def bucket(self, number: int) -> TableBucket:
        return TableBucket(self.kv.table_id, None, number)

    def parts(self) -> list[BucketSelection]:
        return bucket_selections(self.client.admin, self.client.admin.table_info(self.kv.path))

    def files(self, bucket: TableBucket, snapshot_id: int) -> list[Path]:
        request = pb.GetKvSnapshotMetadataRequest(
            table_id=bucket.table_id, bucket_id=bucket.bucket, snapshot_id=snapshot_id
        )
        reply = self.caller.call(apis.GET_KV_SNAPSHOT_METADATA, request)
        return [Path(urlsplit(file.remote_path).path) for file in reply.snapshot_files]

    def held(self) -> dict[str, int]:
        return {lease.lease_id: lease.buckets for lease in self.client.leases.all()}

    def close(self) -> None:
        self.client.close()
        self.caller.transport.close()
        self.cluster.stop()


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leases are renewed at once, however long they last."""
    monkeypatch.setattr(lease_keeper, "_INTERVAL_MAX_S", 0.02)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path / "data")
    yield made
    made.close()


class Hasty(LeaseClient):
    """Newer snapshots are made, and these deleted, between looking and leasing."""

    def __init__(self, place: Place, times: int) -> None:
        super().__init__(place.client._connection, ManualClock())
        self.place, self.times, self.looks = place, times, 0

    def latest(self, path: TablePath, partition: Partition | None = None) -> LatestSnapshots:
        found = super().latest(path, partition)
        self.looks += 1
        if self.looks <= self.times:
            self.place.snapshot(0)
        return found


def test_the_newest_snapshots_are_held_for_the_block(place: Place) -> None:
    place.snapshot(0)
    with place.client.snapshot_lease("job", place.kv.path) as lease:
        [(bucket, snapshot)] = lease.snapshots.items()
        assert (bucket, snapshot.snapshot_id) == (place.bucket(0), 0)
        assert lease.without_snapshot == {place.bucket(1)}
        assert lease.is_held
        files = place.files(bucket, 0)
        for _ in range(3):
            place.snapshot()
        assert all(file.is_file() for file in files)
        assert place.held() == {"job": 1}
    assert place.held() == {}
    place.snapshot()
    assert not all(file.is_file() for file in files)


@pytest.mark.parametrize(
    ("on_exit", "left"), [("drop", {}), ("release", {"job": 1}), ("keep", {"job": 2})]
)
def test_how_a_block_is_left(place: Place, on_exit: str, left: dict[str, int]) -> None:
    place.snapshot()
    path, mine, other = place.kv.path, {place.bucket(0)}, {place.bucket(1)}
    with place.client.snapshot_lease("job", path, buckets=other, on_exit="keep") as first:
        assert set(first.snapshots) == other
    with (
        pytest.raises(ValueError, match="in the block"),
        place.client.snapshot_lease("job", path, buckets=mine, on_exit=on_exit),  # type: ignore[arg-type]
    ):
        raise ValueError("in the block")
    assert place.held() == left


def test_released_one_by_one(place: Place) -> None:
    place.snapshot()
    with place.client.snapshot_lease("job", place.kv.path) as lease:
        lease.release([place.bucket(0)])
        assert place.held() == {"job": 1}
        assert set(lease.snapshots) == {place.bucket(1)}
        lease.release([place.bucket(0), place.bucket(1)])
        assert place.held() == {}
        assert not lease.is_held
        lease.check()  # given up, not lost


def test_a_snapshot_that_goes_meanwhile_is_taken_anew(place: Place) -> None:
    place.snapshot()
    leases = Hasty(place, times=3)
    found = leases.acquire_latest("job", place.parts())
    ids = {bucket.bucket: s.snapshot_id for bucket, s in found.snapshots.items()}
    assert ids == {0: 3, 1: 0}
    assert leases.looks == 4
    assert place.held() == {"job": 2}
    assert all(
        f.is_file() for b, s in found.snapshots.items() for f in place.files(b, s.snapshot_id)
    )


def test_given_up_after_ten_tries_with_the_reason_of_each_bucket(place: Place) -> None:
    place.snapshot()
    leases = Hasty(place, times=100)
    with pytest.raises(
        LeaseNotObtained, match="snapshots of 1 buckets could not be leased in 10 attempts"
    ) as caught:
        leases.acquire_latest("job", place.parts())
    assert leases.looks == TRIES_MAX
    [reason] = caught.value.details["reasons"].values()
    assert reason == (
        f"bucket {place.bucket(0)} of db.kv: its newest KV snapshot 9 was deleted before it could"
        " be leased"
    )
    assert place.held() == {}, "what was obtained is given back"


def test_given_up_after_a_minute(place: Place) -> None:
    place.snapshot()
    leases = Hasty(place, times=100)
    clock = leases._clock
    assert isinstance(clock, ManualClock)
    slow = leases.latest

    def latest(path: TablePath, partition: Partition | None = None) -> LatestSnapshots:
        clock.sleep(25)
        return slow(path, partition)

    leases.latest = latest  # type: ignore[method-assign]
    with pytest.raises(LeaseNotObtained, match="in 3 attempts and 75 s"):
        leases.acquire_latest("job", place.parts())


class Lossy(LeaseClient):
    """The Nth call of an Api fails: its answer is lost, or (``unsent``) it never gets there."""

    def __init__(self, place: Place, api: apis.Api, fails: int, *, unsent: bool = False) -> None:
        super().__init__(place.client._connection, ManualClock())
        self.api, self.fails, self.unsent = api, fails, unsent

    def _ask(self, api: apis.Api, request: Any, *, retry: bool = True) -> Any:
        self.fails -= api is self.api
        fails = api is self.api and self.fails == 0
        if fails and self.unsent:
            raise NetworkError("not sent")
        reply = super()._ask(api, request, retry=retry)
        if fails:
            raise NetworkError("the answer is lost")
        return reply

    def lease(self, place: Place) -> SnapshotLease:
        return SnapshotLease(
            self, place.client.admin, "job", [place.kv.path],
            buckets=None, duration_ms=600_000, on_exit="drop",
        )  # fmt: skip


@pytest.mark.parametrize(("per_call", "fails", "unsent"), [(10, 1, False), (1, 2, True)])
def test_what_an_acquire_that_fails_may_have_taken_is_given_back(
    place: Place, monkeypatch: pytest.MonkeyPatch, per_call: int, fails: int, unsent: bool
) -> None:
    monkeypatch.setattr(client_leases, "_PER_CALL_MAX", per_call)
    place.snapshot()
    leases = Lossy(place, apis.ACQUIRE_KV_SNAPSHOT_LEASE, fails, unsent=unsent)
    with pytest.raises(NetworkError):
        leases.acquire_latest("job", place.parts())
    assert place.held() == {}


def test_what_was_obtained_is_given_back_if_it_cannot_be_renewed(place: Place) -> None:
    place.snapshot()
    lease = Lossy(place, apis.RENEW_KV_SNAPSHOT_LEASE, 1).lease(place)
    with pytest.raises(NetworkError):
        lease.acquire()
    assert place.held() == {}
    assert not lease.snapshots


def test_the_last_ones_that_could_not_be_released_are_released_in_the_end(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    place.snapshot()
    with Lossy(place, apis.RELEASE_KV_SNAPSHOT_LEASE, 1, unsent=True).lease(place) as lease:
        lease.release(list(lease.snapshots))
        assert not lease.snapshots
        assert place.held() == {"job": 2}
    assert "may hold 2 buckets until it expires: not sent" in caplog.text
    assert place.held() == {}


def test_one_bucket_that_may_stay_leased_is_told_as_one(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    leases = Lossy(place, apis.RELEASE_KV_SNAPSHOT_LEASE, 1, unsent=True)
    assert not leases.try_release("job", [place.bucket(0)])
    assert "lease job may hold 1 bucket until it expires: not sent" in caplog.text


class Confused(LeaseClient):
    """Every answer to an acquire names a bucket more."""

    def _ask(self, api: apis.Api, request: Any, *, retry: bool = True) -> Any:
        reply = super()._ask(api, request, retry=retry)
        if api is apis.ACQUIRE_KV_SNAPSHOT_LEASE:
            table = reply.unavailable_snapshots.add(table_id=4711)
            table.bucket_snapshots.add(bucket_id=3, snapshot_id=0)
        return reply


def test_an_answer_about_a_bucket_that_was_not_asked_for(place: Place) -> None:
    place.snapshot()
    leases = Confused(place.client._connection, ManualClock())
    with pytest.raises(CorruptMessage, match="names 1 buckets that were not requested.*4711"):
        leases.acquire_latest("job", place.parts())
    assert place.held() == {}


def test_a_table_that_is_dropped_or_made_again(place: Place) -> None:
    place.snapshot()
    parts = place.parts()
    place.caller.drop_table(place.kv.path)
    with pytest.raises(TableNotExist):
        place.client.leases.acquire_latest("job", parts)
    KvCaller(place.caller, place.kv.path)
    with pytest.raises(TableNotExist, match="was dropped and created again"):
        place.client.leases.acquire_latest("job", parts)
    place.caller.create_table(TablePath("db", "log"), LOG_TABLE)
    with (
        pytest.raises(NonPrimaryKeyTable),
        place.client.snapshot_lease("job", TablePath("db", "log")),
    ):
        raise AssertionError


@pytest.mark.usefixtures("often")
def test_a_lost_lease_is_told_at_once(place: Place) -> None:
    place.snapshot()
    heard = threading.Event()
    with place.client.snapshot_lease(
        "job", place.kv.path, duration_ms=600_000, on_lost=lambda _: heard.set()
    ) as lease:
        place.client.leases.drop("job")
        assert heard.wait(60)
        assert lease.wait_lost(60)
        assert not lease.is_held
        with pytest.raises(LeaseLost, match="the coordinator reports: lease job does not exist"):
            lease.snapshots  # noqa: B018
    assert place.held() == {}, "and the keeper has not made it again"


def test_leases_over_fluss_s_own_protocol(place: Place) -> None:
    place.snapshot()
    with (
        connect(place.cluster.addresses[1]) as client,
        client.snapshot_lease("job", place.kv.path, duration_ms=60_000) as lease,
    ):
        assert len(lease.snapshots) == 2
        [info] = client.leases.all()
        assert (info.lease_id, info.buckets, info.oldest_path) == ("job", 2, place.kv.path)
        client.leases.drop("job")
        with pytest.raises(LeaseNotExist, match="lease job does not exist"):
            client.leases.renew("job", 60_000)


@pytest.mark.usefixtures("often")
def test_a_lease_is_renewed_far_beyond_its_duration(tmp_path: Path) -> None:
    """By the server's clock, which the test moves; the keeper's own sees no time go by."""
    clock, minutes_10 = ManualClock(), 600_000
    place = Place(tmp_path / "data", clock)
    try:
        place.snapshot()
        begun = clock.ms
        with place.client.snapshot_lease("job", place.kv.path, duration_ms=minutes_10) as lease:
            for _ in range(4):
                clock.ms += minutes_10 * 3 // 4
                while place.client.leases.all()[0].renewed_ms < clock.ms:
                    assert not lease.wait_lost(0.01)
            assert clock.ms == begun + 3 * minutes_10
            lease.check()
            assert place.held() == {"job": 2}
    finally:
        place.close()


def test_a_cluster_without_leases_is_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(LeaseService, "handlers", lambda self: {})  # as a server of before
    old = Place(tmp_path / "data")
    try:
        old.snapshot()
        with caplog.at_level(logging.WARNING):
            for _ in range(2):
                with old.client.snapshot_lease("job", old.kv.path) as lease:
                    assert set(lease.snapshots) == {old.bucket(0), old.bucket(1)}
                    assert not lease.is_held
                    lease.release(lease.snapshots)
        [record] = [one for one in caplog.records if one.name.startswith("sluice.")]
        assert "without a lease" in record.getMessage()
    finally:
        old.close()


def test_a_cluster_that_never_looks_is_looked_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Fluss: leases are confirmed on what does not exist, and there is no call to renew."""
    truthful, handlers = LeaseService.acquire, LeaseService.handlers

    class Blind:
        def __init__(self, snapshots: Snapshots) -> None:
            self.lock = snapshots.lock

        def exists(self, bucket: TableBucket, snapshot_id: int) -> bool:
            return True

        def of_table(self, table_id: int) -> Any:
            return {}

    def acquire(self: LeaseService, request: pb.AcquireKvSnapshotLeaseRequest) -> Any:
        return truthful(LeaseService(self._catalog, self._leases, Blind(self._snapshots)), request)

    def without_renewal(self: LeaseService) -> Any:
        return {k: v for k, v in handlers(self).items() if k is not apis.RENEW_KV_SNAPSHOT_LEASE}

    monkeypatch.setattr(LeaseService, "acquire", acquire)
    monkeypatch.setattr(LeaseService, "handlers", without_renewal)
    fluss = Place(tmp_path / "data")
    try:
        fluss.snapshot()
        found = Hasty(fluss, times=2).acquire_latest("job", fluss.parts())
        assert {s.snapshot_id for s in found.snapshots.values()} == {2, 0}
        for bucket, snapshot in found.snapshots.items():
            assert all(file.is_file() for file in fluss.files(bucket, snapshot.snapshot_id))
        [before] = fluss.client.leases.all()
        fluss.client.leases.renew("job", 7_200_000)
        [after] = fluss.client.leases.all()
        assert (after.buckets, after.expires_ms != before.expires_ms) == (2, True)
    finally:
        fluss.close()
