"""A model of the lake side of a round: snapshots with parents, files, the fence and faults.

It follows the rules of Iceberg that a round relies on. Main is a chain of ancestors, a commit is
validated against the ancestry that it builds on, and only files that a snapshot names are visible.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

from sluice.errors import (
    LakeCommitOutcomeUnknown,
    LakeCommitRefused,
    LakeFilesChanged,
    LakeNotWritable,
)
from sluice.iceberg_rules.layout import Layout
from sluice.model import LOG_OFFSET, TableInfo, TablePath
from sluice.rounds.upkeep.orphans import OffsetsFiles, StoredFile
from sluice.rounds.values.expiry import MAIN, TAG, Expired, ExpiryRule, Reference, StoredSnapshots
from sluice.rounds.values.history import HistoryEntry, LakeHistory, with_expired
from sluice.rounds.values.lake_files import DataFile, FileContent, LiveFiles, PlannedCommit
from sluice.rounds.values.types import COMMIT_USER, COMMIT_USER_KEY, LakePart, LakeSnapshot, Split
from tests.support.models.memory_writer import (
    BUCKET,
    Key,
    KeyedFile,
    MemoryWriter,
    Row,
    live_files_of,
)


class TwoVectors(AssertionError):
    """A data file has two deletion vectors, so no engine can plan the table."""


@dataclass(frozen=True)
class _Node:
    snapshot: LakeSnapshot
    parent: int | None
    paths: frozenset[str]
    made_ms: int = 0


class MemoryLake:
    """Implements Lake in memory."""

    where = "mem:/"

    def __init__(self) -> None:
        self.tables: dict[TablePath, MemoryLakeTable] = {}
        self.options: Mapping[str, str] = {}
        self._created = 0

    def load(self, path: TablePath) -> MemoryLakeTable | None:
        return self.tables.get(path)

    def create(self, info: TableInfo, layout: Layout = Layout.CLEAN) -> MemoryLakeTable:
        self._created += 1
        number = str(uuid.UUID(int=self._created << 80))
        self.tables[info.path] = MemoryLakeTable(f"mem:/{info.path}", number, layout=layout)
        return self.tables[info.path]


@dataclass
class MemoryLakeTable:
    """One table; each of the faults below occurs once."""

    location: str
    uuid: str = "00000000-0000-4000-8000-000000000000"
    files: dict[str, list[Row]] = field(default_factory=dict)
    """Every existing data file, referenced or not."""
    keyed: dict[str, KeyedFile] = field(default_factory=dict)
    """The content of each file, delete files included, of a primary-key table."""
    beside: dict[str, bytes] = field(default_factory=dict)
    """Small files in the metadata folder."""
    layout: Layout = Layout.CLEAN
    tagged: int | None = None
    before_commit: Callable[[], None] | None = None
    """Called once inside the next commit, before its check, to simulate another writer."""
    before_expiry: Callable[[], None] | None = None
    """Called once before the next expiry of snapshots; it may raise."""
    lose_answer: bool = False
    """The next commit lands, but its outcome is reported as unknown."""
    lose_commit: bool = False
    """The next commit does not land, and its outcome is reported as unknown."""
    land_and_refuse: bool = False
    """The next commit lands but is reported as refused, as after a lost response and a retry."""
    blind_after_commit: bool = False
    """From the next commit on, successful or not, the table cannot be read."""
    blind: bool = False
    tag_fails: bool = False
    as_vectors: bool = False
    """Whether positions are deletion vectors: one of each data file, each in a file of its own."""
    checked: list[int] = field(default_factory=list)
    """The schema ids that callers compared with the table; the model itself has no schema."""
    properties: dict[str, str] = field(default_factory=dict)
    """Iceberg's table properties."""
    now_ms: Callable[[], int] = lambda: 0
    """The clock of the commits, epoch milliseconds."""
    _added: dict[str, int] = field(default_factory=dict)
    """The sequence number of the commit that added each file."""
    _nodes: dict[int, _Node] = field(default_factory=dict)
    _earlier: list[dict[int, _Node]] = field(default_factory=list)
    """The snapshots of the metadata file before each expiry, the oldest first."""
    _main: int | None = None
    _ids: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    # ---- what a test does to it, and sees of it ----

    def rows(self) -> list[Row]:
        """The rows in main."""
        return sorted(row for path in self.paths() for row in self.files[path])

    def keyed_rows(self) -> dict[tuple[tuple[str, ...], Key], dict[str, Any]]:
        """The rows in main by partition values and key, with deletes applied."""
        found: dict[tuple[tuple[str, ...], Key], dict[str, Any]] = {}
        for path, rows in self.living(self.paths()).items():
            partition = self.keyed[path].partition[:-1]
            for _, key, row in rows:
                name = (partition, key)
                assert name not in found, f"{name} is there twice: {found[name]} and {row}"
                found[name] = row
        return found

    def living(self, paths: Set[str]) -> dict[str, list[tuple[int, Key, dict[str, Any]]]]:
        """The rows of each data file that the deletes among these files leave, with positions.

        Equality deletes apply only to rows of earlier commits in their partition and bucket.
        """
        deletes: dict[tuple[str, ...], list[tuple[int, frozenset[Key]]]] = {}
        data = []
        for path in sorted(paths & self.keyed.keys()):
            file = self.keyed[path]
            if file.deletes:
                deletes.setdefault(file.partition, []).append((self._added[path], file.deletes))
            if file.rows:
                data.append(path)
        marks = self.marked(paths)
        found = {}
        for path in data:
            file, number, gone = self.keyed[path], self._added[path], set[Key]()
            gone.update(
                *(keys for later, keys in deletes.get(file.partition, ()) if later > number)
            )
            dead = marks.get(path, frozenset())
            found[path] = [
                (position, key, row)
                for position, (key, row) in enumerate(file.rows)
                if position not in dead and key not in gone
            ]
        return found

    def marked(self, paths: Set[str]) -> dict[str, Set[int]]:
        """The positions of deleted rows by data file, as these files mark them.

        :raises TwoVectors: a data file has two deletion vectors.
        """
        found: dict[str, Set[int]] = {}
        vectors: dict[str, Set[int]] = {}
        for path in paths & self.keyed.keys():
            file = self.keyed[path]
            for data_file, positions in file.marks.items():
                if not file.vector:
                    found[data_file] = found.get(data_file, frozenset()) | positions
                elif data_file in vectors:
                    raise TwoVectors(f"{data_file} has two deletion vectors")
                else:
                    vectors[data_file] = positions
        return found | vectors

    def foreign_compaction(self) -> int:
        """Another writer compacts each partition and bucket, and applies the deletes."""
        joined: dict[tuple[str, ...], list[tuple[Key, dict[str, Any]]]] = {}
        assert self._main is not None
        for (values, key), row in self.keyed_rows().items():
            joined.setdefault((*values, str(row[BUCKET])), []).append((key, row))
        paths = set()
        number = self._nodes[self._main].snapshot.sequence_number
        for partition, rows in joined.items():
            path = f"{self.location}/compacted-{len(self.files)}"
            self.files[path] = [
                (partition[:-1], int(partition[-1]), r[LOG_OFFSET]) for _, r in rows
            ]
            self.keyed[path] = KeyedFile(partition, tuple(rows))
            self._added[path] = number  # the deletes of commits meanwhile still reach its rows
            paths.add(path)
        return self._put(frozenset(paths), {"operation": "replace"}).snapshot_id

    def paths(self) -> frozenset[str]:
        """The files of main."""
        return frozenset() if self._main is None else self._nodes[self._main].paths

    def paths_at(self, snapshot_id: int | None) -> frozenset[str]:
        """The files of a snapshot; none if there is no such snapshot any more."""
        node = self._nodes.get(snapshot_id or -1)
        return frozenset() if node is None else node.paths

    def number_of(self, path: str) -> int:
        """The sequence number of a file: which equality deletes apply to its rows."""
        return self._added[path]

    def unreferenced_files(self) -> set[str]:
        used = set().union(*(node.paths for node in self._nodes.values()))
        return set(self.files) - used

    def snapshots(self) -> list[LakeSnapshot]:
        """Ancestors of main, newest first."""
        found, current = [], self._main
        while current is not None and current in self._nodes:
            found.append(self._nodes[current].snapshot)
            current = self._nodes[current].parent
        return found

    def foreign_commit(
        self, rows: Sequence[Row] = (), summary: Mapping[str, str] | None = None
    ) -> int:
        """Another writer commits an append."""
        path = f"{self.location}/foreign-{len(self.files)}"
        self.files[path] = list(rows)
        return self._put(self.paths() | {path}, summary or {}).snapshot_id

    def roll_back_to(self, snapshot_id: int | None) -> None:
        self._main = snapshot_id

    def expire(self, *snapshot_ids: int) -> None:
        """Expires snapshots in one commit, so that an ancestry ends before them."""
        assert not {self.tagged, self._main}.intersection(snapshot_ids)
        self._earlier.append(dict(self._nodes))
        for snapshot_id in snapshot_ids:
            del self._nodes[snapshot_id]

    def forget_expired(self) -> None:
        """Deletes the metadata files from before the expiry."""
        self._earlier.clear()

    def whole_history(self) -> LakeHistory:
        """All snapshots that exist or that an earlier metadata file still describes."""
        nodes = {key: node for earlier in self._earlier for key, node in earlier.items()}
        entries = {key: self._entry(node) for key, node in {**nodes, **self._nodes}.items()}
        return LakeHistory(self._main, self.tagged, entries)

    # ---- the LakeTable port ----

    def add_missing_columns(self, info: TableInfo, *, as_read: bool = False) -> Sequence[str]:
        self.checked.append(info.schema_id)
        return ()

    def check_layout(self, info: TableInfo) -> None:
        pass

    def newest_tiering_snapshot(self, *, as_read: bool = False) -> LakeSnapshot | None:
        return self.find_tiering_snapshot({})

    def find_tiering_snapshot(
        self, summary: Mapping[str, str], since: int = 0
    ) -> LakeSnapshot | None:
        if self.blind:
            raise LakeNotWritable("the catalog does not answer")
        wanted = {COMMIT_USER_KEY: COMMIT_USER, **summary}.items()
        lineage = self._lineage()
        newer = (s for s in lineage if s.sequence_number > since)
        found = next((s for s in newer if wanted <= s.summary.items()), None)
        return found and replace(found, main_summary=lineage[0].summary)

    def is_ancestor(self, snapshot_id: int) -> bool:
        return any(s.snapshot_id == snapshot_id for s in self._lineage())

    def writer_factory(self, write_id: str, splits: Sequence[Split]) -> Callable[..., MemoryWriter]:
        def make(split: Split, task: int = 0) -> MemoryWriter:
            name = f"{write_id}-{task}-{split.bucket}{split.file_suffix}"
            return MemoryWriter(self, split, f"{self.location}/{name}")

        return make

    def has_rows(self, partition_values: Sequence[str]) -> bool:
        return any(row[0] == tuple(partition_values) for row in self.rows())

    def partitions_with_rows(
        self, partitions: Sequence[tuple[str, ...]], base: LakeSnapshot | None
    ) -> list[tuple[str, ...]]:
        newest = self.newest_tiering_snapshot()
        if newest != base:
            raise LakeCommitRefused(f"our newest snapshot is {newest}, planned was {base}")
        return [values for values in partitions if self.has_rows(values)]

    def live_files(self, splits: Sequence[Split]) -> LiveFiles:
        if self.blind:
            raise LakeNotWritable("the catalog does not answer")
        return live_files_of(self, self.paths(), self._main, splits, as_vectors=self.as_vectors)

    def added_since(self, snapshot_id: int | None) -> set[str] | None:
        """What commits other than rewrites have added to main after a snapshot, removed or not.

        :returns: None if main does not descend from the snapshot, or it is not known whether.
        """
        found: set[str] = set()
        current = self._main
        while current != snapshot_id:
            node = self._nodes.get(current or -1)
            if node is None:
                return None
            if node.snapshot.summary.get("operation") != "replace":
                parent = self._nodes.get(node.parent or -1)
                found |= node.paths - (parent.paths if parent is not None else frozenset())
            current = node.parent
        return found if snapshot_id is None or snapshot_id in self._nodes else None

    def check_positions(self, files: Sequence[DataFile], positions: PlannedCommit) -> None:
        """What Iceberg validates of a commit with positions.

        :raises LakeFilesChanged: other writers have changed data files since they were planned.
        """
        planned = positions.planned.snapshot_id
        added = self.added_since(planned)
        if added is None:
            raise LakeFilesChanged(f"snapshot {planned} is not a known ancestor of main")
        rows = {path for path in added if path not in self.keyed or self.keyed[path].rows}
        if rows:
            raise LakeFilesChanged(f"found conflicting files: {sorted(rows)}")
        named = {mark.data_file for file in files for mark in file.marks}
        if gone := (named | set(positions.removed)) - self.paths():
            raise LakeFilesChanged(f"missing data files: {sorted(gone)}")
        if both := named.intersection(positions.removed):
            raise LakeFilesChanged(f"cannot delete data files with new deletes: {sorted(both)}")
        self._check_removed(positions.removed, added)
        removed = {one.path for one in positions.replaced}
        removed |= {one.path for one in positions.outdated_keys()}
        if gone := removed - self.paths():
            raise LakeFilesChanged(f"missing delete files: {sorted(gone)}")
        vectors = [self.keyed[path] for path in added & self.keyed.keys()]
        if twice := {name for file in vectors if file.vector for name in file.marks} & named:
            raise LakeFilesChanged(f"found concurrently added DV: {sorted(twice)}")

    def _check_removed(self, removed: Sequence[str], added: Set[str]) -> None:
        """What Iceberg validates of data files that are rewritten: nobody has deleted rows of them.

        It takes any new delete file of their bucket for one of theirs.
        """
        partitions = {self.keyed[path].partition for path in removed if path in self.keyed}
        for path in added & self.keyed.keys():
            file = self.keyed[path]
            if file.partition in partitions and (file.marks or file.deletes):
                raise LakeFilesChanged(f"found new conflicting delete files: {path}")

    def rewrite(
        self,
        files: Sequence[DataFile],
        base: LakeSnapshot | None,
        summary: Mapping[str, str],
        planned: PlannedCommit,
    ) -> None:
        newest = self.newest_tiering_snapshot()
        if newest != base:
            raise LakeCommitRefused(f"our newest snapshot is {newest}, planned was {base}")
        if gone := set(planned.removed) - self.paths():
            raise LakeFilesChanged(f"missing data files: {sorted(gone)}")
        kept = self.paths() - set(planned.removed)
        self._put(
            frozenset(kept | {file.path for file in files}), {"operation": "replace", **summary}
        )

    def check_format(self, files: Sequence[DataFile]) -> None:
        """:raises LakeCommitRefused: others have changed the format since the round was planned."""
        if self.as_vectors and any(f.content is FileContent.POSITION_DELETES for f in files):
            raise LakeCommitRefused("Must use DVs for position deletes in V3")

    def commit(
        self,
        files: Sequence[DataFile],
        base: LakeSnapshot | None,
        summary: Mapping[str, str],
        replaced: Sequence[LakePart] = (),
        positions: PlannedCommit | None = None,
    ) -> LakeSnapshot:
        missing = [file.path for file in files if file.path not in self.files]
        if missing:
            raise LakeNotWritable(f"no such file: {missing[0]}")
        meddle, self.before_commit = self.before_commit, None
        if meddle is not None:
            meddle()
        newest = self.newest_tiering_snapshot()
        if newest != base:
            self.blind, self.blind_after_commit = self.blind_after_commit, False
            raise LakeCommitRefused(f"our newest snapshot is {newest}, planned was {base}")
        for part in replaced:
            seen = part.seen_main
            if seen is not None and (why := self.history().changed_since(seen)):
                raise LakeCommitRefused(why)
        self.check_format(files)
        if positions is not None:
            self.check_positions(files, positions)
        self.blind, self.blind_after_commit = self.blind_after_commit, False
        if self.lose_commit:
            self.lose_commit = False
            raise LakeCommitOutcomeUnknown("no answer")
        kept = self.kept_paths(replaced, positions)
        snapshot = self._put(frozenset(kept | {file.path for file in files}), summary)
        self.tagged = snapshot.snapshot_id
        if self.lose_answer:
            self.lose_answer = False
            raise LakeCommitOutcomeUnknown("no answer")
        if self.land_and_refuse:
            self.land_and_refuse = False
            raise LakeCommitRefused("conflict")
        return snapshot

    def kept_paths(self, replaced: Sequence[LakePart], positions: PlannedCommit | None) -> set[str]:
        """The files of main that a commit keeps."""
        gone: set[str] = set()
        if positions is not None:
            gone = {mark.path for mark in positions.replaced}.union(positions.removed)
            gone |= {one.path for one in positions.outdated_keys()}
        return {p for p in self.paths() if p not in gone and not self._is_in(p, replaced)}

    def _is_in(self, path: str, parts: Sequence[LakePart]) -> bool:
        if path in self.keyed:
            *values, bucket = self.keyed[path].partition
            return not {LakePart(tuple(values)), LakePart(tuple(values), int(bucket))}.isdisjoint(
                parts
            )
        return any(LakePart(row[0]) in parts for row in self.files[path])

    def tag(self, snapshot_id: int) -> None:
        if self.tag_fails:
            raise LakeNotWritable("the catalog refuses")
        newest = self.newest_tiering_snapshot()
        if newest is None or newest.snapshot_id == snapshot_id:
            self.tagged = snapshot_id

    def history(self, registered_id: int | None = None) -> LakeHistory:
        """As on Iceberg, expired snapshots are known only as far as they are needed."""
        living = {key: self._entry(node) for key, node in self._nodes.items()}
        earlier = (map(self._entry, nodes.values()) for nodes in reversed(self._earlier))
        current = LakeHistory(self._main, self.tagged, living)
        return with_expired(current, earlier, registered_id)

    def _entry(self, node: _Node) -> HistoryEntry:
        number = node.snapshot.sequence_number
        summary = node.snapshot.summary
        return HistoryEntry(node.snapshot.snapshot_id, node.parent, number, summary, node.made_ms)

    def stored_snapshots(self) -> StoredSnapshots:
        """The snapshots, branches and tags, as the rule of expiry sees them."""
        places = {MAIN: self._main, TAG: self.tagged}
        return StoredSnapshots(
            {key: self._entry(node) for key, node in self._nodes.items()},
            {name: Reference(at, name == MAIN) for name, at in places.items() if at is not None},
            self.properties,
        )

    def expire_by(self, rule: ExpiryRule) -> Expired:
        meddle, self.before_expiry = self.before_expiry, None
        if meddle is not None:
            meddle()
        going = rule.choose(self.stored_snapshots())
        before = set().union(*(self._nodes[one].paths for one in going))
        if going:
            self.expire(*going)
        alone = before - self.referenced()[0]
        self.delete_files(sorted(alone))
        return Expired(len(going), len(alone))

    def set_main(self, snapshot_id: int, expected: int | None) -> None:
        meddle, self.before_commit = self.before_commit, None
        if meddle is not None:
            meddle()
        if self._main != expected or snapshot_id not in self._nodes:
            raise LakeCommitRefused(f"main is at {self._main}, not at {expected}")
        self._main = snapshot_id
        if self.lose_answer:
            self.lose_answer = False
            raise LakeCommitOutcomeUnknown("no answer")

    def write_metadata_file(self, name: str, content: bytes) -> str:
        location = f"{self.location}/metadata/{name}"
        self.beside[location] = content
        return location

    def read_metadata_file(self, location: str, bytes_max: int) -> bytes | None:
        content = self.beside.get(location)
        return None if content is None else content[:bytes_max]

    def delete_files(self, paths: Sequence[str]) -> None:
        for path in paths:
            self.files.pop(path, None)
            self.beside.pop(path, None)

    # ---- the TableFiles port ----

    def stored_files(self) -> Iterator[StoredFile]:
        for path, rows in list(self.files.items()):
            yield StoredFile(path, 8 * len(rows), None)
        for path, content in list(self.beside.items()):
            yield StoredFile(path, len(content), None)

    def references(self, names: Set[str]) -> MemoryReferences:
        return MemoryReferences(self, names)

    def remove(self, paths: Sequence[str]) -> dict[str, str]:
        self.delete_files(paths)
        return {}

    def referenced(self) -> tuple[set[str], list[str]]:
        """The data file paths of all snapshots, and their summaries as text."""
        paths = {path for node in self._nodes.values() for path in node.paths}
        return paths, [str(dict(node.snapshot.summary)) for node in self._nodes.values()]

    def _lineage(self) -> list[LakeSnapshot]:
        """The ancestors, then Sluice's tagged snapshot if expiry has cut it off from them."""
        chain = self.snapshots()
        cut_off = chain and self._nodes[chain[-1].snapshot_id].parent is not None
        if not cut_off or any(s.summary.get(COMMIT_USER_KEY) == COMMIT_USER for s in chain):
            return chain
        history = self.history()
        last = history.newest_tiering_snapshot()
        if last is None and not history.is_complete():
            tagged = history.snapshots.get(history.tagged or -1)
            older = tagged and tagged.sequence_number < chain[-1].sequence_number
            last = tagged if older else None
        if last is None or last.snapshot_id not in self._nodes:
            return chain
        return [*chain, self._nodes[last.snapshot_id].snapshot]

    def _put(self, paths: frozenset[str], summary: Mapping[str, str]) -> LakeSnapshot:
        number = next(self._ids)
        before = self.paths()
        totals = {
            "total-records": str(self._count(paths)),
            "total-data-files": str(sum(path in self.files for path in paths)),
        }
        changes = {
            "added-records": self._count(paths - before),
            "deleted-records": self._count(before - paths),
        }
        totals |= {name: str(count) for name, count in changes.items() if count}
        # Iceberg's snapshot ids are not ordered; sequence numbers are.
        snapshot = LakeSnapshot(number * 7919 % 10_007, number, {**totals, **summary})
        for path in paths:
            self._added.setdefault(path, number)
        node = _Node(snapshot, self._main, paths, self.now_ms())
        self._nodes[snapshot.snapshot_id] = node
        self._main = snapshot.snapshot_id
        return snapshot

    def _count(self, paths: Set[str]) -> int:
        return sum(len(self.files.get(path, ())) for path in paths)


class MemoryReferences:
    """Implements References."""

    def __init__(self, table: MemoryLakeTable, names: Set[str]) -> None:
        self._table, self._names = table, names
        self._offsets_files = OffsetsFiles(names)
        self._found: set[str] = set()

    def read(self) -> Set[str]:
        paths, summaries = self._table.referenced()
        self._found |= self._names & {path.rpartition("/")[2] for path in paths}
        for text in summaries:
            self._found |= self._offsets_files.named_in(text)
        return self._found
