"""Random histories of a coordinator's leases on a real file, against a model of ten lines.

The model knows who holds what until when. A disk that fails is part of the history: what the file
holds then is what counts.
"""

from __future__ import annotations

import copy
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from sluice.errors import LeaseNotExist, StorageError
from sluice.leases import RESTART_GRACE_MS, BucketKey, bucket_of, key_of
from sluice.model import Schema, TableBucket, TableDescriptor, TableInfo, TablePath
from sluice.server.coordinator.leases.leases import KvSnapshotLeases
from sluice.server.coordinator.leases.store import SqliteLeaseStore
from sluice.server.storage.database import Database
from tests.support.statuses.lease_parts import FaultyStore, ManualClock, MemorySnapshots, Model

LEASES = st.sampled_from(["a", "b", "c"])
HELD = st.integers(0, 5)
"""One of the leases there are; see ``one``."""
BUCKETS = st.builds(TableBucket, st.integers(1, 2), st.none(), st.integers(0, 2)) | st.builds(
    TableBucket, st.just(3), st.integers(7, 8), st.integers(0, 1)
)
DURATIONS = st.sampled_from([1_000, 60_000, 3_600_000])
FAULTS = st.sampled_from(["", "", "", "", "before", "after"])
TABLE = TableInfo(TablePath("db", "t"), 0, 1, TableDescriptor(Schema(())), 0, 0)
NEVER_MS = 86_400_000
MEMORY = Path("/dev/shm")


class Coordinator(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        # In memory, if there is such a place: no power is lost here, and each step syncs.
        self.folder = tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None)
        self.clock = ManualClock()
        self.snapshots = MemorySnapshots()
        self.model = Model()
        self.dropped: set[tuple[int, int | None]] = set()

    @initialize(buckets=st.sets(BUCKETS, min_size=2))
    def begin(self, buckets: set[TableBucket]) -> None:
        for bucket in buckets:
            self.snapshots.complete(bucket)
        self.start()

    def start(self) -> None:
        self.database = Database(Path(self.folder.name) / "metadata.sqlite")
        self.store = FaultyStore(SqliteLeaseStore(self.database))
        self.leases = KvSnapshotLeases(
            self.store, self.clock, lambda *owner: owner not in self.dropped
        )
        self.snapshots.is_leased = self.leases.is_leased
        self.leases.start(NEVER_MS)
        self.started = self.clock.ms

    def stop(self) -> None:
        self.leases.stop()
        self.database.close()

    def teardown(self) -> None:
        if hasattr(self, "database"):
            self.stop()
        self.folder.cleanup()

    def attempt(
        self, fault: str, call: Callable[[], object], change: Callable[[Model], object]
    ) -> None:
        """A call, and what it means for the model if it gets to the disk."""
        self.store.fault = fault
        after = copy.deepcopy(self.model)
        change(after)
        try:
            call()
            assert not self.store.fault or vars(after) == vars(self.model), "a fault had no effect"
        except StorageError:
            assert fault
            if fault == "before":
                return
        finally:
            self.store.fault = ""
        self.model = after

    def one(self, number: int) -> str:
        """Nearly always a lease that is there."""
        names = sorted(self.model.held)
        return names[number % len(names)] if number else "never-was"

    # -- clients

    @rule(lease=LEASES, duration=DURATIONS, fault=FAULTS)
    def acquire_the_newest_of_all(self, lease: str, duration: int, fault: str) -> None:
        wanted = {bucket: 0 for bucket, known in self.snapshots.there.items() if known}
        if wanted:
            self.acquire(lease, wanted, duration, fault)

    @rule(lease=LEASES, wanted=st.dictionaries(BUCKETS, st.integers(0, 2), min_size=1, max_size=4),
          duration=DURATIONS, fault=FAULTS)  # fmt: skip
    def acquire(
        self, lease: str, wanted: dict[TableBucket, int], duration: int, fault: str
    ) -> None:
        """Of each bucket the newest snapshot, or one that many behind it, gone or not."""
        ids = {b: (self.snapshots.there.get(b) or [0])[-1] - age for b, age in wanted.items()}
        there = {b: s for b, s in ids.items() if s in self.snapshots.there.get(b, ())}
        by_table: dict[int, dict[BucketKey, int]] = {}
        for bucket, snapshot in ids.items():
            by_table.setdefault(bucket.table_id, {})[key_of(bucket)] = snapshot

        def call() -> None:
            answer = self.leases.acquire(lease, duration, by_table, self.snapshots)
            told = {bucket_of(t, k): s for t, holds in answer.items() for k, s in holds.items()}
            assert told == {b: s for b, s in ids.items() if b not in there}

        self.attempt(fault, call, lambda m: m.hold(lease, there, self.clock.ms + duration))

    @precondition(lambda self: self.model.held)
    @rule(number=HELD, duration=DURATIONS, fault=FAULTS, old_way=st.booleans())
    def renew(self, number: int, duration: int, fault: str, old_way: bool) -> None:
        lease = self.one(number)

        def call() -> None:
            if old_way:
                self.leases.acquire(lease, duration, {}, self.snapshots)
            else:
                self.leases.renew(lease, duration)

        if lease in self.model.held:
            self.attempt(fault, call, lambda m: m.hold(lease, {}, self.clock.ms + duration))
            return
        try:
            call()
        except LeaseNotExist:
            return
        raise AssertionError("a lease that is not there was renewed")

    @precondition(lambda self: self.model.held)
    @rule(number=HELD, buckets=st.sets(BUCKETS, max_size=4), fault=FAULTS)
    def release(self, number: int, buckets: set[TableBucket], fault: str) -> None:
        lease = self.one(number)
        self.attempt(
            fault,
            lambda: self.leases.release(lease, buckets),
            lambda m: m.free(lease, lambda b: b in buckets),
        )

    @precondition(lambda self: self.model.held)
    @rule(number=HELD, fault=FAULTS)
    def drop(self, number: int, fault: str) -> None:
        lease = self.one(number)
        self.attempt(
            fault, lambda: self.leases.drop(lease), lambda m: m.free(lease, lambda b: True)
        )

    @precondition(lambda self: self.model.held)
    @rule(number=HELD)
    def drop_while_a_keeper_renews(self, number: int) -> None:
        lease = self.one(number)
        barrier = threading.Barrier(2)

        def keep() -> None:
            barrier.wait(120)
            with suppress(LeaseNotExist):
                for _ in range(3):
                    self.leases.renew(lease, 3_600_000)

        keeper = threading.Thread(target=keep)
        keeper.start()
        barrier.wait(120)
        self.leases.drop(lease)
        keeper.join(120)
        self.model.free(lease, lambda b: True)

    # -- the rest of the coordinator

    @rule(bucket=BUCKETS)
    def snapshot(self, bucket: TableBucket) -> None:
        self.snapshots.complete(bucket)
        self.dropped.discard((bucket.table_id, bucket.partition_id))

    @rule()
    def delete_what_may_go(self) -> None:
        kept = {
            b: [s for s in known[:-1] if self.model.leased(b, s)] + known[-1:]
            for b, known in self.snapshots.there.items()
        }
        self.snapshots.retain()
        assert self.snapshots.there == kept

    @rule(step=st.sampled_from([1, 999, 1_000, 60_000, RESTART_GRACE_MS, 3_600_000]), fault=FAULTS)
    def wait(self, step: int, fault: str) -> None:
        self.clock.ms += step

        now, uptime = self.clock.ms, self.clock.ms - self.started
        self.attempt(fault, self.leases.check, lambda m: m.expire(now, uptime))

    @precondition(lambda self: self.model.held and not self.dropped)
    @rule(table_id=st.integers(1, 2), fault=FAULTS)
    def drop_table(self, table_id: int, fault: str) -> None:
        """A check makes up for what could not be stored at once."""
        self.dropped.add((table_id, None))
        self.snapshots.drop_table(table_id)
        self.store.fault = fault
        self.leases.drop_table(replace(TABLE, table_id=table_id))
        self.store.fault = ""
        self.wait(0, "")
        for lease in list(self.model.held):
            self.model.free(lease, lambda b: b.table_id == table_id)

    @rule()
    def restart(self) -> None:
        """A kill: nothing is said to anybody before."""
        self.stop()
        self.start()

    @precondition(lambda self: self.model.held)
    @rule(number=HELD, written=st.booleans())
    def lose_the_disk_for_a_while(self, number: int, written: bool) -> None:
        """The drop's outcome cannot be known: what it lets go of stays held until it can."""
        lease = self.one(number)
        before = copy.deepcopy(self.model)
        self.store.unreadable = True
        self.attempt(
            "after" if written else "before",
            lambda: self.leases.drop(lease),
            lambda m: m.free(lease, lambda b: True),
        )
        if lease in before.held:
            for bucket, snapshot in before.held[lease].items():
                assert self.leases.is_leased(bucket, snapshot)
            for call in (lambda: self.leases.drop("b"), self.leases.check):
                with suppress(StorageError):
                    call()
                    raise AssertionError("something was changed on top of an unknown outcome")
        self.store.unreadable = False

    @rule(lease=LEASES, written=st.booleans())
    def lose_the_disk_while_acquiring(self, lease: str, written: bool) -> None:
        """Whether the lease has its snapshots cannot be known: they stay until it can."""
        newest = {b: known[-1] for b, known in self.snapshots.there.items() if known}
        if newest:
            self.store.unreadable = True
            self.acquire(lease, dict.fromkeys(newest, 0), 60_000, "after" if written else "before")
            assert all(self.leases.is_leased(b, s) for b, s in newest.items())
            self.store.unreadable = False

    # -- what must hold

    @invariant()
    def the_leases_are_the_model_s(self) -> None:
        if not hasattr(self, "leases"):
            return
        _, leases = self.leases.all()
        assert [(lease.lease_id, lease.expires_ms) for lease in leases] == sorted(
            (lease, self.model.until[lease]) for lease in self.model.held
        )
        for lease in leases:
            held = {
                bucket_of(t, key): s for t, holds in lease.held.items() for key, s in holds.items()
            }
            assert held == self.model.held[lease.lease_id]
        assert {lease.lease_id: lease for lease in self.store.load()} == {
            lease.lease_id: lease for lease in leases
        }, "the file says the same"

    @invariant()
    def what_is_leased_can_be_read_and_nothing_else_is_kept(self) -> None:
        if not hasattr(self, "leases"):
            return
        for holds in self.model.held.values():
            for bucket, snapshot in holds.items():
                assert self.snapshots.exists(bucket, snapshot)
        for bucket, known in self.snapshots.there.items():
            for snapshot in known:
                wanted = self.model.leased(bucket, snapshot)
                assert self.leases.is_leased(bucket, snapshot) is wanted


TestCoordinator = Coordinator.TestCase
TestCoordinator.settings = settings(max_examples=70, stateful_step_count=40, deadline=None)
