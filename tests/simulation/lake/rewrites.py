"""What other writers' commits contain, and which of them Iceberg refuses.

Each commit was planned from one snapshot of the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from sluice.model import LOG_OFFSET
from sluice.rounds.values.types import LakeSnapshot
from tests.simulation.lake.stored_lake import SimTable
from tests.support.models.memory_writer import KeyedFile, Row

_UNKNOWN = "the planned snapshot is no known ancestor of main"


@dataclass(frozen=True, slots=True)
class Group:
    """The data files of one bucket that a rewrite replaces, or of which an update deletes rows."""

    snapshot_id: int | None
    """The snapshot that the commit is planned from."""
    number: int
    """Its sequence number."""
    partition: tuple[str, ...]
    files: tuple[str, ...]
    beside: frozenset[str]
    """All files of the bucket in the snapshot."""


@dataclass(frozen=True, slots=True)
class Change:
    """The files that a commit removes and adds."""

    removed: frozenset[str]
    added: frozenset[str]
    operation: str = "replace"


def group_of(table: SimTable, files: Sequence[str], at: LakeSnapshot | None = None) -> Group:
    """Data files of one bucket.

    :param at: the planned snapshot; None: main.
    """
    partition = table.keyed[files[0]].partition
    keyed = table.keyed
    snapshot_id, number = table.main, table.main_number
    if at is not None:
        snapshot_id, number = at.snapshot_id, at.sequence_number
    paths = table.paths_at(snapshot_id) & keyed.keys()
    beside = frozenset(path for path in paths if keyed[path].partition == partition)
    return Group(snapshot_id, number, partition, tuple(files), beside)


def rewritten(table: SimTable, group: Group, *, keeps_number: bool) -> Change:
    """Writes the living rows of the files into one."""
    living = table.living(group.beside)
    rows = [(key, row) for one in group.files for _, key, row in living[one]]
    added = set()
    if rows:
        number = group.number if keeps_number else None
        file = KeyedFile(group.partition, tuple(rows))
        owner = table.owners.get(group.files[0])
        added = {table.add_foreign(_offsets(group, rows), owner, file, number)}
    return Change(frozenset(group.files), frozenset(added))


def updated(table: SimTable, group: Group, one: str, positions: set[int]) -> Change:
    """Marks rows of a data file as deleted, and writes the same rows again."""
    file, owner = table.keyed[one], table.owners.get(one)
    rows = [file.rows[position] for position in sorted(positions)]
    added = {
        table.add_foreign(_offsets(group, rows), owner, KeyedFile(group.partition, tuple(rows)))
    }
    removed: set[str] = set()
    if table.as_vectors:
        removed = {p for p in group.beside if [*table.keyed[p].marks] == [one]}
        positions = positions | table.marked(group.beside).get(one, frozenset())
    added.add(table.add_foreign([], owner, marks_file(table, one, {one: positions})))
    return Change(frozenset(removed), frozenset(added), "overwrite")


def marks_file(table: SimTable, beside: str, marks: Mapping[str, Set[int]]) -> KeyedFile:
    """A file of positions in the bucket of another file."""
    found = {path: frozenset(positions) for path, positions in marks.items()}
    return KeyedFile(table.keyed[beside].partition, marks=found, vector=table.as_vectors)


def _offsets(group: Group, rows: Sequence[tuple[object, Mapping[str, int]]]) -> list[Row]:
    *values, bucket = group.partition
    return [(tuple(values), int(bucket), row[LOG_OFFSET]) for _, row in rows]


def has_format(table: SimTable, change: Change) -> bool:
    """Whether the table still takes the change's files of positions: vectors, or none."""
    files = [table.keyed[path] for path in change.added]
    return not table.as_vectors or all(file.vector for file in files if file.marks)


def unknown_since(table: SimTable, snapshot_id: int | None) -> str:
    """A rollback or an expiry since the planned snapshot ends a procedure."""
    return "" if table.added_since(snapshot_id) is not None else _UNKNOWN


def rewrite_conflict(table: SimTable, group: Group, *, keeps_number: bool) -> str:
    """What Iceberg's RewriteFiles validates from the planned snapshot on."""
    added = table.added_since(group.snapshot_id)
    if added is None:
        return _UNKNOWN
    for path in added & table.keyed.keys():
        file = table.keyed[path]
        if any(_may_mark(file, group, one) for one in group.files):
            return "found new position delete for replaced data file"
        if file.deletes and file.partition == group.partition and not keeps_number:
            return "found new delete for replaced data file"
    return ""


def update_conflict(table: SimTable, group: Group, one: str) -> str:
    """What Iceberg's RowDelta of an UPDATE with serializable isolation validates."""
    added = table.added_since(group.snapshot_id)
    if added is None:
        return _UNKNOWN
    if one not in table.paths():
        return "missing data file"
    for path in added:
        file = table.keyed.get(path)
        if file is None or file.rows:
            return "found conflicting files"
        if file.partition == group.partition and (file.deletes or _may_mark(file, group, one)):
            return "found new conflicting delete files"
    return ""


def _may_mark(file: KeyedFile, group: Group, data_file: str) -> bool:
    """Whether Iceberg takes a file of positions for one with rows of the data file.

    Of the second format's files it knows the bucket and the bounds of the paths.
    """
    if not file.marks or file.vector:
        return data_file in file.marks
    return file.partition == group.partition and min(file.marks) <= data_file <= max(file.marks)


def dangling(table: SimTable) -> frozenset[str]:
    """The delete files that apply to no row, by Spark's rule: by their sequence numbers."""
    first: dict[tuple[str, ...], int] = {}
    keyed = table.paths() & table.keyed.keys()
    for path in keyed:
        file, number = table.keyed[path], table.number_of(path)
        if file.rows:
            first[file.partition] = min(first.get(file.partition, number), number)
    return frozenset(path for path in keyed if _is_dangling(table, path, first))


def _is_dangling(table: SimTable, path: str, first: Mapping[tuple[str, ...], int]) -> bool:
    """:param first: the lowest sequence number of the data files of each bucket."""
    file, number = table.keyed[path], table.number_of(path)
    if file.vector:
        return not file.marks.keys() & table.paths()
    if file.rows:
        return False
    if file.partition not in first:
        return True
    lowest = first[file.partition]
    return number <= lowest if file.deletes else number < lowest
