"""Positions of keys in data files of this project and of other writers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.errors import LakeFileUnreadable, LakeTableMismatch
from sluice.lake.iceberg.deletes.position_finder import FoundPositions, PositionFinder
from sluice.lake.parquet.reader import LakeReader
from sluice.lake.storage.file_systems import FileSystems
from sluice.rounds.copy.key_hashes import KeyColumns
from sluice.rounds.values.lake_files import LiveFile
from tests.support.lake.lake_keys import (
    EDGES,
    FIELD_ID,
    KINDS,
    data_file,
    key_schema,
    key_table,
    live_file,
)

MOST = 1 << 30
"""More positions than any file here has."""
Keys = Sequence[tuple[Any, ...]]
INT, TEXT, BOTH = ("BIGINT",), ("STRING",), ("INT", "STRING")


def finder(kinds: Sequence[str], *keys: tuple[Any, ...]) -> PositionFinder:
    middle = len(keys) // 2  # they come in several tables
    tables = [key_table(kinds, part) for part in (keys[:middle], keys[middle:])]
    return PositionFinder(tables, key_schema(kinds), LakeReader(FileSystems()))


def positions(found: FoundPositions) -> dict[str, list[int]]:
    return {Path(path).name: rows.tolist() for path, rows in found.by_file.items()}


def replayed(stored: Keys, keys: Keys) -> list[int]:
    return [place for place, key in enumerate(stored) if key in set(keys)]


def test_no_file_is_read_after_more_positions_than_fit_into_memory(tmp_path: Path) -> None:
    some = [data_file(tmp_path / name, INT, [(1,), (2,)]) for name in "abc"]
    found = finder(INT, (1,), (2,)).find(some, 3)
    assert (found.count, found.files_read) == (4, 2)
    assert finder(INT, (1,)).find(some, 3).files_read == 3


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=8)
@given(data=st.data())
def test_keys_of_every_type(
    kind: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    pool = data.draw(st.lists(KINDS[kind].values, min_size=1, max_size=8, unique=True))
    stored = [(v,) for v in data.draw(st.lists(st.sampled_from(pool), min_size=1, max_size=20))]
    keys = [(v,) for v in data.draw(st.lists(st.sampled_from(pool), min_size=1, unique=True))]
    rows = data.draw(st.integers(1, 20))
    path = tmp_path_factory.mktemp("keys") / "f"
    file = data_file(path, [kind], stored, row_group_size=rows, use_dictionary=bool(rows % 2))
    looking = finder([kind], *keys)
    expected = replayed(stored, keys)
    assert looking.may_have(file) or not expected
    found = looking.find([file], MOST)
    assert positions(found) == ({"f": expected} if expected else {})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [2, 100])
def test_the_ends_of_every_type(kind: str, rows: int, tmp_path: Path) -> None:
    """In a row group for two of them, whose statistics have the ends, and in one for all."""
    edges = [(value,) for value in sorted(EDGES[kind])]
    file = data_file(tmp_path / "f", [kind], edges, row_group_size=rows)
    for place, key in enumerate(edges):
        assert positions(finder([kind], key).find([file], MOST)) == {"f": [place]}


@settings(max_examples=40)
@given(data=st.data())
def test_composite_keys(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    kinds = data.draw(st.lists(st.sampled_from([*KINDS]), min_size=2, max_size=4))
    pools = [data.draw(st.lists(KINDS[k].values, min_size=1, max_size=3)) for k in kinds]
    key = st.tuples(*[st.sampled_from(pool) for pool in pools])
    stored = data.draw(st.lists(key, min_size=1, max_size=20))
    keys = data.draw(st.lists(key, min_size=1, max_size=6, unique=True))
    path = tmp_path_factory.mktemp("keys") / "f"
    file = data_file(path, kinds, stored, row_group_size=data.draw(st.integers(1, 20)))
    looking, expected = finder(kinds, *keys), replayed(stored, keys)
    assert looking.may_have(file) or not expected
    assert positions(looking.find([file], MOST)) == ({"f": expected} if expected else {})


def test_parts_of_a_key_do_not_run_together(tmp_path: Path) -> None:
    kinds = ("STRING", "STRING")
    stored = [("ab", "c"), ("a", "bc"), ("", "abc"), ("abc", ""), ("c", "ab")]
    file = data_file(tmp_path / "f", kinds, stored)
    for place, key in enumerate(stored):
        assert positions(finder(kinds, key).find([file], MOST)) == {"f": [place]}


def test_positions_count_over_row_groups_and_batches(tmp_path: Path) -> None:
    count = 300_000  # more than one batch in a row group
    numbers = np.random.default_rng(1).permutation(count)
    table = key_table(INT, []).schema.empty_table()
    table = pa.table([pa.array(numbers)], schema=table.schema)
    pq.write_table(table, tmp_path / "f", row_group_size=200_000, compression="zstd")
    file = LiveFile(str(tmp_path / "f"), count, (tmp_path / "f").stat().st_size, 100)
    keys = [7, 131_071, 131_072, 199_999, 200_000, count - 1, count]
    found = finder(INT, *[(key,) for key in keys]).find([file], MOST)
    assert positions(found) == {"f": np.flatnonzero(np.isin(numbers, keys)).tolist()}
    assert found.by_file[file.path].dtype == np.int64
    assert (found.count, found.files_read, found.bytes_read) == (6, 1, 100)


def test_several_files_and_those_without_a_key(tmp_path: Path) -> None:
    some = [
        data_file(tmp_path / name, BOTH, [(i, "x") for i in rows])
        for name, rows in {"a": (1, 2, 1), "b": (3,), "c": (2, 1)}.items()
    ]
    looking = finder(BOTH, (1, "x"), (9, "x"))
    assert [looking.may_have(file) for file in some] == [True, False, True]
    found = looking.find(some, MOST)
    assert positions(found) == {"a": [0, 2], "c": [1]}
    assert (found.count, found.files_read, found.bytes_read) == (3, 3, 60)


def whatever(table: pa.Table) -> pa.Table:
    return table


def as_large(table: pa.Table) -> pa.Table:
    return table.cast(pa.schema([with_type(f, pa.large_string()) for f in table.schema]))


def as_dictionary(table: pa.Table) -> pa.Table:
    kind = pa.dictionary(pa.int32(), pa.string())
    return table.cast(pa.schema([with_type(f, kind) for f in table.schema]))


def as_bytes(table: pa.Table) -> pa.Table:
    return table.cast(pa.schema([with_type(f, pa.binary()) for f in table.schema]))


def with_type(field: pa.Field, kind: pa.DataType) -> pa.Field:
    return field.with_type(kind) if pa.types.is_string(field.type) else field


@pytest.mark.parametrize(
    ("change", "options"),
    [
        (whatever, {"compression": "none", "use_dictionary": False}),
        (whatever, {"compression": "gzip", "data_page_version": "2.0"}),
        (whatever, {"compression": "snappy", "version": "1.0", "write_statistics": False}),
        (whatever, {"column_encoding": "DELTA_BYTE_ARRAY", "use_dictionary": False}),
        (whatever, {"data_page_size": 1, "write_page_index": True}),
        (as_large, {"store_schema": True}),
        (as_dictionary, {"store_schema": True}),
        (as_bytes, {}),
    ],
)
@pytest.mark.parametrize("rows", [3, 100])
def test_files_of_other_writers(
    tmp_path: Path, change: Callable[[pa.Table], pa.Table], options: dict[str, Any], rows: int
) -> None:
    stored = [(f"key {i % 5}", "größe" * (i % 3)) for i in range(12)]
    keys = [("key 1", ""), ("key 3", "größe")]
    path, kinds = tmp_path / "f", ("STRING", "STRING")
    table = change(key_table(kinds, stored))
    pq.write_table(table, path, row_group_size=rows, **options)
    found = finder(kinds, *keys).find([live_file(path, kinds, stored)], MOST)
    assert positions(found) == {"f": replayed(stored, keys)}


@pytest.mark.parametrize(
    ("kind", "stored"),
    [
        ("BIGINT", pa.array([1, 7, 3], pa.int32())),  # promoted since
        ("DECIMAL(9, 2)", pa.array([1, 7, 3], pa.int32()).cast(pa.decimal128(12, 2))),
        ("TIMESTAMP_LTZ", pa.array([1000, 7000, 3000], pa.int64()).view(pa.timestamp("us"))),
        ("TIMESTAMP", pa.array([1, 7, 3], pa.int64()).view(pa.timestamp("ms"))),
        ("TIMESTAMP_LTZ", pa.array([1, 7, 3], pa.int64()).view(pa.timestamp("ms", "UTC"))),
        ("TIME", pa.array([1, 7, 3], pa.int32()).view(pa.time32("ms"))),
    ],
)
@pytest.mark.parametrize("rows", [1, 3])
def test_columns_that_a_file_stores_with_another_type(
    tmp_path: Path, kind: str, stored: pa.Array, rows: int
) -> None:
    """Statistics are in the file's units, and may not exclude a row group then."""
    schema = pa.schema([pa.field("k0", stored.type, False, {FIELD_ID: "10"})])
    pq.write_table(pa.table([stored], schema=schema), tmp_path / "f", row_group_size=rows)
    file = LiveFile(str(tmp_path / "f"), 3, (tmp_path / "f").stat().st_size, 1)
    value = {"BIGINT": 7, "DECIMAL(9, 2)": 700}.get(kind, 7000)
    assert positions(finder([kind], (value,)).find([file], MOST)) == {"f": [1]}


def test_columns_are_found_by_their_ids_whatever_their_names_were(tmp_path: Path) -> None:
    """Both columns were renamed since, each to the other's name."""
    stored = [("a", "b"), ("b", "a"), ("a", "a")]
    kinds = ("STRING", "STRING")
    table = key_table(kinds, stored)
    renamed = table.rename_columns(["k1", "k0"]).cast(
        pa.schema([f.with_name(n) for f, n in zip(table.schema, ("k1", "k0"), strict=True)])
    )
    beside = pa.field("k", pa.struct([pa.field("k0", pa.string())]), True, {FIELD_ID: "30"})
    renamed = renamed.append_column(beside, pa.array([{"k0": "z"}] * 3, beside.type))
    for rows in (1, 3):
        pq.write_table(renamed, tmp_path / "f", row_group_size=rows)
        file = live_file(tmp_path / "f", kinds, stored)
        assert positions(finder(kinds, ("a", "b")).find([file], MOST)) == {"f": [0]}


def test_a_nested_column_with_the_path_of_a_key_excludes_nothing(tmp_path: Path) -> None:
    """Parquet gives the column a.b and the field b of a struct a the same path."""
    schema = pa.schema([pa.field("a.b", pa.int64(), False, {FIELD_ID: "10"})])
    nested = pa.field("a", pa.struct([pa.field("b", pa.int64())]), True, {FIELD_ID: "11"})
    table = pa.table([pa.array([1, 2, 3])], schema=schema)
    table = table.append_column(nested, pa.array([{"b": 90}] * 3, nested.type))
    pq.write_table(table, tmp_path / "f", row_group_size=2)
    file = LiveFile(str(tmp_path / "f"), 3, (tmp_path / "f").stat().st_size, 1)
    keys = pa.table([pa.array([2])], schema=schema)
    found = PositionFinder([keys], schema, LakeReader(FileSystems())).find([file], MOST)
    assert positions(found) == {"f": [1]}


@pytest.mark.parametrize("left_out", [["k1"], ["k0", "k1"]])
def test_a_file_without_a_key_column_is_named(tmp_path: Path, left_out: list[str]) -> None:
    table = key_table(BOTH, [(1, "a")])
    beside = pa.field("n", pa.int64(), True, {FIELD_ID: "1"})
    table = table.append_column(beside, pa.array([1])).drop_columns(left_out)
    pq.write_table(table, tmp_path / "f")
    with pytest.raises(LakeTableMismatch, match=rf"f lacks key columns \['{left_out[0]}'"):
        finder(BOTH, (1, "a")).find([LiveFile(str(tmp_path / "f"), 1, 500, 1)], MOST)


def test_a_file_without_field_ids_is_not_trusted_by_its_names(tmp_path: Path) -> None:
    """Iceberg goes by a mapping of the table's, or by the order of the columns."""
    table = key_table(BOTH, [(1, "a")]).replace_schema_metadata(None)
    bare = pa.schema([f.remove_metadata() for f in table.schema])
    pq.write_table(pa.table(table.columns, schema=bare), tmp_path / "f")
    with pytest.raises(LakeTableMismatch, match="f has no field ids"):
        finder(BOTH, (1, "a")).find([LiveFile(str(tmp_path / "f"), 1, 500, 1)], MOST)


def test_a_row_without_a_key_is_an_error(tmp_path: Path) -> None:
    schema = pa.schema([f.with_nullable(True) for f in key_schema(TEXT)])
    pq.write_table(pa.table([pa.array(["a", None])], schema=schema), tmp_path / "f")
    with pytest.raises(LakeFileUnreadable, match="/f cannot be read: .*k0: 1 rows have a null"):
        finder(TEXT, ("a",)).find([LiveFile(str(tmp_path / "f"), 2, 500, 1)], MOST)


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        ("BIGINT", range(1000), range(1000, 2000)),
        ("STRING", [f"a{i}" for i in range(1000)], [f"b{i}" for i in range(1000)]),
        ("DATE", range(-3_000_000, -2_999_000), range(5_000_000, 5_001_000)),  # not Python's years
        ("DECIMAL(38, 10)", range(-1000, 0), range(10**37, 10**37 + 1000)),
    ],
)
def test_row_groups_without_a_key_are_not_read(
    tmp_path: Path, kind: str, old: Sequence[Any], new: Sequence[Any]
) -> None:
    """Those of the first rows are damaged: whoever reads them cannot overlook it."""
    stored = [(value,) for value in (*old, *new)]
    file = data_file(
        tmp_path / "f",
        [kind],
        stored,
        row_group_size=1000,
        use_dictionary=False,
        compression="none",
    )
    column = pq.read_metadata(file.path).row_group(0).column(1)
    content = bytearray((tmp_path / "f").read_bytes())
    start = column.data_page_offset
    content[start : start + column.total_compressed_size] = bytes(column.total_compressed_size)
    (tmp_path / "f").write_bytes(content)
    assert positions(finder([kind], (new[5],)).find([file], MOST)) == {"f": [1005]}
    with pytest.raises(LakeFileUnreadable, match=file.path):
        finder([kind], (new[5],), (old[5],)).find([file], MOST)


class TestCollidingHashes:
    """Chance never shows them."""

    @pytest.fixture(params=[1, 3, 1_000])
    def weak(self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
        """The first seed has few hashes, so that another one is taken for the keys, or not."""
        strong = KeyColumns.hashes

        def hashes(key: KeyColumns, columns: Sequence[pa.Array], seed: int = 0) -> np.ndarray:
            found = strong(key, columns, seed)
            return found if seed else found % np.uint64(request.param)

        monkeypatch.setattr(KeyColumns, "hashes", hashes)

    @pytest.mark.usefixtures("weak")
    @pytest.mark.parametrize("keys", [[("key 7",)], [(f"key {i}",) for i in range(0, 90, 3)]])
    def test_candidates_are_compared_by_value(self, tmp_path: Path, keys: Keys) -> None:
        stored = [(f"key {i % 100}",) for i in range(500)]
        file = data_file(tmp_path / "f", TEXT, stored)
        assert positions(finder(TEXT, *keys).find([file], MOST)) == {"f": replayed(stored, keys)}


@pytest.mark.parametrize("rows", [10, 200_000])
def test_a_storage_that_is_not_local(tmp_path: Path, rows: int) -> None:
    """fsspec's files; those that are large are read in parts, ahead of use."""
    stored = [(f"{i:09}",) for i in range(rows)]
    some = []
    for name in ("a", "b"):
        file = data_file(tmp_path / name, TEXT, stored, row_group_size=60_000)
        uri = f"memory://{file.path}"
        with fsspec.open(uri, "wb") as target:
            target.write((tmp_path / name).read_bytes())
        some.append(LiveFile(uri, rows, file.size_bytes, 1, file.bounds))
    reader = LakeReader(FileSystems())
    assert not reader.is_local(some[0].path)
    keys = key_table(TEXT, [(f"{rows - 3:09}",), ("x",)])
    found = PositionFinder([keys], key_schema(TEXT), reader).find(some, MOST)
    assert positions(found) == {"a": [rows - 3], "b": [rows - 3]}


@pytest.mark.parametrize("damage", ["gone", "cut", "empty", "other"])
def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path, damage: str) -> None:
    file = data_file(tmp_path / "f", INT, [(1,), (2,)])
    content = (tmp_path / "f").read_bytes()
    if damage == "gone":
        (tmp_path / "f").unlink()
    else:
        (tmp_path / "f").write_bytes({"cut": content[:-9], "empty": b""}.get(damage, b"x" * 400))
    expected = FileNotFoundError if damage == "gone" else LakeFileUnreadable
    with pytest.raises(expected, match=file.path):
        finder(INT, (1,)).find([file], MOST)
