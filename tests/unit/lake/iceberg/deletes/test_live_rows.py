"""The live rows of data files, in the columns that the table has now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sluice.errors import LakeFileUnreadable, LakeTableMismatch
from sluice.lake.iceberg.deletes.live_rows import LINEAGE, LiveRows
from sluice.lake.parquet.reader import LakeReader
from sluice.lake.storage.file_systems import FileSystems
from sluice.rounds.copy.key_hashes import KeyColumns
from sluice.rounds.copy.key_runs import KeySet, find_runs
from sluice.rounds.values.lake_files import BucketFiles, LiveFile, StoredKeys, StoredMarks
from tests.support.lake.position_files import MARKS

ID = b"PARQUET:field_id"


def column(name: str, kind: pa.DataType, number: int, *, required: bool = False) -> pa.Field:
    return pa.field(name, kind, not required, {ID: str(number)})


SCHEMA = pa.schema([column("id", pa.int64(), 1, required=True), column("n", pa.int64(), 2)])


def stored(
    path: Path, schema: pa.Schema, rows: Mapping[str, Sequence[Any]], sequence: int = 0
) -> LiveFile:
    table = pa.table([pa.array(rows[f.name], f.type) for f in schema], schema)
    pq.write_table(table, path, row_group_size=4, store_schema=False)
    return LiveFile(str(path), table.num_rows, path.stat().st_size, 1, sequence=sequence)


def numbers(path: Path, ids: Sequence[int], sequence: int = 0) -> LiveFile:
    return stored(path, SCHEMA, {"id": ids, "n": [10 * i for i in ids]}, sequence)


def marks(path: Path, rows: Mapping[str, Sequence[int]]) -> StoredMarks:
    pairs = [(one, pos) for one, at in sorted(rows.items()) for pos in at]
    table = pa.table([[p for p, _ in pairs], [pos for _, pos in pairs]], MARKS)
    pq.write_table(table, path)
    return StoredMarks(str(path), len(pairs), path.stat().st_size)


def keys(path: Path, ids: Sequence[int], sequence: int, name: str = "id") -> StoredKeys:
    schema = pa.schema([column(name, pa.int64(), 1, required=True)])
    pq.write_table(pa.table([pa.array(ids, pa.int64())], schema), path, store_schema=False)
    return StoredKeys(str(path), len(ids), path.stat().st_size, sequence)


def changed(*ids: int) -> KeySet:
    key = KeyColumns(SCHEMA, ["id"])
    columns = [pa.array(ids, pa.int64())]
    return KeySet(key, find_runs(key, [columns], [key.hashes(columns)], 0))


def read(
    files: Sequence[LiveFile],
    bucket: BucketFiles | None = None,
    without: KeySet | None = None,
    schema: pa.Schema = SCHEMA,
    **options: Any,
) -> tuple[pa.Table, LiveRows]:
    rows = LiveRows(schema, ["id"], LakeReader(FileSystems()), **options)
    dead = rows.dead_rows(files, bucket or BucketFiles(tuple(files)), without)
    return pa.Table.from_batches(rows.read(files, dead), schema), rows


def test_marked_rows_are_left_out(tmp_path: Path) -> None:
    a, b = numbers(tmp_path / "a", range(10)), numbers(tmp_path / "b", range(20, 30))
    one = marks(tmp_path / "m", {a.path: [0, 3, 4, 9], b.path: [5]})
    other = marks(tmp_path / "o", {a.path: [3, 8], "gone": [1]})
    found, rows = read([a, b], BucketFiles((a, b), (one, other)))
    assert found.column("id").to_pylist() == [1, 2, 5, 6, 7, *(i for i in range(20, 30) if i != 25)]
    assert found.column("n").to_pylist() == [10 * i for i in found.column("id").to_pylist()]
    assert (rows.counts.rows, rows.counts.dead_rows) == (20, 6)


def test_equality_deletes_apply_to_older_files_only(tmp_path: Path) -> None:
    a, b, c = (numbers(tmp_path / n, [1, 2, 3], s) for n, s in (("a", 1), ("b", 3), ("c", 5)))
    deletes = (keys(tmp_path / "x", [1], 2), keys(tmp_path / "y", [1, 2, 9], 4))
    found, _ = read([a, b, c], BucketFiles((a, b, c), keys=deletes))
    assert found.column("id").to_pylist() == [3, 3, 1, 2, 3]


def test_the_newest_delete_of_a_key_counts(tmp_path: Path) -> None:
    a = numbers(tmp_path / "a", [1, 2], 3)
    deletes = (
        keys(tmp_path / "x", [1, 2], 2),
        keys(tmp_path / "y", [1], 9),
        keys(tmp_path / "z", [1], 9),
    )
    assert read([a], BucketFiles((a,), keys=deletes))[0].column("id").to_pylist() == [2]


def test_changed_keys_are_left_out_of_all_files(tmp_path: Path) -> None:
    a, b = numbers(tmp_path / "a", [1, 2]), numbers(tmp_path / "b", [2, 3])
    found, rows = read([a, b], without=changed(2, 77))
    assert found.column("id").to_pylist() == [1, 3]
    assert rows.counts.dead_rows == 2


def test_columns_are_found_by_their_ids(tmp_path: Path) -> None:
    """Renamed, moved, widened, added and dropped since the file was written."""
    old = pa.schema(
        [
            column("gone", pa.string(), 7),
            column("was", pa.int32(), 2),
            column("key", pa.int64(), 1, required=True),
        ]
    )
    file = stored(tmp_path / "a", old, {"gone": ["x"], "was": [5], "key": [1]})
    now = pa.schema([*SCHEMA, column("new", pa.string(), 9)])
    found, _ = read([file], schema=now)
    assert found.to_pylist() == [{"id": 1, "n": 5, "new": None}]
    assert found.schema.equals(now)


@pytest.mark.parametrize("case", ["required", "default", "no ids"])
def test_files_that_lack_something_are_refused(tmp_path: Path, case: str) -> None:
    file, options, schema = numbers(tmp_path / "a", [1]), {}, SCHEMA
    if case == "no ids":
        pq.write_table(pa.table({"id": [1], "n": [2]}), file.path, store_schema=False)
    else:
        schema = pa.schema([*SCHEMA, column("new", pa.int64(), 9, required=case == "required")])
        options = {"with_default": {9}} if case == "default" else {}
    with pytest.raises(LakeTableMismatch, match="no field ids|lacks column new, which is required"):
        read([file], schema=schema, **options)


def test_nested_columns_have_to_have_the_same_fields(tmp_path: Path) -> None:
    def schema(inside: int) -> pa.Schema:
        kind = pa.struct([column("x", pa.int64(), inside)])
        return pa.schema([SCHEMA.field("id"), column("s", kind, 4)])

    file = stored(tmp_path / "a", schema(5), {"id": [1, 2], "s": [{"x": 3}, None]})
    assert read([file], schema=schema(5))[0].column("s").to_pylist() == [{"x": 3}, None]
    with pytest.raises(LakeTableMismatch, match="other fields in column s"):
        read([file], schema=schema(6))


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    file = numbers(tmp_path / "a", [1])
    (tmp_path / "a").write_bytes(b"PAR1 and no more")
    with pytest.raises(LakeFileUnreadable, match=f"data file {file.path} cannot be read"):
        read([file])


def test_large_files_are_read_in_batches(tmp_path: Path) -> None:
    count = 200_000
    table = pa.table([np.arange(count), np.arange(count)], SCHEMA)
    pq.write_table(table, tmp_path / "a", store_schema=False)
    file = LiveFile(str(tmp_path / "a"), count, (tmp_path / "a").stat().st_size, 1)
    dead = marks(tmp_path / "m", {file.path: [*range(65_530, 65_540), count - 1]})
    found, rows = read([file], BucketFiles((file,), (dead,)))
    assert (found.num_rows, rows.counts.dead_rows) == (count - 11, 11)
    expected = np.setdiff1d(np.arange(count), [*range(65_530, 65_540), count - 1])
    assert np.array_equal(found.column("id").to_numpy(), expected)


def test_rows_have_the_ids_of_their_places_or_those_that_they_brought(tmp_path: Path) -> None:
    schema = pa.schema([*SCHEMA, *LINEAGE])
    plain = replace(numbers(tmp_path / "a", [7, 8, 9], 5), first_row_id=100)
    columns = {
        "id": [1, 2],
        "n": [0, 0],
        "_row_id": [3, None],
        "_last_updated_sequence_number": [2, None],
    }
    moved = replace(stored(tmp_path / "b", schema, columns, 6), first_row_id=200)
    new = numbers(tmp_path / "c", [4])
    dead = marks(tmp_path / "m", {plain.path: [1]})
    files = [plain, moved, new]
    found, _ = read(files, BucketFiles(tuple(files), (dead,)), schema=schema)
    ids = [
        (row["id"], row["_row_id"], row["_last_updated_sequence_number"])
        for row in found.to_pylist()
    ]
    assert ids == [(7, 100, 5), (9, 102, 5), (1, 3, 2), (2, 201, 6), (4, None, None)]
