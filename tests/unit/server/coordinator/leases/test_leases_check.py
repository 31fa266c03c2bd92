"""The look for expired leases goes on, whatever goes wrong with one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sluice.errors import StorageError
from sluice.model import TableBucket
from sluice.server.coordinator.leases.leases import KvSnapshotLeases
from sluice.server.coordinator.leases.store import SqliteLeaseStore
from sluice.server.storage.database import Database
from tests.support.programs.processes import wait_for
from tests.support.statuses.lease_parts import ManualClock, MemorySnapshots

NEVER_MS = 86_400_000


class Deletion:
    """Fails at first."""

    def __init__(self) -> None:
        self.error: Exception = StorageError("disk I/O error")
        self.failed = self.done = 0

    def __call__(self) -> None:
        if not self.failed:
            self.failed += 1
            raise self.error
        self.done += 1


@pytest.fixture
def deletion() -> Deletion:
    return Deletion()


@pytest.fixture
def leases(tmp_path: Path, deletion: Deletion) -> Iterator[KvSnapshotLeases]:
    with closing(Database(tmp_path / "metadata.sqlite")) as database:
        store = SqliteLeaseStore(database)
        made = KvSnapshotLeases(store, ManualClock(), lambda *_: True, deletion)
        yield made
        made.stop()


def free_a_snapshot(leases: KvSnapshotLeases) -> None:
    snapshots = MemorySnapshots()
    newest = snapshots.complete(TableBucket(1, None, 0))
    leases.acquire("job", 60_000, {1: {(-1, 0): newest}}, snapshots)
    leases.drop("job")


def test_a_deletion_that_fails_comes_again_with_the_next_check(
    leases: KvSnapshotLeases, deletion: Deletion
) -> None:
    leases.start(NEVER_MS)
    free_a_snapshot(leases)
    with pytest.raises(StorageError):
        leases.check()
    for _ in range(2):
        leases.check()
        assert deletion.done == 1


def test_an_error_that_nobody_thought_of_ends_nothing(
    leases: KvSnapshotLeases, deletion: Deletion
) -> None:
    deletion.error = RuntimeError("a bug")
    leases.start(1)
    free_a_snapshot(leases)
    wait_for("the deletion after the one that failed", lambda: deletion.done)
    assert deletion.failed == 1
