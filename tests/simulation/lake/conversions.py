"""Conversion of equality deletes in the simulated lake, beside rounds and other writers.

It follows `sluice.lake.iceberg.upkeep.maintenance`: it lists the live files of one snapshot, reads
keys and data files one after another, writes positions, and commits them by Iceberg's rules. Other
actors run in between.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import replace
from typing import Protocol

from sluice.errors import LakeCommitOutcomeUnknown, LakeCommitRefused, LakeNotWritable, SluiceError
from sluice.model import TableBucket
from sluice.rounds.upkeep.compaction import DEFAULT_COMPACTIONS, CompactionOptions
from sluice.rounds.upkeep.conversion import Conversion, ConversionRunner, ConvertedBucket
from sluice.rounds.upkeep.health import TableHealth
from sluice.rounds.upkeep.orphans import References, StoredFile, new_maintenance_id, orphans_in
from sluice.rounds.values.expiry import ExpiryRule
from sluice.rounds.values.history import MAINTENANCE_KEY
from sluice.rounds.values.lake_files import (
    BucketFiles,
    DataFile,
    FileContent,
    LiveFile,
    LiveFiles,
    PositionLookup,
    RowMarks,
    StoredKeys,
)
from sluice.rounds.values.types import KeyedSplitOptions, Split
from tests.simulation.lake.stored_lake import SimTable
from tests.support.models.memory_writer import Key, KeyedFile, MemoryWriter

KEYS_BYTES = 64
"""The memory for one file of equality deletes."""

_WORK_BITS = 3
_FEW_FILES, _MANY_FILES = 3, 1_000
"""How many data files a process lists: with more, it knows nothing of them."""
_BUCKETS = 2
"""Buckets whose deletes one commit converts."""


class Access(Protocol):
    """One process's access to a simulated lake table."""

    uuid: str

    def look(self, name: str) -> SimTable:
        """Reads the stored table. :raises LakeNotWritable: it cannot be read."""

    def step(self, name: str) -> None:
        """Others may run now."""

    def note(self, kind: str) -> None:
        """Counts an event."""

    def listed(self, live: LiveFiles) -> None:
        """Called when files are listed, and none is read yet: others may expire them."""

    def committing(self, files: Sequence[DataFile]) -> None:
        """Called before a commit is validated: others may be faster."""

    def check_age(self) -> None:
        """Ends a process that is so old that its files may have been taken for orphans."""

    def ask_once(
        self,
        what: str,
        seen: int,
        land: Callable[[], None],
        before: Callable[[], None] = ...,
    ) -> None:
        """Asks the catalog to replace a version of the metadata.

        :param before: called last, when no other actor may run any more.
        """

    def stored_files(self) -> Iterator[StoredFile]:
        """All files below the table's folder."""

    def references(self, names: Set[str]) -> References:
        """References to files of these names."""

    def delete_files(self, paths: Sequence[str]) -> None:
        """Deletes files one after another."""


class ConversionWriter(MemoryWriter):
    """Finds the rows of one bucket that equality deletes delete, and writes their positions."""

    def __init__(
        self,
        access: Access,
        table: SimTable,
        split: Split,
        path: str,
        keys: tuple[StoredKeys, ...],
    ) -> None:
        super().__init__(table, split, path)
        self._access, self._table, self._keys = access, table, keys
        self._numbered: list[tuple[int, Set[Key]]] = []

    def run(self, bucket: BucketFiles, *, as_vectors: bool) -> ConvertedBucket:
        """:raises LakeNotWritable: a file was deleted meanwhile."""
        self._numbered = [(one.sequence, self._read(one.path).deletes) for one in self._keys]
        lookup = PositionLookup(bucket, 0, 0, as_vectors)
        found, replaced = self._find(lookup, frozenset())
        if not found:
            return ConvertedBucket(self._keys)
        groups = [{path: marked} for path, marked in found.items()] if as_vectors else [found]
        files = tuple(self._marks(number, group, lookup) for number, group in enumerate(groups))
        return ConvertedBucket(self._keys, files, replaced, sum(map(len, found.values())))

    def _marked_in(self, file: LiveFile, keys: Set[Key]) -> frozenset[int]:
        newer = [keys for number, keys in self._numbered if self._applies(number, file)]
        if not newer:
            return frozenset()
        dead = frozenset[Key]().union(*newer)
        return frozenset(
            place for place, (key, _) in enumerate(self._read(file.path).rows) if key in dead
        )

    def _applies(self, number: int, file: LiveFile) -> bool:
        return number > file.sequence

    def _read(self, path: str) -> KeyedFile:
        self._access.step("maintain reads")
        return super()._read(path)

    def _put(
        self,
        path: str,
        file: KeyedFile,
        rows: int,
        content: FileContent,
        marks: tuple[RowMarks, ...] = (),
    ) -> DataFile:
        self._access.step("maintain writes")
        self._table.written_ms[path] = self._table.now_ms()
        if owner := self._table.owners.get(self._keys[0].path):
            self._table.owners[path] = owner
        return super()._put(path, file, rows, content, marks)


class SimMaintenance:
    """Implements Maintenance for one process."""

    make_writer: type[ConversionWriter] = ConversionWriter

    def __init__(self, access: Access, random_bits: Callable[[int], int]) -> None:
        """:param random_bits: makes the ids in the names of files."""
        self._access, self._bits = access, random_bits
        self._files_max = _FEW_FILES if random_bits(3) == 0 else _MANY_FILES
        self.stage = ""
        """What a conversion is doing; empty: there is none."""

    # ---- the Maintenance port ----

    def health(self, options: CompactionOptions = DEFAULT_COMPACTIONS) -> TableHealth:
        _, live, useless = self._list()
        return TableHealth.of(live, options=options, useless_equality_files=len(useless))

    def convert(
        self,
        memory_bytes: int,
        run: ConversionRunner | None = None,
        done: Conversion | None = None,
    ) -> Conversion:
        done = done or Conversion()
        while not done.is_given_up:
            splits, live, _ = self._list()
            todo = [one for one in splits if live.buckets[one.bucket].keys]
            todo = [one for one in todo if str(one.bucket) not in done.left]
            if not todo:
                break
            self.stage = "before its commit"
            try:
                self._convert(todo[:_BUCKETS], live, memory_bytes // KEYS_BYTES, done)
            except SluiceError:
                self.stage = ""
                raise
            self.stage = ""
        self._remove_useless(done)
        done.is_complete = not (done.left or done.is_given_up)
        return done

    def merge_manifests(self) -> int:
        return 0

    def due_snapshots(self, rule: ExpiryRule) -> int:
        return 0

    def remove_metadata_orphans(self, before_ms: int, *, apply: bool = True) -> tuple[int, int]:
        listed = orphans_in(self._access.stored_files(), frozenset(), before_ms, self._access.uuid)
        known = self._known({one.name for one in listed})
        orphans = orphans_in(listed, known, before_ms, self._access.uuid)
        if orphans and apply:
            self._access.note("files of dead conversions removed")
            self._access.delete_files([one.path for one in orphans])
        return len(orphans), sum(one.size_bytes for one in orphans)

    # ---- a conversion ----

    def _work(self) -> None:
        """Takes some time: rounds and other writers may be faster."""
        for _ in range(self._bits(_WORK_BITS)):
            self._access.step("maintain works")

    def _known(self, names: Set[str]) -> Set[str]:
        return self._access.references(names).read()

    def _list(self) -> tuple[list[Split], LiveFiles, set[str]]:
        """A split for each bucket with files, all live files, and useless equality deletes.

        As on Iceberg, a bucket has only the equality deletes that apply to a data file.
        """
        table = self._access.look("maintain lists")
        keyed = {path: table.keyed[path] for path in table.paths() & table.keyed.keys()}
        places = sorted({file.partition for file in keyed.values()})
        numbers = {values: n for n, values in enumerate(sorted({one[:-1] for one in places}), 1)}
        splits = [
            Split(
                TableBucket(0, numbers[place[:-1]] if place[:-1] else None, int(place[-1])),
                place[:-1],
                0,
                0,
                keyed=KeyedSplitOptions(("a",)),
            )
            for place in places
        ]
        live = table.live_files(splits)
        buckets = {bucket: _with_useful_keys(files) for bucket, files in live.buckets.items()}
        if sum(len(files.files) for files in buckets.values()) > self._files_max:
            self._access.note("too many files to list")
            buckets = dict.fromkeys(buckets, BucketFiles(unusable="too many files"))
        live = replace(live, buckets=buckets)
        deletes = {path for path, file in keyed.items() if file.deletes}
        self._access.listed(live)
        return splits, live, self._useless(deletes, live)

    def _useless(self, deletes: Set[str], live: LiveFiles) -> set[str]:
        if any(files.unusable for files in live.buckets.values()):
            return set()
        return set(deletes) - {one.path for files in live.buckets.values() for one in files.keys}

    def _convert(
        self, splits: Sequence[Split], live: LiveFiles, keys_max: int, done: Conversion
    ) -> None:
        """Converts these buckets, and commits once."""
        table = self._access.look("maintain begins")
        write_id = new_maintenance_id(self._access.uuid, uuid.UUID(int=self._bits(128)))
        converted: list[ConvertedBucket] = []
        self._work()
        for split in splits:
            bucket = live.buckets[split.bucket]
            path = f"{table.location}/00000-{len(converted)}-{write_id}"
            writer = self.make_writer(self._access, table, split, path, bucket.keys[:keys_max])
            try:
                converted.append(writer.run(bucket, as_vectors=live.as_vectors))
            except LakeNotWritable as gone:
                self._access.note("conversion lost its files")
                done.left[str(split.bucket)] = str(gone)
        if not converted:
            return
        files = [file for one in converted for file in one.files]
        try:
            self._commit(converted, live, write_id)
        except LakeCommitRefused as refused:
            if not self._has_landed(write_id, files, refused):
                self._access.note("conversion refused")
                done.refused += 1
                self._access.delete_files([file.path for file in files])
                return
            self._access.note("conversion landed and called refused")
        self._access.step("maintain goes on")
        done.add(converted)

    def _has_landed(
        self, write_id: str, files: Sequence[DataFile], refused: LakeCommitRefused
    ) -> bool:
        """Its snapshot may have expired; then later ones reference its files."""
        names = {file.path.rpartition("/")[2] for file in files}
        try:
            _, summaries = self._access.look("maintain looks").referenced()
            return any(write_id in text for text in summaries) or bool(self._known(names))
        except LakeNotWritable as error:
            raise LakeCommitOutcomeUnknown(f"{refused}, and then: {error}") from error

    def _commit(self, converted: Sequence[ConvertedBucket], live: LiveFiles, write_id: str) -> None:
        files = [file for one in converted for file in one.files]
        gone = self._removed(converted, live)
        self._work()
        self._access.committing(files)
        self._access.step("maintain commits")
        table = self._access.look("conversion validates")
        seen = table.version
        table.check_format(files)
        if why := self._conflict(table, live, files, gone):
            raise LakeCommitRefused(why)
        new = {file.path for file in files}

        def land() -> None:
            self._access.note("conversion landed")
            self._land(table, gone, new, write_id)
            self.stage = "after its commit"

        self._access.ask_once("conversion", seen, land, self._access.check_age)

    def _land(self, table: SimTable, gone: Set[str], new: Set[str], write_id: str) -> None:
        """Adds the snapshot of a commit: none of a round, so it has no commit user, and no tag."""
        operation = "delete" if new else "overwrite"
        table.change_files(set(gone), set(new), operation, {MAINTENANCE_KEY: write_id})

    def _removed(self, converted: Sequence[ConvertedBucket], live: LiveFiles) -> set[str]:
        """The files that a commit removes: converted equality deletes, and merged positions."""
        marks = {mark.path for one in converted for mark in one.replaced}
        return marks | {key.path for one in converted for key in one.keys}

    def _conflict(
        self, table: SimTable, live: LiveFiles, files: Sequence[DataFile], gone: Set[str]
    ) -> str:
        """What Iceberg's RowDelta validates from the listed snapshot on."""
        added = table.added_since(live.snapshot_id)
        if added is None:
            return "the listed snapshot is no known ancestor of main"
        named = {mark.data_file for file in files for mark in file.marks}
        if missing := named - table.paths():
            return f"missing data files: {sorted(missing)}"
        if missing := set(gone) - table.paths():
            return f"missing delete files: {sorted(missing)}"
        vectors = [table.keyed[path] for path in added & table.keyed.keys()]
        if twice := {name for file in vectors if file.vector for name in file.marks} & named:
            return f"found concurrently added DV: {sorted(twice)}"
        return ""

    def _remove_useless(self, done: Conversion) -> None:
        _, live, useless = self._list()
        if not useless:
            return
        write_id = new_maintenance_id(self._access.uuid, uuid.UUID(int=self._bits(128)))
        try:
            table = self._access.look("removal validates")
            seen = table.version
            if why := self._conflict(table, live, (), useless):
                raise LakeCommitRefused(why)

            def land() -> None:
                self._access.note("useless equality deletes removed")
                self._land(table, useless, frozenset(), write_id)

            self._access.ask_once("removal", seen, land)
        except LakeCommitRefused:
            done.refused += 1
            return
        done.useless_removed += len(useless)
        done.commits += 1


def _with_useful_keys(files: BucketFiles) -> BucketFiles:
    oldest = min((file.sequence for file in files.files), default=1 << 62)
    return replace(files, keys=tuple(one for one in files.keys if one.sequence > oldest))
