"""Finds and deletes orphan files: data files that dead rounds have left in a lake table's folders.

A dead round is one that can never commit. File names prove it, not age: they contain the tiering
snapshot that the round was planned from (``write_ids``). The fence lets the round commit on that
snapshot alone.
So a file is deleted only if

1. a Sluice round wrote it for this lake table, not for an earlier table at the same location;
2. the newest tiering snapshot is newer than the round's base: the round can never commit;
3. no snapshot of any branch or tag references the file, as data or as deletes.

All other files are kept, each with a reason. The order of steps makes this safe while rounds run:
list the files, read the newest tiering snapshot, then read the references. If a round commits in
between, either its files are referenced, or its base was still the newest. The last two steps are
repeated before each batch of deletions.

The proof holds as long as tiering snapshots only follow each other. A rollback by hand makes an old
base valid again: roll back only while no driver of the table is running.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from sluice.failpoints import failpoint
from sluice.model import TablePath
from sluice.rounds.values.offsets import write_id_of_offsets_file
from sluice.rounds.values.types import LakeSnapshot
from sluice.rounds.values.write_ids import WriteId, short_uuid, write_ids_in

BATCH_FILES = 500
"""Number of files deleted before the table is read again."""
_DATA_SUFFIXES = (".parquet", ".orc", ".puffin")
_METADATA = re.compile(r"(snap-\d+-.*|.*-m\d+)\.avro$")
"""Names of manifest lists and manifests (Iceberg's SnapshotProducer)."""
_MAINTENANCE = re.compile(r"\d{5}-\d+-maintenance-([0-9a-f]{16})-[0-9a-f-]{36}")


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file below a lake table's folders, referenced or not."""

    path: str
    size_bytes: int
    modified_ms: int | None
    """Epoch milliseconds by the storage's clock; None if the storage does not report it."""

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


class References(Protocol):
    """The file names that a table's snapshots reference; the set only grows."""

    def read(self) -> Set[str]:
        """Names of data files, delete files and offsets files that snapshots reference now.

        :raises LakeNotWritable: a snapshot cannot be read; then nothing may be deleted.
        """


class TableFiles(Protocol):
    """The operations on one lake table that clean-up needs."""

    uuid: str

    def stored_files(self) -> Iterator[StoredFile]:
        """Every file below the table's folders, data and metadata, in any order.

        :raises LakeNotWritable: a folder cannot be listed.
        """

    def newest_tiering_snapshot(self) -> LakeSnapshot | None:
        """Newest tiering snapshot among the ancestors of main, as of now."""

    def references(self, names: Set[str]) -> References:
        """References to files of these names, whatever folder they are stored in."""

    def remove(self, paths: Sequence[str]) -> Mapping[str, str]:
        """Deletes files; missing ones are ignored. Returns path and reason of each failure."""


@dataclass(frozen=True, slots=True)
class OrphanFile:
    """A file of a Sluice round that no snapshot references."""

    path: str
    size_bytes: int
    modified_ms: int | None
    write_id: str
    base: int
    """Sequence number of the snapshot that its round was planned from; 0: there was none."""
    reason: str
    """Why it can be deleted, or why it is kept."""


@dataclass(slots=True)
class CleanReport:
    """What clean-up found in one table's folders, and the files that it deleted."""

    table: str
    newest_snapshot_id: int | None
    """The newest tiering snapshot, which decides."""
    dead: list[OrphanFile] = field(default_factory=list)
    """Files of rounds that can never commit."""
    kept: list[OrphanFile] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    """Path and reason of each file that could not be deleted."""
    foreign_files: int = 0
    """Number of unreferenced data files of other writers; they are never deleted."""
    foreign_bytes: int = 0
    error: str = ""
    """Why this table could not be read; empty if it could."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def clean(
    path: TablePath,
    table: TableFiles,
    *,
    apply: bool,
    older_than_ms: int = 0,
    now_ms: int = 0,
    keeps_files: bool = False,
) -> CleanReport:
    """Lists the orphan files of dead rounds, and deletes them if ``apply``.

    :param keeps_files: the table's property ``gc.enabled`` is false: what no snapshot of it
        references may be referenced elsewhere, such as in another branch of Nessie.
    :param older_than_ms: keep files younger than this; age alone never makes a file an orphan.
    :raises LakeNotWritable: the table cannot be read. Files deleted before that were orphans.
    """
    files = [(file, _id_of(file)) for file in table.stored_files()]
    failpoint("clean.list.after")
    newest = table.newest_tiering_snapshot()  # before the references: see the module docstring
    references = table.references({file.name for file, _ in files})
    used = references.read()
    report = CleanReport(str(path), newest.snapshot_id if newest else None)
    for file, write_id in files:
        if file.name in used:
            continue
        if write_id is None:
            if file.name.endswith(_DATA_SUFFIXES):
                report.foreign_files += 1
                report.foreign_bytes += file.size_bytes
            continue
        reason = _why_kept(write_id, table.uuid, newest)
        if not reason and keeps_files:
            reason = "the property gc.enabled of the lake table is false: others may need its files"
        if not reason and _is_younger(file, older_than_ms, now_ms):
            reason = "it is younger than --older-than"
        found = report.kept if reason else report.dead
        found.append(_leftover(file, write_id, reason or _why_dead(write_id, newest)))
    if apply:
        _remove(table, references, report)
    return report


def _remove(table: TableFiles, references: References, report: CleanReport) -> None:
    """Deletes in batches; reads the table again before each one, because it may have changed."""
    for start in range(0, len(report.dead), BATCH_FILES):
        newest, used = table.newest_tiering_snapshot(), references.read()
        batch = []
        for left in report.dead[start : start + BATCH_FILES]:
            name = left.path.rpartition("/")[2]
            [write_id] = write_ids_in(left.write_id)
            if name in used or _why_kept(write_id, table.uuid, newest):
                report.failed[left.path] = (
                    "the table changed during clean-up: run `sluice clean` again"
                )
            else:
                batch.append(left.path)
        failpoint("clean.batch.before")
        failed = table.remove(batch)
        report.failed.update(failed)
        report.removed += [path for path in batch if path not in failed]
        failpoint("clean.batch.after")


def _id_of(file: StoredFile) -> WriteId | None:
    found = write_ids_in(file.name)
    return found[0] if len(found) == 1 else None


def _why_kept(write_id: WriteId, table_uuid: str, newest: LakeSnapshot | None) -> str:
    """Why the round of that write id may still commit; empty if it is dead."""
    if not write_id.is_of(table_uuid):
        return (
            "it was written for another lake table, an earlier one at this location or one in the"
            " same folder"
        )
    if newest is None:
        return "its round may still commit: the table has no tiering snapshot"
    if write_id.base == newest.sequence_number:
        return "its round may still commit: no tiering snapshot has followed its base"
    if write_id.base > newest.sequence_number:
        return (
            "its round could commit again if its base is restored: the table was rolled back"
            " to before it"
        )
    return ""


def _why_dead(write_id: WriteId, newest: LakeSnapshot | None) -> str:
    assert newest is not None
    base = f"commit {write_id.base}" if write_id.base else "the empty table"
    return (
        f"its round was planned from {base}, and commit {newest.sequence_number} (snapshot"
        f" {newest.snapshot_id}) has followed: the round can never commit"
    )


def _is_younger(file: StoredFile, older_than_ms: int, now_ms: int) -> bool:
    if not older_than_ms:
        return False
    return file.modified_ms is None or now_ms - file.modified_ms < older_than_ms


def _leftover(file: StoredFile, write_id: WriteId, reason: str) -> OrphanFile:
    return OrphanFile(
        file.path, file.size_bytes, file.modified_ms, str(write_id), write_id.base, reason
    )


class OffsetsFiles:
    """Finds the offsets files that snapshot summaries refer to, among given file names.

    A snapshot has at most one such file, named after its write id.
    """

    def __init__(self, names: Collection[str]) -> None:
        ids = ((write_id_of_offsets_file(name), name) for name in names)
        self._names = {write_id: name for write_id, name in ids if write_id is not None}

    def named_in(self, summary: str) -> set[str]:
        """Names of the files that belong to the write ids in a summary's text."""
        ids = (str(write_id) for write_id in write_ids_in(summary))
        return {self._names[write_id] for write_id in ids if write_id in self._names}


def new_maintenance_id(table_uuid: str, unique: uuid.UUID | None = None) -> str:
    """What the names of the files of one commit of maintenance contain.

    :param unique: None: a new one.
    """
    return f"maintenance-{short_uuid(table_uuid)}-{unique or uuid.uuid4()}"


def is_manifest(name: str) -> bool:
    """Whether a file is a manifest or a manifest list, by its name. The name tells no table."""
    return _METADATA.match(name) is not None


def orphans_in(
    stored: Iterable[StoredFile], known: Set[str], before_ms: int, table_uuid: str
) -> list[StoredFile]:
    """The files among these that nobody needs, older than a time.

    :param known: names of all files that snapshots reference.
    :param before_ms: epoch milliseconds. A file whose storage tells no time is kept.
    :param table_uuid: of the table whose snapshots are known.
    """
    return [
        one
        for one in stored
        if one.name not in known
        and one.modified_ms is not None
        and one.modified_ms < before_ms
        and _is_of_maintenance(one.name, table_uuid)
    ]


def _is_of_maintenance(name: str, table_uuid: str) -> bool:
    if is_manifest(name):
        return True
    found = _MAINTENANCE.match(name)
    return found is not None and found[1] == short_uuid(table_uuid)
