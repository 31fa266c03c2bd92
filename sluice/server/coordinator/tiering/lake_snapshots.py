"""Registers lake snapshots: first an offsets file, then the snapshot id.

See docs/fluss/lake-snapshots.md#prepare and docs/fluss/lake-snapshots.md#commit

Deliberate differences from Fluss: a repeated commit changes and deletes nothing; commits of a
dropped table, with offsets that go back, or of a round that is no longer current are refused.
"""

from __future__ import annotations

import shutil
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

import structlog

from sluice.clock import Clock
from sluice.errors import (
    CorruptMessage,
    InvalidUpdateVersion,
    LakeSnapshotNotExist,
    StorageError,
    TableNotExist,
    UnknownServerError,
)
from sluice.failpoints import failpoint
from sluice.formats.offsets_file import offsets_from_json, offsets_to_json
from sluice.model import LakeSnapshotInfo, TableBucket, TableInfo
from sluice.server.coordinator.catalog.catalog import Catalog
from sluice.server.data_dir import delete_orphans, write_durably
from sluice.server.storage.database import Database

ABANDONED_MS = 7 * 24 * 60 * 60 * 1000
"""How long an uncommitted offsets file is kept."""

_log = structlog.get_logger("sluice.lake")


@dataclass(frozen=True, slots=True)
class Registered:
    """A registered lake snapshot with the paths of its offsets files."""

    snapshot_id: int
    tiered_path: str
    readable_path: str | None

    @property
    def paths(self) -> set[str]:
        return {path for path in (self.tiered_path, self.readable_path) if path}


class LakeSnapshots:
    """All registered lake snapshots. ``_lock`` serializes commits."""

    def __init__(self, root: Path, database: Database, catalog: Catalog, clock: Clock) -> None:
        self._root = root
        self._clock = clock
        self._database = database
        self._catalog = catalog
        self._lock = threading.Lock()

    def start(self) -> None:
        """Deletes the files of dropped tables, and old offsets files without a commit."""
        oldest_ms = self._clock.now_ms() - ABANDONED_MS
        delete_orphans(self._root, self._catalog)
        for entry in self._catalog.tables():
            known = {path for r in self._registered(entry.info) for path in r.paths}
            for file in self._folder(entry.info).glob("*"):
                if file.as_uri() not in known and file.stat().st_mtime * 1000 < oldest_ms:
                    file.unlink(missing_ok=True)

    def drop_table(self, info: TableInfo) -> None:
        """Deletes the files of a table that the catalog has dropped."""
        shutil.rmtree(self._folder(info).parent, ignore_errors=True)

    def prepare(
        self, info: TableInfo, offsets: Mapping[TableBucket, int], *, ignore_previous: bool
    ) -> str:
        """Stores an offsets file and returns its path, without registering anything.

        :raises StorageError: the file cannot be written.
        """
        merged: dict[TableBucket, int] = {}
        if not ignore_previous:
            latest = self._newest(info, lambda entry: entry.tiered_path)
            if latest is not None:
                merged.update(latest[1])
        merged.update(offsets)
        folder = self._folder(info)
        path = folder / f"{uuid.uuid4()}.offsets"
        try:
            content = offsets_to_json(info.table_id, merged)
        except ValueError as error:
            raise CorruptMessage(f"table {info.path}: {error}") from error
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write_durably(path, content)
        except OSError as error:
            raise StorageError(f"offsets file {path}: {error.strerror or error}") from error
        return path.as_uri()

    def commit(
        self,
        info: TableInfo,
        snapshot: Registered,
        earliest_to_keep: int | None,
        check_round: Callable[[], None],
        sync_logs: Callable[[Iterable[TableBucket]], None],
    ) -> None:
        """Registers a snapshot; a repeated call changes nothing.

        ``earliest_to_keep``: an id drops the snapshots registered before it, an unknown id (-1)
        drops none, and None drops all others. ``check_round`` raises if the round is not current.
        ``sync_logs`` is called before the registration: once the lake has offsets, the log must not
        assign them to other rows after a power loss.

        :raises InvalidUpdateVersion: an offset would go back.
        :raises TableNotExist: the table was dropped.
        """
        with self._lock:
            known = self._registered(info)
            if any(entry.snapshot_id == snapshot.snapshot_id for entry in known):
                _log.info("lake snapshot was already registered", table=str(info.path))
                return
            check_round()
            offsets = self._read(info, snapshot.tiered_path)
            if snapshot.readable_path is not None:
                self._read(info, snapshot.readable_path)
            if known:
                self._check_forward(info, self._read(info, known[-1].tiered_path), offsets)
            sync_logs(offsets)
            dropped = _dropped(known, earliest_to_keep)
            failpoint("server.commit_lake.before")
            self._store(info, snapshot, dropped)
            failpoint("server.commit_lake.after")
            kept = {path for entry in known if entry not in dropped for path in entry.paths}
            for entry in dropped:
                for path in entry.paths - kept - snapshot.paths:
                    self._path(info, path).unlink(missing_ok=True)
        _log.info(
            "lake snapshot registered", table=str(info.path), snapshot_id=snapshot.snapshot_id
        )

    def offsets(self, info: TableInfo) -> dict[TableBucket, int]:
        """The registered lake offset of each bucket; empty without a registered snapshot.

        :raises StorageError: the offsets file cannot be read.
        """
        known = self._registered(info)
        try:
            return self._read(info, known[-1].tiered_path) if known else {}
        except (UnknownServerError, CorruptMessage) as error:
            raise StorageError(
                f"{error}: restore the file from a backup; without it, new rows could get offsets"
                " that are already in the lake"
            ) from error

    def get(
        self, info: TableInfo, snapshot_id: int | None = None, *, readable: bool = False
    ) -> LakeSnapshotInfo:
        """Returns a snapshot with its offsets: by id, the latest, or the latest readable one.

        :raises LakeSnapshotNotExist: there is no such snapshot.
        :raises UnknownServerError: its offsets file cannot be read.
        """

        def path_in(entry: Registered) -> str | None:
            if snapshot_id is not None and entry.snapshot_id != snapshot_id:
                return None
            return entry.readable_path if readable else entry.tiered_path

        found = self._newest(info, path_in)
        if found is not None:
            return LakeSnapshotInfo(info.table_id, found[0].snapshot_id, found[1])
        wanted = "" if snapshot_id is None else f" {snapshot_id}"
        kind = "readable lake snapshot" if readable else "lake snapshot"
        raise LakeSnapshotNotExist(f"table {info.path} has no {kind}{wanted}")

    def _newest(
        self, info: TableInfo, path_in: Callable[[Registered], str | None]
    ) -> tuple[Registered, dict[TableBucket, int]] | None:
        """The newest snapshot with a path, and its offsets; None without such a snapshot.

        A concurrent commit may drop the snapshot and its file; then the search starts again.

        :raises UnknownServerError: the offsets file cannot be read.
        """
        gone: Registered | None = None
        while True:
            known = self._registered(info)
            paths = ((entry, path_in(entry)) for entry in reversed(known))
            entry, path = next(((e, p) for e, p in paths if p is not None), (None, None))
            if entry is None or path is None:
                return None
            try:
                return entry, self._read(info, path)
            except UnknownServerError:
                if entry == gone:
                    raise
                gone = entry

    def _registered(self, info: TableInfo) -> list[Registered]:
        """The registered snapshots, oldest first, with paths in the current data directory."""
        rows = self._database.query(
            "SELECT snapshot_id, tiered_path, readable_path FROM lake_snapshots"
            " WHERE table_id = ? ORDER BY position",
            info.table_id,
        )

        def here(uri: str) -> str:
            return (self._folder(info) / Path(unquote(urlsplit(uri).path)).name).as_uri()

        return [
            Registered(snapshot_id, here(tiered), here(readable) if readable else None)
            for snapshot_id, tiered, readable in rows
        ]

    def _store(self, info: TableInfo, snapshot: Registered, dropped: list[Registered]) -> None:
        with self._database.transaction() as connection:
            there = connection.execute(
                "SELECT 1 FROM tables WHERE table_id = ?", (info.table_id,)
            ).fetchone()
            if there is None:
                raise TableNotExist(f"table {info.path} (id {info.table_id}) was dropped")
            connection.execute(
                "INSERT INTO lake_snapshots (table_id, snapshot_id, tiered_path, readable_path)"
                " VALUES (?, ?, ?, ?)",
                (
                    info.table_id,
                    snapshot.snapshot_id,
                    snapshot.tiered_path,
                    snapshot.readable_path,
                ),
            )
            connection.executemany(
                "DELETE FROM lake_snapshots WHERE table_id = ? AND snapshot_id = ?",
                [(info.table_id, entry.snapshot_id) for entry in dropped],
            )

    def _check_forward(
        self,
        info: TableInfo,
        before: Mapping[TableBucket, int],
        after: Mapping[TableBucket, int],
    ) -> None:
        entry = self._catalog.find(info.table_id)
        for bucket, offset in before.items():
            if entry is not None and not entry.has_bucket(bucket.partition_id, bucket.bucket):
                continue  # the partition was dropped since
            if after.get(bucket, -1) < offset:
                raise InvalidUpdateVersion(
                    f"table {info.path}, bucket {bucket}: the commit would move the lake offset"
                    f" back from {offset} to {after.get(bucket, 'none')}: plan the round again"
                )

    def _folder(self, info: TableInfo) -> Path:
        name = f"{info.path.table}-{info.table_id}"
        return self._root / info.path.database / name / "metadata"

    def _path(self, info: TableInfo, uri: str) -> Path:
        """The file of a path that this server returned; other files are never accessed."""
        try:
            parts = urlsplit(uri)
            path = Path(unquote(parts.path))
        except ValueError:  # a host that cannot be
            parts, path = urlsplit(""), Path()
        folder = self._folder(info)
        if parts.scheme not in ("", "file") or path.parent != folder or "\0" in str(path):
            raise CorruptMessage(
                f"table {info.path}: {uri!r} is not an offsets file of this table: send the path"
                " that PrepareLakeTableSnapshot returned"
            )
        return path

    def _read(self, info: TableInfo, uri: str) -> dict[TableBucket, int]:
        path = self._path(info, uri)
        try:
            table_id, offsets = offsets_from_json(path.read_bytes())
        except (OSError, CorruptMessage) as error:
            raise UnknownServerError(f"table {info.path}: offsets file {path}: {error}") from error
        if table_id != info.table_id:
            raise CorruptMessage(
                f"table {info.path} has the id {info.table_id}, but {path} belongs to the table"
                f" with the id {table_id}"
            )
        return offsets


def _dropped(known: list[Registered], earliest_to_keep: int | None) -> list[Registered]:
    """The snapshots that retention drops, by position and not by id, as in Fluss."""
    if earliest_to_keep is None:
        return known
    for position, entry in enumerate(known):
        if entry.snapshot_id == earliest_to_keep:
            return known[:position]
    return []
