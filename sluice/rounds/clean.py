"""Finds and removes files that dead rounds have left behind a lake table.

Whether a round is dead is a matter of proof, not of age. Its files' names say which commit of ours
it was planned from (``write_ids``), and the fence lets it commit on that one alone. So a file goes
only if

1. its name is one of ours, of this very lake table (not of one before it at the same place);
2. the newest commit of ours is newer than the round's base: it can never commit;
3. no snapshot references it, on whatever branch or tag, as data or as deletes.

Everything else stays, with the reason. The order is what makes this safe while rounds run: files
are listed first, then the newest commit is read, then the references. A round that commits in
between is either seen in the references, or its base was still the newest when that was read. The
last two steps are repeated before each batch of removals.

The proof holds as long as commits of ours only follow each other. Rolling the lake back by hand
brings an old base to life again: do that while no driver of the table is running.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from sluice.failpoints import failpoint
from sluice.model import TablePath
from sluice.rounds.offsets import write_id_of_offsets_file
from sluice.rounds.types import LakeSnapshot
from sluice.rounds.write_ids import WriteId, write_ids_in

BATCH_FILES = 500
"""Files removed between two looks at the table."""
_DATA_SUFFIXES = (".parquet", ".orc")


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file below a lake table's folders, referenced or not."""

    path: str
    size_bytes: int
    modified_ms: int | None
    """Epoch milliseconds by the storage's clock; None if it does not say."""

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


class References(Protocol):
    """Which of some file names the snapshots of a table reference; it only grows."""

    def look(self) -> Set[str]:
        """As the table is now: data files, delete files, and the offsets files of all summaries.

        :raises LakeNotWritable: a snapshot cannot be read; nothing may be removed then.
        """


class TableFiles(Protocol):
    """One lake table, as clean-up sees it."""

    uuid: str

    def stored_files(self) -> Iterator[StoredFile]:
        """Every file below the table's folders, data and metadata, in any order."""

    def newest_tiering_snapshot(self) -> LakeSnapshot | None:
        """Newest snapshot of our commit user among the ancestors of main, as it is now."""

    def references(self, names: Set[str]) -> References:
        """References to files of these names; a name counts wherever the file lies."""

    def remove(self, paths: Sequence[str]) -> Mapping[str, str]:
        """Deletes files; that one is gone already is fine. Answers why others could not be."""


@dataclass(frozen=True, slots=True)
class OrphanFile:
    """A file of ours that no snapshot references."""

    path: str
    size_bytes: int
    modified_ms: int | None
    write_id: str
    base: int
    """Sequence number of the commit that its round was planned from; 0: of none."""
    reason: str
    """Why it may go, or why it stays."""


@dataclass(slots=True)
class CleanReport:
    """What clean-up found behind one table, and did."""

    table: str
    newest_snapshot_id: int | None
    """Newest commit of ours, which decides."""
    dead: list[OrphanFile] = field(default_factory=list)
    """Files of rounds that can never commit."""
    kept: list[OrphanFile] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    """Path and reason of what could not be removed."""
    foreign_files: int = 0
    """Unreferenced data files with names of other writers: left alone."""
    foreign_bytes: int = 0
    error: str = ""
    """Why this table could not be looked at, among others that could."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def clean(
    path: TablePath, table: TableFiles, *, apply: bool, older_than_ms: int = 0, now_ms: int = 0
) -> CleanReport:
    """Lists what dead rounds have left behind; removes it if ``apply``.

    :param older_than_ms: files younger than that stay as well; age alone never makes a file go.
    :raises LakeNotWritable: the table cannot be looked at. What was removed till then was dead.
    """
    files = [(file, _id_of(file)) for file in table.stored_files()]
    failpoint("clean.list.after")
    newest = table.newest_tiering_snapshot()  # before the references: see above
    references = table.references({file.name for file, _ in files})
    used = references.look()
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
        if not reason and _is_younger(file, older_than_ms, now_ms):
            reason = "it is younger than was asked for"
        found = report.kept if reason else report.dead
        found.append(_leftover(file, write_id, reason or _why_dead(write_id, newest)))
    if apply:
        _remove(table, references, report)
    return report


def _remove(table: TableFiles, references: References, report: CleanReport) -> None:
    """Batch by batch, each after another look: what changed since the first one counts."""
    for start in range(0, len(report.dead), BATCH_FILES):
        newest, used = table.newest_tiering_snapshot(), references.look()
        batch = []
        for left in report.dead[start : start + BATCH_FILES]:
            name = left.path.rpartition("/")[2]
            [write_id] = write_ids_in(left.write_id)
            if name in used or _why_kept(write_id, table.uuid, newest):
                report.failed[left.path] = "the table has changed meanwhile: look again"
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
    """Why the round of that id cannot be taken for dead; empty if it is."""
    if not write_id.is_of(table_uuid):
        return "it was written for another lake table, which lay here before or shares the folder"
    if newest is None:
        return "no commit of ours is in the table: its round may still commit"
    if write_id.base == newest.sequence_number:
        return "its round may still commit: no commit of ours has followed the one it builds on"
    if write_id.base > newest.sequence_number:
        return "its round builds on a commit that is no longer in the table: it was rolled back"
    return ""


def _why_dead(write_id: WriteId, newest: LakeSnapshot | None) -> str:
    assert newest is not None
    base = f"commit {write_id.base}" if write_id.base else "the empty table"
    return (
        f"its round built on {base}, and commit {newest.sequence_number}"
        f" (snapshot {newest.snapshot_id}) has followed: it can never commit"
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
    """Finds the offsets files among some names that summaries of snapshots stand for.

    A snapshot has at most one such file, named after its write id.
    """

    def __init__(self, names: Collection[str]) -> None:
        ids = ((write_id_of_offsets_file(name), name) for name in names)
        self._names = {write_id: name for write_id, name in ids if write_id is not None}

    def named_in(self, summary: str) -> set[str]:
        """Names of the files that belong to the write ids in a summary's text."""
        ids = (str(write_id) for write_id in write_ids_in(summary))
        return {self._names[write_id] for write_id in ids if write_id in self._names}
