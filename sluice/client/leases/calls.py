"""Leases on KV snapshots: the calls, and the acquisition of the newest snapshots.

An Apache Fluss coordinator confirms a lease on any snapshot, whether it exists or not. There, the
client checks each snapshot after it is leased. Sluice's own server reports missing snapshots.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from sluice.client.connection.connection import Connection
from sluice.clock import Clock, SystemClock
from sluice.errors import (
    AuthorizationError,
    CorruptMessage,
    FlussError,
    KvSnapshotNotExist,
    LeaseNotObtained,
    PartitionNotExists,
    TableNotExist,
    UnsupportedVersion,
)
from sluice.model import (
    BucketSnapshot,
    LeasedTable,
    LeaseInfo,
    Partition,
    TableBucket,
    TableInfo,
    TablePath,
)
from sluice.quantities import counted
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.messages.table_paths import bucket_ids, bucket_in, path_of, table_path

_LOG = logging.getLogger(__name__)

DAY_MS = 24 * 60 * 60 * 1000
TRIES_MAX = 10
"""Maximum attempts to lease newer snapshots in place of deleted ones."""
OBTAIN_TIMEOUT_S = 60.0
"""No attempt starts later than this after the first, in seconds."""
_WAIT_S = 0.1  # after the first attempt; doubled each time
_WAIT_MAX_S = 5.0
_PER_CALL_MAX = 100_000
_PARALLEL_CHECKS = 8
_NAMED_MAX = 5


@dataclass(frozen=True, slots=True)
class BucketSelection:
    """Selected buckets of a table or of one of its partitions."""

    info: TableInfo
    partition: Partition | None
    buckets: frozenset[int]

    def bucket(self, number: int) -> TableBucket:
        partition_id = self.partition.partition_id if self.partition else None
        return TableBucket(self.info.table_id, partition_id, number)


@dataclass(slots=True)
class AcquiredSnapshots:
    """The acquired snapshots, and the buckets that have none."""

    snapshots: dict[TableBucket, BucketSnapshot] = field(default_factory=dict)
    without: set[TableBucket] = field(default_factory=set)
    """Buckets without a snapshot yet, or of a partition that was dropped in the meantime."""
    leased: bool = True
    """False if the cluster does not support leases: it may delete the snapshots at any time."""


class LeaseClient:
    """Acquires, renews, releases and lists leases. Safe for use by many threads."""

    def __init__(self, connection: Connection, clock: Clock | None = None) -> None:
        self._connection = connection
        self._clock = clock or SystemClock()
        self._warned = False

    # ---- calls ----

    def latest(self, path: TablePath, partition: Partition | None = None) -> LatestSnapshots:
        """Returns the newest snapshot of each bucket that has one.

        :raises TableNotExist: the table does not exist.
        :raises PartitionNotExists: the partition does not exist.
        :raises NonPrimaryKeyTable: the table is a log table, which has no snapshots.
        """
        request = pb.GetLatestKvSnapshotsRequest(table_path=table_path(path))
        if partition is not None:
            request.partition_name = partition.name
        reply = self._ask(apis.GET_LATEST_KV_SNAPSHOTS, request)
        partition_id = reply.partition_id if reply.HasField("partition_id") else None
        found = {}
        for entry in reply.latest_snapshots:
            if entry.HasField("snapshot_id"):
                bucket = TableBucket(reply.table_id, partition_id, entry.bucket_id)
                found[bucket] = BucketSnapshot(bucket, entry.snapshot_id, entry.log_offset)
        return LatestSnapshots(reply.table_id, partition_id, found)

    def acquire(
        self, lease_id: str, duration_ms: int, snapshots: Iterable[BucketSnapshot]
    ) -> set[TableBucket]:
        """Leases snapshots for ``duration_ms``; returns the buckets whose snapshot does not exist.

        The lease keeps its snapshots of other buckets, and they are renewed for the same duration.

        :raises UnsupportedVersion: the cluster does not support leases.
        :raises InvalidLease, UnknownTableOrBucket, NonPrimaryKeyTable: the request is not valid.
        :raises CorruptMessage: the response names a bucket that was not requested.
        """
        wanted = list(snapshots)
        unavailable: set[TableBucket] = set()
        rest = iter(wanted)
        while together := list(islice(rest, _PER_CALL_MAX)):
            reply = self._ask(
                apis.ACQUIRE_KV_SNAPSHOT_LEASE, _acquire_request(lease_id, duration_ms, together)
            )
            unavailable.update(_unavailable(reply))
        if strange := unavailable - {snapshot.bucket for snapshot in wanted}:
            raise CorruptMessage(
                f"lease {lease_id}: the response of the coordinator names {len(strange)} buckets"
                f" that were not requested, such as {min(map(str, strange))}: check that the"
                " versions of server and client match"
            )
        if not self._connection.coordinator_offers(apis.RENEW_KV_SNAPSHOT_LEASE):
            unavailable |= self._missing(wanted)  # Apache Fluss does not report them
        return unavailable

    def renew(self, lease_id: str, duration_ms: int, *, retry: bool = True) -> None:
        """Extends a lease to ``duration_ms`` from now.

        An Apache Fluss cluster has no call for this. There, an acquire without snapshots extends
        the lease; it creates a missing lease instead of reporting an error.

        :raises LeaseNotExist: the lease was dropped or has expired.
        :raises UnsupportedVersion: the cluster does not support leases.
        """
        request = pb.RenewKvSnapshotLeaseRequest(lease_id=lease_id, lease_duration_ms=duration_ms)
        try:
            self._ask(apis.RENEW_KV_SNAPSHOT_LEASE, request, retry=retry)
        except UnsupportedVersion:
            nothing = _acquire_request(lease_id, duration_ms, [])
            self._ask(apis.ACQUIRE_KV_SNAPSHOT_LEASE, nothing, retry=retry)

    def release(self, lease_id: str, buckets: Iterable[TableBucket]) -> None:
        """Releases the snapshots of some buckets; buckets that are not held are skipped."""
        rest = iter(buckets)
        while together := list(islice(rest, _PER_CALL_MAX)):
            request = pb.ReleaseKvSnapshotLeaseRequest(lease_id=lease_id)
            for bucket in together:
                request.buckets_to_release.add(**bucket_ids(bucket))
            self._ask(apis.RELEASE_KV_SNAPSHOT_LEASE, request)

    def try_release(self, lease_id: str, buckets: Collection[TableBucket]) -> bool:
        """Releases buckets and returns whether that succeeded.

        An error is logged: the snapshots stay leased until the lease expires.
        """
        try:
            self.release(lease_id, buckets)
        except FlussError as error:
            _LOG.warning(
                "lease %s may hold %s until it expires: %s",
                lease_id,
                counted(len(buckets), "bucket"),
                error,
            )
            return False
        return True

    def drop(self, lease_id: str) -> None:
        """Drops a lease with all its snapshots; does nothing if it does not exist."""
        request = pb.DropKvSnapshotLeaseRequest(lease_id=lease_id)
        self._ask(apis.DROP_KV_SNAPSHOT_LEASE, request)

    def all(self) -> list[LeaseInfo]:
        """Returns all leases, ordered by id.

        :raises UnsupportedVersion: the coordinator does not support the call.
        """
        reply = self._ask(apis.LIST_KV_SNAPSHOT_LEASES, pb.ListKvSnapshotLeasesRequest())
        return [_info(entry, reply.current_time) for entry in reply.leases]

    def of_table(self, table_id: int) -> list[LeaseInfo]:
        """Returns the leases that hold snapshots of a table, ordered by id.

        ``tables`` of each has that table alone. An earlier server tells no tables of a lease but
        that of its oldest snapshot, so leases may be missing then.

        :raises UnsupportedVersion: the coordinator does not support the call.
        """
        request = pb.ListKvSnapshotLeasesRequest(table_id=table_id)
        reply = self._ask(apis.LIST_KV_SNAPSHOT_LEASES, request)
        found = [_info(entry, reply.current_time) for entry in reply.leases]
        return [one for one in found if one.tables or one.oldest.table_id == table_id]

    # ---- newest snapshots ----

    def acquire_latest(
        self, lease_id: str, parts: Sequence[BucketSelection], duration_ms: int = DAY_MS
    ) -> AcquiredSnapshots:
        """Leases the newest snapshot of each bucket.

        If a snapshot is deleted first, the next newest is tried. If the cluster does not support
        leases, one warning is logged, and the snapshots are returned without a lease.

        :raises LeaseNotObtained: not all could be leased within ten attempts or a minute; then none
            of these buckets is leased.
        :raises TableNotExist: the table was dropped, or dropped and created again.
        :raises AuthorizationError: another user has a lease of this id.
        """
        found, asked = AcquiredSnapshots(), set[TableBucket]()
        left = {part.bucket(number): part for part in parts for number in part.buckets}
        begun, tries, wait_s = self._clock.monotonic_s(), 0, _WAIT_S
        try:
            while left:
                tries += 1
                newest = self._newest(left, found)
                asked |= newest.keys()
                unavailable = self._acquire(lease_id, duration_ms, newest, found)
                left = {bucket: left[bucket] for bucket in unavailable}
                found.snapshots |= {b: s for b, s in newest.items() if b not in left}
                elapsed_s = self._clock.monotonic_s() - begun
                if left and (tries >= TRIES_MAX or elapsed_s + wait_s > OBTAIN_TIMEOUT_S):
                    raise _not_obtained(lease_id, left, newest, tries, elapsed_s)
                if left:
                    self._clock.sleep(wait_s)
                    wait_s = min(2 * wait_s, _WAIT_MAX_S)
        except AuthorizationError:
            raise  # another user's lease: it holds nothing for this caller
        except BaseException:
            if asked and found.leased:  # a failed acquire may have taken effect
                self.try_release(lease_id, asked)
            raise
        return found

    def _newest(
        self, left: Mapping[TableBucket, BucketSelection], found: AcquiredSnapshots
    ) -> dict[TableBucket, BucketSnapshot]:
        newest: dict[TableBucket, BucketSnapshot] = {}
        for part in {id(part): part for part in left.values()}.values():
            wanted = {part.bucket(number) for number in part.buckets} & left.keys()
            try:
                latest = self.latest(part.info.path, part.partition)
            except PartitionNotExists:
                found.without |= wanted
                continue
            if latest.table_id != part.info.table_id:
                raise TableNotExist(
                    f"table {part.info.path} (id {part.info.table_id}) was dropped and created"
                    f" again (id {latest.table_id})"
                )
            there = latest.snapshots if latest.matches(part) else {}
            newest |= {bucket: there[bucket] for bucket in wanted & there.keys()}
            found.without |= wanted - there.keys()
        return newest

    def _acquire(
        self,
        lease_id: str,
        duration_ms: int,
        newest: Mapping[TableBucket, BucketSnapshot],
        found: AcquiredSnapshots,
    ) -> set[TableBucket]:
        if not newest:
            return set()
        try:
            return self.acquire(lease_id, duration_ms, newest.values())
        except UnsupportedVersion as error:
            found.leased = False
            if not self._warned:
                _LOG.warning(
                    "KV snapshots are read without a lease, so the cluster may delete them: %s",
                    error,
                )
                self._warned = True
            return set()

    def _missing(self, snapshots: Sequence[BucketSnapshot]) -> set[TableBucket]:
        def is_missing(snapshot: BucketSnapshot) -> bool:
            request = pb.GetKvSnapshotMetadataRequest(
                snapshot_id=snapshot.snapshot_id, **bucket_ids(snapshot.bucket)
            )
            try:
                self._ask(apis.GET_KV_SNAPSHOT_METADATA, request)
            except KvSnapshotNotExist:
                return True
            return False

        with ThreadPoolExecutor(_PARALLEL_CHECKS, "sluice-lease") as pool:
            missing = pool.map(is_missing, snapshots)
            return {s.bucket for s, gone in zip(snapshots, missing, strict=True) if gone}

    def _ask(self, api: apis.Api, request: Any, *, retry: bool = True) -> Any:
        return self._connection.ask_coordinator(api, request, retry=retry)


@dataclass(frozen=True, slots=True)
class LatestSnapshots:
    """The newest snapshots of a table or of one partition."""

    table_id: int
    partition_id: int | None
    snapshots: Mapping[TableBucket, BucketSnapshot]

    def matches(self, part: BucketSelection) -> bool:
        """Returns False if the partition was dropped and created again."""
        return self.partition_id == (part.partition.partition_id if part.partition else None)


def _acquire_request(
    lease_id: str, duration_ms: int, snapshots: Collection[BucketSnapshot]
) -> pb.AcquireKvSnapshotLeaseRequest:
    request = pb.AcquireKvSnapshotLeaseRequest(lease_id=lease_id, lease_duration_ms=duration_ms)
    tables: dict[int, Any] = {}
    for snapshot in snapshots:
        bucket = snapshot.bucket
        table = tables.get(bucket.table_id)
        if table is None:
            table = request.snapshots_to_lease.add(table_id=bucket.table_id).bucket_snapshots
            tables[bucket.table_id] = table
        table.add(
            partition_id=bucket.partition_id,
            bucket_id=bucket.bucket,
            snapshot_id=snapshot.snapshot_id,
        )
    return request


def _unavailable(reply: Any) -> Iterable[TableBucket]:
    return (
        bucket_in(entry, table.table_id)
        for table in reply.unavailable_snapshots
        for entry in table.bucket_snapshots
    )


def _not_obtained(
    lease_id: str,
    left: Mapping[TableBucket, BucketSelection],
    newest: Mapping[TableBucket, BucketSnapshot],
    tries: int,
    elapsed_s: float,
) -> LeaseNotObtained:
    reasons = {
        str(bucket): f"bucket {bucket} of {part.info.path}: its newest KV snapshot"
        f" {newest[bucket].snapshot_id} was deleted before it could be leased"
        for bucket, part in left.items()
    }
    more = len(reasons) - _NAMED_MAX
    named = [*list(reasons.values())[:_NAMED_MAX], *([f"and {more} more"] if more > 0 else [])]
    return LeaseNotObtained(
        f"lease {lease_id}: the snapshots of {len(left)} buckets could not be leased in {tries}"
        f" attempts and {elapsed_s:.0f} s: {'; '.join(named)}. Retain more snapshots"
        " (kv.snapshot.num-retained) or take them less often (kv.snapshot.interval)",
        reasons=reasons,
    )


def _info(entry: Any, now_ms: int) -> LeaseInfo:
    return LeaseInfo(
        entry.lease_id,
        entry.bucket_count,
        entry.created_time,
        entry.renewed_time,
        entry.expiration_time,
        now_ms,
        bucket_in(entry.oldest_bucket),
        entry.oldest_snapshot_id,
        path_of(entry.oldest_table_path) if entry.HasField("oldest_table_path") else None,
        entry.owner,
        entry.held_bytes if entry.HasField("held_bytes") else None,
        entry.freed_bytes if entry.HasField("freed_bytes") else None,
        tuple(map(_leased_table, entry.tables)),
        entry.table_count if entry.HasField("table_count") else None,
    )


def _leased_table(entry: Any) -> LeasedTable:
    return LeasedTable(
        entry.table_id,
        path_of(entry.table_path) if entry.HasField("table_path") else None,
        entry.bucket_count,
        entry.oldest_snapshot_id,
        entry.held_bytes if entry.HasField("held_bytes") else None,
        entry.freed_bytes if entry.HasField("freed_bytes") else None,
    )
