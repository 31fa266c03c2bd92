"""Parquet files as batches: how much memory they take, and what is said where it is too little."""

from __future__ import annotations

import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sluice.cli.rows.columns import rows_of, schema_of
from sluice.cli.rows.readers import first_that_fails

ROOT = Path(__file__).resolve().parents[4]
WANTED = pa.schema([("id", pa.int64()), ("note", pa.string())])


def repeated(rows: int, value: str) -> pa.Table:
    notes = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([value]))
    return pa.table({"id": np.arange(rows), "note": notes})


def batches_of(path: Path) -> list[tuple[int, int]]:
    """Rows and bytes of each."""
    return [(batch.num_rows, batch.nbytes) for batch in rows_of(path, WANTED).batches()]


@pytest.mark.parametrize("store_schema", [True, False], ids=["dictionary type", "string"])
def test_a_batch_is_small_where_a_dictionary_repeats_large_values(
    tmp_path: Path, store_schema: bool
) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(repeated(66_000, "x" * 40_000), path, store_schema=store_schema)
    code = """
import sys
from pathlib import Path
import pyarrow as pa
from sluice.cli.rows.columns import rows_of, schema_of
from tests.support.programs.peak_memory import peak_mib
rows = rows_of(Path(sys.argv[1]), pa.schema([("id", pa.int64()), ("note", pa.string())]))
count = most = 0
for batch in rows.batches():
    count, most = count + batch.num_rows, max(most, batch.nbytes)
    if not most or batch.column("note")[batch.num_rows - 1].as_py() != "x" * 40_000:
        sys.exit("another value")
print(count, most >> 20, peak_mib())
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    count, most_mib, resident_mib = map(int, done.stdout.split())
    assert path.stat().st_size < 1_000_000, "of 2.6 GB"
    assert count == 66_000
    assert most_mib <= 32
    assert resident_mib < 400, "pyarrow alone takes some 120"


@pytest.mark.parametrize("use_dictionary", [True, False])
def test_batches_are_large_where_rows_are_small(tmp_path: Path, use_dictionary: bool) -> None:
    path = tmp_path / "t.parquet"
    notes = pa.array(["x" * 20, "y" * 20]).take(pa.array(np.arange(500_000) % 2))
    data = pa.table({"id": np.arange(500_000), "note": notes})
    pq.write_table(data, path, use_dictionary=use_dictionary)
    found = batches_of(path)
    assert sum(rows for rows, _ in found) == 500_000
    assert len(found) < 16
    assert max(rows for rows, _ in found) == 65_536
    assert pa.Table.from_batches(rows_of(path, WANTED).batches()).equals(data)
    assert batches_of(path) == found, "the same each time"


@pytest.mark.parametrize(
    "values",
    [
        pa.array([b"a", None]),
        pa.array([b"a", None], pa.large_binary()),
        pa.array(["a", None], pa.large_string()),
        pa.array([1, None], pa.int16()),
        pa.array([Decimal("1.25"), None]),
        pa.array([b"ab", None], pa.binary(2)),
        pa.nulls(2, pa.string()),
    ],
    ids=lambda values: str(values.type),
)
def test_a_dictionary_of_every_type_is_read(tmp_path: Path, values: pa.Array) -> None:
    path = tmp_path / "t.parquet"
    kind = values.type if not pa.types.is_large_string(values.type) else pa.string()
    kind = kind if not pa.types.is_large_binary(kind) else pa.binary()
    pq.write_table(pa.table({"c": values.dictionary_encode()}), path)
    (batch,) = rows_of(path, pa.schema([("c", kind)])).batches()
    assert batch.column("c").equals(values.cast(kind))


def test_batches_become_smaller_where_rows_become_larger(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    parts = [repeated(100_000, "x"), repeated(3_000, "y" * 1_000), repeated(3_000, "z" * 50_000)]
    with pq.ParquetWriter(path, WANTED) as writer:
        for part in parts:
            writer.write_table(part.cast(WANTED))
    found = batches_of(path)
    assert sum(rows for rows, _ in found) == 106_000
    assert max(size for _, size in found[-5:]) <= 32 << 20


def test_too_little_memory_is_not_taken_for_a_bad_value(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"id": pa.array([1], pa.int8()), "note": ["a"]}), path)
    code = """
import resource, sys
from pathlib import Path
import click, numpy as np, pyarrow as pa
from sluice.cli.rows.columns import rows_of, schema_of
rows = rows_of(Path(sys.argv[1]), pa.schema([("id", pa.int64())]), is_part=True)
(batch,) = rows.batches()
large = pa.record_batch({"id": pa.array(np.ones(200_000_000, np.int8))})
taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (taken + (256 << 20),) * 2)
try:
    rows.cast(large, 0)
except click.ClickException as error:
    print(error.message)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
    )
    told = f"{path}: row 1 (row group 1 of 1): column id: not enough memory for 200,000,000 rows"
    assert done.stdout.startswith(told)


@pytest.mark.parametrize("error", [pa.ArrowMemoryError, pa.ArrowCapacityError])
def test_nothing_is_searched_for_when_memory_is_short(error: type[Exception]) -> None:
    tried = []

    def trial(start: int, count: int) -> None:
        tried.append((start, count))
        raise error("too much")

    with pytest.raises(error):
        first_that_fails(1000, trial)
    assert len(tried) == 1


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_file_name_need_not_be_utf8(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"r\udcffows.{suffix}"
    if suffix == "csv":
        path.write_text("id,note\n1,a\n")
    else:
        with path.open("wb") as file:
            pq.write_table(pa.table({"id": [1], "note": ["a"]}), file)
    rows = rows_of(path, WANTED)
    assert [row for batch in rows.batches() for row in batch.to_pylist()] == [
        {"id": 1, "note": "a"}
    ]
    assert schema_of(path).names == ["id", "note"]
