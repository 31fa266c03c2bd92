"""Random histories of leases on the real record of KV snapshots, with files on a disk.

Snapshots are taken and deleted as the coordinator does it. After every step each file of what the
model says is leased must be there, and after a deletion nothing else but the newest two.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sluice.errors import LeaseNotExist, StorageError
from sluice.leases import RESTART_GRACE_MS, BucketKey, key_of
from sluice.model import TableBucket
from sluice.server.coordinator.leases.kv_snapshots import IsLeased
from sluice.server.coordinator.leases.leases import KvSnapshotLeases
from sluice.server.coordinator.leases.store import SqliteLeaseStore
from sluice.server.data_dir import local_path
from tests.support.statuses.lease_parts import FaultyStore, ManualClock, Model
from tests.unit.server.coordinator.leases.test_leases_stateful import (
    DURATIONS,
    FAULTS,
    LEASES,
    MEMORY,
    NEVER_MS,
)
from tests.unit.server.snapshot_store import PARTED, Store

BUCKETS = st.integers(0, 2)
"""Two of a table without partitions, one of a partition."""
SHARED = st.sets(st.sampled_from("abcde"))
AGES = st.sampled_from([0, 0, 1, 2])
RETAINED = 2


class LeasedStore(Store):
    """The snapshots, and the leases on them, in one metadata file."""

    def __init__(self, root: Path, clock: ManualClock) -> None:
        self.clock = clock
        super().__init__(root)

    def opened(self) -> IsLeased:
        self.faulty = FaultyStore(SqliteLeaseStore(self.database))
        self.leases = KvSnapshotLeases(
            self.faulty,
            self.clock,
            self.catalog.has_partition,
            lambda: self.snapshots.retain(),
        )
        self.leases.start(NEVER_MS)
        self.started = self.clock.ms
        return self.leases.is_leased

    def close(self) -> None:
        self.leases.stop()
        self.database.close()


class CoordinatorWithFiles(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None)
        self.clock = ManualClock()
        self.store = LeasedStore(Path(self.folder.name), self.clock)
        self.buckets = [self.store.bucket(), self.store.bucket(number=1), self.store.bucket(PARTED)]
        self.model = Model()
        self.offset = 0

    def teardown(self) -> None:
        self.store.close()
        self.folder.cleanup()

    def attempt(
        self, fault: str, call: Callable[[], object], change: Callable[[Model], object]
    ) -> None:
        """A call, and what it means for the model if it gets to the disk."""
        after = copy.deepcopy(self.model)
        change(after)
        self.store.faulty.fault = fault
        try:
            call()
        except StorageError:
            assert fault
            if fault == "before":
                return
        finally:
            self.store.faulty.fault = ""
        self.model = after

    # -- snapshots come and go

    @initialize()
    def begin(self) -> None:
        self.snapshot({0, 1, 2}, {"a", "b"}, 1)

    @rule(numbers=st.sets(BUCKETS, min_size=1), shared=SHARED, times=st.integers(1, RETAINED + 1))
    def snapshot(self, numbers: set[int], shared: set[str], times: int) -> None:
        """Each completion deletes older ones of the bucket. Shared files are used by several.

        A name is used again only while its file is there: a tablet never writes one twice.
        """
        for bucket in [self.buckets[number] for number in sorted(numbers) * times]:
            self.offset += 1
            there = self.store.files(bucket)
            names = [name if name in there else f"{name}{self.offset}" for name in sorted(shared)]
            self.store.take(self.offset, *names, bucket=bucket)
            self.only_what_may_stay(bucket)

    @rule()
    def delete_what_may_go(self) -> None:
        self.store.snapshots.retain()
        for bucket in self.buckets:
            self.only_what_may_stay(bucket)

    @rule(written=st.booleans())
    def restart(self, written: bool) -> None:
        """A kill, perhaps when a snapshot's files are written and its record is not."""
        if written:
            self.offset += 1
            self.store.write(self.buckets[0], self.offset, f"x{self.offset}")
        self.store.close()
        self.store.open()
        for bucket in self.buckets:
            self.only_what_may_stay(bucket)

    # -- leases

    @rule(lease=LEASES, ages=st.dictionaries(BUCKETS, AGES, min_size=1),
          duration=DURATIONS, fault=FAULTS)  # fmt: skip
    def acquire(self, lease: str, ages: dict[int, int], duration: int, fault: str) -> None:
        """Of each bucket the newest snapshot, or one that many behind it, gone or not."""
        wanted = {
            (bucket := self.buckets[number]): self.store.snapshots.next_id(bucket) - 1 - age
            for number, age in ages.items()
        }
        got = {b: s for b, s in wanted.items() if s in self.store.ids(b)}
        by_table: dict[int, dict[BucketKey, int]] = {}
        for bucket, snapshot_id in wanted.items():
            by_table.setdefault(bucket.table_id, {})[key_of(bucket)] = snapshot_id

        def call() -> None:
            told = self.store.leases.acquire(lease, duration, by_table, self.store.snapshots)
            assert sum(map(len, told.values())) == len(wanted) - len(got)

        self.attempt(fault, call, lambda m: m.hold(lease, got, self.clock.ms + duration))

    @rule(lease=LEASES, duration=DURATIONS, fault=FAULTS)
    def renew(self, lease: str, duration: int, fault: str) -> None:
        def call() -> None:
            with suppress(LeaseNotExist):
                self.store.leases.renew(lease, duration)
                assert lease in self.model.held

        self.attempt(fault, call, lambda m: m.hold(lease, {}, self.clock.ms + duration))

    @rule(lease=LEASES, numbers=st.sets(BUCKETS), fault=FAULTS)
    def release(self, lease: str, numbers: set[int], fault: str) -> None:
        going = {self.buckets[number] for number in numbers}
        self.attempt(
            fault,
            lambda: self.store.leases.release(lease, going),
            lambda m: m.free(lease, going.__contains__),
        )

    @precondition(lambda self: self.model.held)
    @rule(lease=LEASES, fault=FAULTS)
    def drop(self, lease: str, fault: str) -> None:
        self.attempt(
            fault, lambda: self.store.leases.drop(lease), lambda m: m.free(lease, lambda b: True)
        )

    @rule(step=st.sampled_from([999, 60_000, RESTART_GRACE_MS, 3_600_000]), fault=FAULTS)
    def wait(self, step: int, fault: str) -> None:
        """The check deletes at once what an expired lease held."""
        self.clock.ms += step

        now, uptime = self.clock.ms, self.clock.ms - self.store.started
        self.attempt(fault, self.store.leases.check, lambda m: m.expire(now, uptime))

    # -- what must hold

    def only_what_may_stay(self, bucket: TableBucket) -> None:
        """Called after a deletion: the newest and what is leased, and their files, no others."""
        count = self.store.snapshots.next_id(bucket)
        may = {s for s in range(count) if self.model.leased(bucket, s)}
        may |= set(range(max(count - RETAINED, 0), count))
        assert set(self.store.ids(bucket)) == may
        used = {f"snap-{s}" for s in may}
        for snapshot_id in may:
            shared = self.store.snapshots.metadata(bucket, snapshot_id).shared
            used |= {local_path(file.path).name for file in shared}
        assert self.store.files(bucket) == used

    @invariant()
    def what_is_leased_has_all_its_files(self) -> None:
        for holds in self.model.held.values():
            for bucket, snapshot_id in holds.items():
                snapshot = self.store.snapshots.metadata(bucket, snapshot_id)
                for file in snapshot.files:
                    assert local_path(file.path).stat().st_size == file.size

    @invariant()
    def the_leases_are_the_model_s(self) -> None:
        _, leases = self.store.leases.all()
        assert [(lease.lease_id, lease.expires_ms) for lease in leases] == sorted(
            (lease, self.model.until[lease]) for lease in self.model.held
        )


TestCoordinatorWithFiles = CoordinatorWithFiles.TestCase
TestCoordinatorWithFiles.settings = settings(max_examples=20, stateful_step_count=30, deadline=None)
