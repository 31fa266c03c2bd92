"""The checker: lake files, Iceberg's metadata tables and the server's storage, compared.

It shares no code with a round: it asks Spark which files there are, opens them with pyarrow, and
reads the server's files by :mod:`tests.support.tables.server_files`. What marks rows of data files
as deleted is read by :mod:`tests.support.lake.position_files`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tests.support.lake.position_files import (
    DATA,
    EQUALITY,
    LISTED,
    ListedFile,
    Marks,
    read_marks,
    rows_left,
    wrong_marks,
    wrong_together,
)
from tests.support.tables.changelogs import ANY, SYSTEM, compare_keyed
from tests.support.tables.server_files import Bucket, Registered, read_offsets

OURS = "__fluss_lake_tiering"
"""The commit user of tiering, Fluss's own and this project's."""

TAG = "sluice-tiered"

Sql = Callable[[str], list[Any]]
"""Runs a query in Spark SQL; tables are named ``lake.DATABASE.TABLE``."""


@dataclass
class Report:
    """What was found; everything but ``rows`` and ``orphans`` is damage."""

    rows: int = 0
    """Rows of the current snapshot."""
    doubled: int = 0
    """Rows of which the same offset is there already."""
    missing: int = 0
    """Rows of the log below the registered offset that the lake lacks."""
    foreign: int = 0
    """Rows of the lake at an offset that the log has not, or that the snapshot should not hold."""
    differing: int = 0
    """Rows whose values or timestamp are not those of the log."""
    unopened: list[str] = field(default_factory=list)
    """Files that some snapshot references and that do not open, or are not what they should be."""
    offsets: list[str] = field(default_factory=list)
    """Where the server's word and the lake's do not agree."""
    positions: list[str] = field(default_factory=list)
    """Where position delete files and vectors are not about rows of the data files that exist."""
    unlike: int = 0
    """Rows that only one reader finds: Spark, or the checker with all deletes applied."""
    orphans: list[str] = field(default_factory=list)
    """Data files that no snapshot references."""

    @property
    def damage(self) -> dict[str, Any]:
        """What must be empty whatever has happened."""
        found = {name: value for name, value in vars(self).items() if value}
        return {k: v for k, v in found.items() if k not in ("rows", "orphans")}


@dataclass(frozen=True)
class _Snapshot:
    snapshot_id: int
    parent_id: int | None
    summary: dict[str, str]

    @property
    def is_ours(self) -> bool:
        return self.summary.get("commit-user") == OURS


class LakeChecker:
    """Checks one table against its logs.

    :param name: the table in Spark SQL, ``lake.DATABASE.TABLE``.
    :param partitions: names of the table's partitions by id, as the server has them.
    :param key: the primary key, for a table with one: its rows are what its changelog says.
    :param partition_columns: of such a table.
    """

    def __init__(
        self,
        sql: Sql,
        name: str,
        folder: Path,
        partitions: dict[int, str] | None = None,
        key: Sequence[str] = (),
        partition_columns: Sequence[str] = (),
    ) -> None:
        self._sql, self._name, self._folder = sql, name, folder
        self._key, self._partition_columns = tuple(key), tuple(partition_columns)
        self._partitions = partitions
        self._has_offsets = True
        self._opened: dict[str, pa.Table] = {}
        self._marks: dict[ListedFile, Marks] = {}

    def report(self, logs: dict[Bucket, pa.Table], registered: Registered | None) -> Report:
        """Looks at the current snapshot, the registered one, and every file of any snapshot."""
        report = Report()
        columns = [row.col_name for row in self._sql(f"DESCRIBE TABLE {self._name}")]
        self._has_offsets = "__offset" in columns
        snapshots = {
            row.snapshot_id: _Snapshot(row.snapshot_id, row.parent_id, dict(row.summary or {}))
            for row in self._sql(
                f"SELECT snapshot_id, parent_id, summary FROM {self._name}.snapshots"
            )
        }
        files = self._open_all(report)
        is_whole = all(one.parent_id in {None, *snapshots} for one in snapshots.values())
        report.positions += wrong_marks(self._marks, files, is_whole=is_whole)
        refs = dict(self._sql(f"SELECT name, snapshot_id FROM {self._name}.refs"))
        if "main" not in refs:
            if registered is not None:
                report.offsets.append(f"{registered.snapshot_id} is registered, the lake is empty")
            return report
        newest = _newest_of_ours(snapshots, refs["main"], refs.get(TAG))
        self._compare_offsets(report, newest, registered)
        if registered is not None and registered.snapshot_id not in snapshots:
            report.offsets.append(f"snapshot {registered.snapshot_id} is registered and gone")
        if self._key:
            self._report_keyed(report, logs, newest, registered)
            return report
        current = self._files()
        report.rows = sum(self._opened[path].num_rows for path in current if path in self._opened)
        held = {} if newest is None else self._offsets_of(newest, registered)
        self._check_content(report, current, held, logs)
        if registered is not None and registered.snapshot_id in snapshots:
            files = self._files(registered.snapshot_id)
            if files != current:
                self._check_content(report, files, registered.offsets, logs)
        return report

    def _report_keyed(
        self,
        report: Report,
        logs: dict[Bucket, pa.Table],
        newest: _Snapshot | None,
        registered: Registered | None,
    ) -> None:
        """Spark reads the rows, and applies the deletes; the checker does, too."""
        held = {} if newest is None else self._offsets_of(newest, registered)
        files = self._current()
        if wrong := [*wrong_together([file for _, file in files], self._marks)]:
            report.positions += wrong
        if wrong or report.unopened:
            return  # Spark cannot read it
        current = self._sql(f"SELECT * FROM {self._name}")
        report.rows = len(current)
        self._compare_keyed(report, current, held, logs)
        names = (*self._key, "__bucket", "__offset") if self._has_offsets else self._key
        spark = Counter(tuple(row[name] for name in names) for row in current)
        ours = Counter(rows_left(files, self._opened, self._marks, self._key, names))
        report.unlike = ((spark - ours) + (ours - spark)).total()
        if registered is not None and newest is not None:
            at = f"SELECT * FROM {self._name} VERSION AS OF {registered.snapshot_id}"
            self._compare_keyed(report, self._sql(at), registered.offsets, logs)

    def _compare_keyed(
        self, report: Report, rows: list[Any], held: dict[Bucket, int], logs: dict[Bucket, pa.Table]
    ) -> None:
        """Compares each bucket; of a clean table, each partition, whose keys are in one bucket."""
        found: dict[Bucket, list[dict[str, Any]]] = {}
        for row in rows:
            values = row.asDict()
            partition = "$".join(values[name] for name in self._partition_columns)
            found.setdefault((partition, values.get("__bucket", ANY)), []).append(values)
        compare_keyed(report, found, held, logs, self._key, is_clean=not self._has_offsets)

    # -- files

    def _open_all(self, report: Report) -> list[ListedFile]:
        """Opens every file that any snapshot references; what no one references is an orphan."""
        query = f"SELECT DISTINCT {self._listed()} FROM {self._name}.all_files"
        listed = [ListedFile.of(row) for row in self._sql(query)]
        for file in listed:
            try:
                self._open(report, file)
            except (OSError, ValueError, pa.ArrowException) as error:
                report.unopened.append(f"{file}: {error}")
        referenced = {_local(file.path) for file in listed}
        for path in sorted((self._folder / "data").rglob("*")):
            if path.is_file() and path.suffix != ".crc" and path not in referenced:
                report.orphans.append(str(path))
        return listed

    def _listed(self) -> str:
        """What to select of a table of files; it has no column without partition fields."""
        known = [row.col_name for row in self._sql(f"DESCRIBE TABLE {self._name}.files")]
        return (
            LISTED if "partition" in known else LISTED.replace(" partition,", " NULL AS partition,")
        )

    def _open(self, report: Report, file: ListedFile) -> None:
        path = _local(file.path)
        if file.content != DATA and not self._key:
            report.unopened.append(f"{path}: a file of deletes, which a log table has not")
            return
        if file.content not in (DATA, EQUALITY):
            self._marks[file] = read_marks(file, path)
            return
        table = pq.ParquetFile(path).read()
        if (table.num_rows, path.stat().st_size) != (file.rows, file.size_bytes):
            raise ValueError(f"{table.num_rows} rows in {path.stat().st_size} bytes")
        if file.content == EQUALITY and set(table.column_names) != set(self._key):
            raise ValueError(f"deletes by {table.column_names}")
        self._opened[file.path] = table

    def _current(self) -> list[tuple[int, ListedFile]]:
        """All files of the current snapshot, with their sequence numbers."""
        living = f"SELECT sequence_number, data_file.* FROM {self._name}.entries WHERE status < 2"
        rows = self._sql(f"SELECT sequence_number, {LISTED} FROM ({living})")
        return [(row.sequence_number, ListedFile.of(row)) for row in rows]

    def _files(self, snapshot_id: int | None = None) -> dict[str, str]:
        """Data files of a snapshot (the current one) and the partition's name of each."""
        at = "" if snapshot_id is None else f" VERSION AS OF {snapshot_id}"
        rows = self._sql(f"SELECT * FROM {self._name}.files{at}")
        names = [row.asDict().get("partition") or () for row in rows]
        keys = [name[:-1] if self._has_offsets else name for name in names]
        return {row.file_path: "$".join(map(str, key)) for row, key in zip(rows, keys, strict=True)}

    def _rows(self, files: dict[str, str]) -> dict[Bucket, pa.Table]:
        """Rows of these files by bucket, in the order of their offsets."""
        parts: dict[Bucket, list[pa.Table]] = {}
        for path, partition in files.items():
            table = self._opened.get(path)
            if table is None:
                continue  # told already
            for bucket in pc.unique(table["__bucket"]).to_pylist():
                rows = table.filter(pc.equal(table["__bucket"], bucket))
                parts.setdefault((partition, bucket), []).append(rows)
        return {
            bucket: pa.concat_tables(tables, promote_options="default").sort_by("__offset")
            for bucket, tables in parts.items()
        }

    # -- content

    def _check_content(
        self,
        report: Report,
        files: dict[str, str],
        held: dict[Bucket, int],
        logs: dict[Bucket, pa.Table],
    ) -> None:
        """Each bucket holds exactly the rows of its log below its offset, each once.

        The rows of a clean table do not say where they were: each partition holds the rows of its
        logs.
        """
        if not self._has_offsets:
            self._check_rows(report, files, held, logs)
            return
        lake = self._rows(files)
        for bucket in sorted({*lake, *held}):
            log = logs.get(bucket)
            if log is None:
                continue  # its partition was dropped: there is nothing left to compare
            expected = log.filter(pc.less(log["__offset"], held.get(bucket, 0)))
            found = lake.get(bucket)
            if found is None:
                report.missing += expected.num_rows
                continue
            _compare(report, expected, found)

    def _check_rows(
        self,
        report: Report,
        files: dict[str, str],
        held: dict[Bucket, int],
        logs: dict[Bucket, pa.Table],
    ) -> None:
        found: dict[str, Counter[tuple[Any, ...]]] = {}
        expected: dict[str, Counter[tuple[Any, ...]]] = {}
        names = [n for log in logs.values() for n in log.column_names if n not in SYSTEM]
        names = [*dict.fromkeys(names)]
        for path, partition in files.items():
            if (table := self._opened.get(path)) is not None:
                found.setdefault(partition, Counter()).update(_tuples(table, names))
        for (partition, bucket), end in held.items():
            if (log := logs.get((partition, bucket))) is not None:
                below = log.filter(pc.less(log["__offset"], end))
                expected.setdefault(partition, Counter()).update(_tuples(below, names))
        known = {partition for partition, _ in logs}
        for partition in (found.keys() | expected.keys()) & known:
            there, wanted = found.get(partition, Counter()), expected.get(partition, Counter())
            report.missing += (wanted - there).total()
            more = there - wanted
            report.doubled += sum(count for row, count in more.items() if row in wanted)
            report.foreign += sum(count for row, count in more.items() if row not in wanted)

    def _compare_offsets(
        self, report: Report, newest: _Snapshot | None, registered: Registered | None
    ) -> None:
        newest_id = None if newest is None else newest.snapshot_id
        registered_id = None if registered is None else registered.snapshot_id
        if newest_id != registered_id:
            report.offsets.append(f"newest is {newest_id}, registered is {registered_id}")
        if newest is None or registered is None or newest_id != registered_id:
            return
        said = self._offsets_of(newest, registered)
        if said != registered.offsets:
            report.offsets.append(f"the lake says {said}, the server {registered.offsets}")

    def _offsets_of(self, snapshot: _Snapshot, registered: Registered | None) -> dict[Bucket, int]:
        """Offsets that a snapshot of ours says to hold; those of Fluss's own are the server's."""
        if (text := snapshot.summary.get("sluice.offsets")) is not None:
            return read_offsets(text, self._partitions)
        if (location := snapshot.summary.get("sluice.offsets-file")) is not None:
            return read_offsets(_local(location).read_text(), self._partitions)
        return {} if registered is None else registered.offsets


def _tuples(table: pa.Table, names: Sequence[str]) -> list[tuple[Any, ...]]:
    """The rows with these columns; a column that a file lacks is null."""
    columns = [
        table[name].to_pylist() if name in table.column_names else [None] * table.num_rows
        for name in names
    ]
    return [*zip(*columns, strict=True)]


def _compare(report: Report, expected: pa.Table, found: pa.Table) -> None:
    """One bucket: rows of the log that should be there, rows of the lake in order of offsets."""
    offsets = found["__offset"].to_numpy()
    first_of_each = np.append(True, offsets[1:] != offsets[:-1])[: len(offsets)]
    distinct = found.filter(pa.array(first_of_each))
    report.doubled += found.num_rows - distinct.num_rows
    known = pc.is_in(distinct["__offset"], expected["__offset"])
    report.foreign += distinct.num_rows - _count(known)
    there = pc.is_in(expected["__offset"], distinct["__offset"])
    report.missing += expected.num_rows - _count(there)
    ours, theirs = distinct.filter(known), expected.filter(there).sort_by("__offset")
    same = np.ones(theirs.num_rows, dtype=bool)
    for name in theirs.column_names:
        wanted, had = theirs[name], ours[name]
        if name == "__timestamp":  # microseconds in the lake
            had = pc.divide(had.cast(pa.int64()), 1000)
        equal = pc.fill_null(pc.equal(had.cast(wanted.type), wanted), False)
        nulls = pc.and_(pc.is_null(had), pc.is_null(wanted))
        same &= pc.or_(equal, nulls).to_numpy()
    report.differing += int((~same).sum())


def _count(flags: Any) -> int:
    return int(pc.sum(flags).as_py() or 0)


def _newest_of_ours(
    snapshots: dict[int, _Snapshot], main: int, tagged: int | None
) -> _Snapshot | None:
    """Our newest ancestor; the tagged one, if expiry has cut the ancestry off before ours."""
    at = snapshots.get(main)
    while at is not None and not at.is_ours:
        if at.parent_id is None:
            return None
        at = snapshots.get(at.parent_id) or snapshots.get(tagged or 0)
    return at


def _local(uri: str) -> Path:
    return Path("/" + uri.removeprefix("file:").lstrip("/"))
