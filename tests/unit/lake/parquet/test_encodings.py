"""Which encoding each column of a data file gets."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.lake.parquet.encodings import DELTA, delta_columns, dictionary_columns
from sluice.lake.parquet.writer import FileTarget, ParquetFiles, WriteOptions
from sluice.lake.storage.file_systems import FileSystems


def test_dictionaries_only_where_values_repeat() -> None:
    rows = 10_000
    table = pa.table(
        {
            "few": pa.array([f"v{i % 50}" for i in range(rows)]),
            "many": pa.array([f"v{i}" for i in range(rows)]),
            "int_few": pa.array(np.arange(rows) % 9),
            "nulls": pa.nulls(rows, pa.string()),
            "ok": pa.array([True] * rows),
            "list": pa.array([[1]] * rows),
            "distinct": pa.array(np.arange(rows)),
        }
    )
    assert dictionary_columns(table) == ["few", "int_few", "nulls"]


def test_a_quick_look_loses_no_dictionary() -> None:
    """Columns that have just enough repeats, however they lie, and such as have too few."""
    rows = np.arange(30_000)
    table = pa.table(
        {
            "cycle": rows % 5_000,
            "runs": rows // 4,
            "late": np.minimum(rows, 4_999),
            "early": np.maximum(rows - 15_000, 0),
            "few repeats": rows % 5_001,
            "no repeats": rows,
            "mostly null": pa.array([None if i % 4 else i for i in rows.tolist()]),
        }
    )
    assert dictionary_columns(table) == ["cycle", "runs", "late", "early", "mostly null"]


ROWS = 30_000
RISING = np.arange(ROWS, dtype=np.int64)
NUMBERS: dict[str, pa.Array] = {
    "int": pa.array(RISING.astype(np.int32)),
    "long": pa.array(RISING * 1_000_003),
    "date": pa.array(RISING.astype(np.int32)).cast(pa.date32()),
    "time": pa.array(RISING).cast(pa.time64("us")),
    "timestamp": pa.array(RISING * 997).cast(pa.timestamp("us")),
    "timestamptz": pa.array(RISING * 997).cast(pa.timestamp("us", tz="UTC")),
    "decimal9": pa.array(RISING).cast(pa.decimal128(20, 0)).cast(pa.decimal128(9, 0)),
    "decimal18": pa.array(RISING).cast(pa.decimal128(20, 0)).cast(pa.decimal128(18, 0)),
    "with nulls": pa.array(RISING, mask=RISING % 3 == 0),
}
OTHERS: dict[str, pa.Array] = {
    "random": pa.array(np.random.default_rng(0).integers(-(2**63), 2**63, ROWS, endpoint=False)),
    "decimal19": pa.array(RISING).cast(pa.decimal128(19, 0)),
    "double": pa.array(RISING / 7),
    "string": pa.array([f"row {i}" for i in range(ROWS)]),
    "bool": pa.array(RISING % 2 == 0),
    "list": pa.array([[i] for i in range(ROWS)]),
}


def written(folder: Path, table: pa.Table, **options: Any) -> tuple[pa.Table, dict[str, set[str]]]:
    """The rows of the file of a table, and the encodings of each column."""
    target = FileTarget(FileSystems(), str(folder), "p", ())
    files = ParquetFiles(target, WriteOptions(2**30, **options))
    files.write_group(table)
    (file,) = files.close()
    group = pq.read_metadata(file.path).row_group(0)
    chunks = [group.column(i) for i in range(group.num_columns)]
    encodings = {chunk.path_in_schema.split(".")[0]: set(chunk.encodings) for chunk in chunks}
    return pq.read_table(file.path), encodings


def test_numbers_that_rise_are_written_as_differences(tmp_path: Path) -> None:
    table = pa.table({**NUMBERS, **OTHERS})
    assert delta_columns(table, [], "zstd", None) == list(NUMBERS)
    assert delta_columns(table, ["int", "long"], "zstd", None) == list(NUMBERS)[2:]
    assert delta_columns(table.slice(0, 0), [], "zstd", None) == []
    read, encodings = written(tmp_path, table, delta_encoding=True)
    assert {name for name, found in encodings.items() if DELTA in found} == set(NUMBERS)
    assert read.equals(table)


@pytest.mark.parametrize("compression", ["zstd", "gzip", "uncompressed", "lz4_raw", "snappy"])
def test_every_engine_reads_the_encodings_of_the_first_page_version(
    tmp_path: Path, compression: str
) -> None:
    """Iceberg before 1.10 refuses others where Spark reads Parquet in its usual way."""
    table = pa.table({**NUMBERS, **OTHERS, "same": pa.array(["x"] * ROWS)})
    read, encodings = written(tmp_path, table, compression=compression)
    assert set.union(*encodings.values()) <= {"PLAIN", "RLE", "RLE_DICTIONARY"}
    assert read.equals(table)


def test_differences_make_a_file_smaller(tmp_path: Path) -> None:
    table = pa.table({**NUMBERS, **OTHERS})
    for folder, delta in (("plain", False), ("delta", True)):
        written(tmp_path / folder, table, delta_encoding=delta)
    plain, delta_file = (next((tmp_path / f).iterdir()) for f in ("plain", "delta"))
    assert delta_file.stat().st_size < 0.8 * plain.stat().st_size


_VALUES = {
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.date32(): st.dates(dt.date(1, 1, 1), dt.date(9999, 12, 31)),
    pa.time64("us"): st.times(),
    pa.timestamp("us"): st.datetimes(dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31)),
    pa.decimal128(18, 3): st.integers(-(10**18) + 1, 10**18 - 1).map(
        lambda n: Decimal(n).scaleb(-3)
    ),
}


@given(st.data())
def test_differences_give_every_value_back(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    kind = data.draw(st.sampled_from(list(_VALUES)))
    some = data.draw(st.lists(st.none() | _VALUES[kind], min_size=1, max_size=40))
    times = data.draw(st.integers(1, 60))
    # so long a start of equal steps that the differences are chosen
    start = pa.array(range(3_000), pa.int32() if kind.bit_width == 32 else pa.int64())
    if pa.types.is_decimal(kind):
        start = start.cast(pa.decimal128(30, 3))
    column = pa.concat_arrays([start.cast(kind), *[pa.array(some, kind)] * times])
    table = pa.table({"a": column})
    folder = tmp_path_factory.mktemp("encoded")
    read, encodings = written(folder, table, delta_encoding=True)
    assert read.equals(table)
    assert (DELTA in encodings["a"]) == (delta_columns(table, [], "zstd", None) == ["a"])
