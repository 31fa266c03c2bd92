"""Files of a split whose rows are in partitions of their own values."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sluice.errors import UnsupportedLakeOption
from sluice.iceberg_rules.layout import PartField, PartKind
from sluice.lake.iceberg.write import partitioned_files
from sluice.lake.iceberg.write.partitioned_files import PartitionedFiles
from sluice.lake.parquet.writer import FileTarget, WriteOptions
from sluice.lake.storage.file_systems import FileSystems

BY_K = PartField("k", "k", "identity", PartKind.OWN)


def files_in(folder: Path, row_group_bytes: int, *fields: PartField) -> PartitionedFiles:
    options = WriteOptions(target_file_bytes=2**30, row_group_bytes=row_group_bytes)
    target = FileTarget(FileSystems(), str(folder), "00000-0-w1", ())
    return PartitionedFiles(target, options, fields or (BY_K,))


def test_each_file_has_the_rows_of_one_value_in_their_order(tmp_path: Path) -> None:
    random = np.random.default_rng(7)
    keys = random.zipf(1.4, 20_000).clip(max=300)
    table = pa.table({"k": pa.array(keys, pa.int64()), "n": pa.array(np.arange(len(keys)))})
    files = files_in(tmp_path, 40_000)
    for start in range(0, len(keys), 1_000):
        files.write_group(table.slice(start, 1_000))
    found = files.close()
    assert sum(file.rows for file in found) == len(keys)
    seen: dict[int, list[int]] = {}
    for file in found:
        rows = pq.ParquetFile(file.path).read()
        [key] = {str(one) for one in rows["k"].to_pylist()}
        assert file.partition == (key,)
        seen.setdefault(int(key), []).extend(rows["n"].to_pylist())
    for key, numbers in seen.items():
        assert sorted(numbers) == np.flatnonzero(keys == key).tolist()
    largest = seen[1]
    assert largest == sorted(largest), "its file stayed open"
    assert len({file.path for file in found}) == len(found)


def test_no_rows_are_no_files(tmp_path: Path) -> None:
    files = files_in(tmp_path, 1_000)
    files.write_group(pa.table({"k": pa.array([], pa.int64())}))
    assert files.close() == ()
    assert files_in(tmp_path, 1_000).close() == ()


def test_too_many_partitions_are_refused_with_what_mends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitioned_files, "PARTITIONS_MAX", 50)
    files = files_in(tmp_path, 100)
    files.write_group(pa.table({"k": list(range(50))}))
    with pytest.raises(UnsupportedLakeOption, match=r"REPLACE PARTITION FIELD k WITH bucket\(16"):
        files.write_group(pa.table({"k": [50]}))
    files.abort()
    assert [one for one in tmp_path.rglob("*") if one.is_file()] == []


_FEW_ROWS_EACH = """
import sys
import pyarrow as pa
from pathlib import Path
from sluice.lake.iceberg.write import partitioned_files
from tests.support.programs.peak_memory import peak_mib
from tests.unit.lake.iceberg.write.test_partitioned_files import files_in

partitioned_files.PARTITIONS_MAX = 1 << 20
files = files_in(Path(sys.argv[1]), 1 << 27)
columns = {f"c{i}": pa.array(range(1000)) for i in range(40)}
files.write_group(pa.table({"k": pa.array([0]), **{n: a[:1] for n, a in columns.items()}}))
before = peak_mib()
for start in range(0, 30_000, 1_000):
    files.write_group(pa.table({"k": pa.array(range(start, start + 1_000)), **columns}))
print(peak_mib() - before)
"""


def test_rows_of_many_partitions_take_the_memory_of_the_rows(tmp_path: Path) -> None:
    """10 MB of rows, each in a partition of its own; a table for each would take 1 GB."""
    run = [sys.executable, "-c", _FEW_ROWS_EACH, str(tmp_path)]
    grown_mib = int(subprocess.run(run, check=True, capture_output=True, timeout=120).stdout)
    assert grown_mib < 60


def test_a_long_value_has_a_folder_too(tmp_path: Path) -> None:
    long = "\u0416" * 60  # a path has nine characters for each
    files = files_in(tmp_path, 1_000)
    files.write_group(pa.table({"k": [long, "short", None]}))
    found = {file.partition: Path(file.path) for file in files.close()}
    assert found[("short",)].parent.name == "k=short"
    assert len(found[(long,)].parent.name) < 100
    assert pq.ParquetFile(found[(long,)]).read()["k"].to_pylist() == [long]


def test_a_text_like_null_is_a_partition_of_its_own(tmp_path: Path) -> None:
    texts = ["__HIVE_DEFAULT_PARTITION__", "null", "None", "", None]
    files = files_in(tmp_path, 1_000)
    files.write_group(pa.table({"k": texts}))
    found = files.close()
    assert {file.partition: file.rows for file in found} == {(text,): 1 for text in texts}
    assert len({file.path for file in found}) == 5
