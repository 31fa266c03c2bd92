"""The coordinator's record of KV snapshots, with files as a tablet writes them."""

from __future__ import annotations

from pathlib import Path

from sluice.clock import SystemClock
from sluice.formats.kv.snapshot_metadata import KvFile, KvSnapshot, kv_snapshot_to_json
from sluice.model import TableBucket, TableDescriptor, TableInfo, TablePath
from sluice.server.coordinator.catalog.catalog import Catalog
from sluice.server.coordinator.leases.kv_snapshots import IsLeased, KvSnapshots
from sluice.server.storage.database import Database
from tests.unit.server.support import SCHEMA

PLAIN, PARTED = TablePath("db", "plain"), TablePath("db", "parted")


class Store:
    """The snapshots on a data directory; ``leased`` is what leases hold."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.leased: set[tuple[TableBucket, int]] = set()
        self.open()
        self.catalog.create_database("db", b"", True)
        for path, keys in ((PLAIN, ()), (PARTED, ("text",))):
            info = TableInfo(path, -1, 1, TableDescriptor(SCHEMA, keys, (), 2), 0, 0)
            self.catalog.create_table(path, lambda info=info: info, True, lambda *_: None)
        self.catalog.create_partition(PARTED, ("x",), True)

    def open(self) -> None:
        self.database = Database(self.root / "metadata.sqlite")
        self.catalog = Catalog(self.database, SystemClock())
        self.snapshots = KvSnapshots(
            self.root / "remote" / "kv",
            self.database,
            self.catalog,
            num_retained=2,
            is_leased=self.opened(),
        )
        self.snapshots.tidy_up()

    def opened(self) -> IsLeased:
        """Called when there are database and catalog; answers what says what is leased."""
        return lambda bucket, snapshot_id: (bucket, snapshot_id) in self.leased

    def reopen(self) -> None:
        self.database.close()
        self.open()

    def bucket(self, path: TablePath = PLAIN, number: int = 0) -> TableBucket:
        entry = self.catalog.table(path)
        partition = next(iter(entry.partitions)) if entry.partitions else None
        return TableBucket(entry.info.table_id, partition, number)

    def write(self, bucket: TableBucket, log_offset: int, *shared: str) -> KvSnapshot:
        """The files of the bucket's next snapshot, as a tablet writes them; not registered."""
        folder, number = self.snapshots.folder(bucket), self.snapshots.next_id(bucket)
        own = folder / f"snap-{number}"
        own.mkdir(parents=True)
        (folder / "shared").mkdir(exist_ok=True)
        for name in shared:
            (folder / "shared" / name).write_bytes(b"sst")
        (own / "u1").write_bytes(b"x")
        snapshot = KvSnapshot(
            bucket,
            number,
            own.as_uri(),
            tuple(KvFile((folder / "shared" / n).as_uri(), 3, f"{n}.sst") for n in shared),
            (KvFile((own / "u1").as_uri(), 1, "CURRENT"),),
            4,
            log_offset,
        )
        (own / "_METADATA").write_bytes(kv_snapshot_to_json(snapshot))
        return snapshot

    def take(self, log_offset: int, *shared: str, bucket: TableBucket | None = None) -> int:
        snapshot = self.write(bucket or self.bucket(), log_offset, *shared)
        self.snapshots.complete(snapshot)
        return snapshot.snapshot_id

    def files(self, bucket: TableBucket | None = None) -> set[str]:
        """Names in the bucket's folder: its snapshots and shared files."""
        folder = self.snapshots.folder(bucket or self.bucket())
        return {p.name for p in folder.glob("snap-*")} | {p.name for p in folder.glob("shared/*")}

    def ids(self, bucket: TableBucket | None = None) -> list[int]:
        return [c.snapshot_id for c in self.snapshots.all(bucket or self.bucket())]
