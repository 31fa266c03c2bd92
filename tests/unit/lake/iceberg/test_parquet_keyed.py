"""Files of a split of a table with a primary key: rows, and equality deletes."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sluice.errors import LakeTableMismatch, UnsupportedLakeOption
from sluice.iceberg_rules.layout import Layout
from sluice.lake.iceberg.schema import schema_json
from sluice.lake.iceberg.write.split_writer import ParquetSplitWriter
from sluice.lake.parquet.writer import WriteOptions
from sluice.model import COMMIT_TIMESTAMP, LOG_OFFSET, DataType, TableBucket
from sluice.model import types as t
from sluice.rounds.values.lake_files import NO_DELETES, BucketFiles, Compaction, LiveFile
from sluice.rounds.values.limits import TimeLeft
from sluice.rounds.values.types import KeyedSplitOptions, Split
from tests.support.lake.split_writers import writer_factory
from tests.support.models.tables import table_info

BUCKET = TableBucket(1, 9, 3)
ENDLESS = TimeLeft(lambda: None, lambda: None)
SPLIT = Split(BUCKET, ("mon",), 0, 100, keyed=KeyedSplitOptions(("id", "day")))
COLUMNS = {
    "s": t.STRING,
    "id": t.BIGINT.not_null(),
    "at": t.timestamp(9),
    "day": t.STRING.not_null(),
}


def writer(
    folder: Path,
    columns: dict[str, DataType] | None = None,
    split: Split = SPLIT,
    layout: Layout = Layout.LEGACY,
    **options: int,
) -> ParquetSplitWriter:
    info = table_info(columns or COLUMNS, primary_key=("id", "day"), bucket_keys=("id",))
    settings = WriteOptions(**{"target_file_bytes": 2**30, **options})
    made = writer_factory(info, [split], folder, settings, layout=layout)
    found = pickle.loads(pickle.dumps(made))(split, 7)
    assert isinstance(found, ParquetSplitWriter)
    return found


def rows(start: int, count: int) -> pa.Table:
    ids = np.arange(start, start + count, dtype=np.int64)
    return pa.table(
        {
            "s": pa.array([f"row {i}" for i in ids]),
            "id": pa.array(ids),
            "at": pa.array(ids * 1_000_001).view(pa.timestamp("ns")),
            "day": pa.array(["mon"] * count),
            LOG_OFFSET: pa.array(ids + 100),
            COMMIT_TIMESTAMP: pa.array(ids * 1000).view(pa.timestamp("us", tz="UTC")),
        }
    )


def keys(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "day": pa.array(["mon"] * len(ids))})


def test_rows_and_deletes_lie_in_files_of_their_own(tmp_path: Path) -> None:
    writing = writer(tmp_path)
    writing.upsert(rows(0, 3))
    writing.delete(keys(7, 8))
    writing.upsert(rows(10, 1))
    [deletes] = writing.close_deletes().files
    [data] = writing.close()
    assert Path(data.path).name == "00003-7-w1-p9-00001.parquet"
    assert Path(deletes.path).name == "00003-7-w1-p9-00001-deletes.parquet"
    assert (data.rows, data.deletes, data.partition) == (4, False, ("mon", "3"))
    assert (deletes.rows, deletes.deletes, deletes.partition) == (2, True, ("mon", "3"))
    assert deletes.size_bytes == Path(deletes.path).stat().st_size
    table = pq.read_table(data.path, partitioning=None)
    assert table.column_names == ["s", "id", "at", "day", "__bucket", "__offset", "__timestamp"]
    assert table.column("__offset").to_pylist() == [100, 101, 102, 110]
    assert table.column("__timestamp").cast(pa.int64()).to_pylist() == [0, 1000, 2000, 10_000]
    assert table.column("__bucket").to_pylist() == [3] * 4
    assert table.column("at").cast(pa.int64()).to_pylist() == [0, 1000, 2000, 10_000]


def test_a_file_of_deletes_has_the_key_alone_with_its_field_ids(tmp_path: Path) -> None:
    writing = writer(tmp_path)
    writing.delete(keys(7))
    [deletes] = writing.close_deletes().files
    table = pq.read_table(deletes.path, partitioning=None)
    assert table.to_pylist() == [{"id": 7, "day": "mon"}]
    ids = {f.name: f.metadata[b"PARQUET:field_id"] for f in table.schema}
    assert ids == {"id": b"2", "day": b"4"}
    assert not any(field.nullable for field in table.schema)


def test_nothing_makes_no_file(tmp_path: Path) -> None:
    writing = writer(tmp_path)
    writing.upsert(rows(0, 0))
    writing.delete(keys())
    assert writing.close_deletes() == NO_DELETES
    assert writing.close() == ()
    assert list(tmp_path.iterdir()) == []


def test_row_groups_of_a_table_larger_than_one_are_bounded(tmp_path: Path) -> None:
    writing = writer(tmp_path, row_group_rows=400)
    writing.upsert(rows(0, 1000))
    for start in range(0, 300, 100):
        writing.upsert(rows(start, 100))
    (data,) = writing.close()
    meta = pq.ParquetFile(data.path).metadata
    counts = [meta.row_group(i).num_rows for i in range(meta.num_row_groups)]
    assert counts == [400, 400, 200, 300]


def test_abort_leaves_nothing(tmp_path: Path) -> None:
    writing = writer(tmp_path, row_group_rows=10, target_file_bytes=1)
    writing.upsert(rows(0, 100))
    writing.delete(keys(*range(100)))
    assert len(list(tmp_path.iterdir())) > 2
    writing.abort()
    assert list(tmp_path.iterdir()) == []


def test_abort_deletes_rewritten_files_and_not_the_old_ones(tmp_path: Path) -> None:
    earlier = writer(tmp_path)
    earlier.upsert(rows(0, 100))
    [old] = earlier.close()
    live = (LiveFile(old.path, old.rows, old.size_bytes, 1),)
    split = replace(SPLIT, compaction=Compaction(live, BucketFiles(live), 2**30))
    writing = writer(tmp_path / "new", split=split)
    writing.upsert(rows(100, 10))
    written = writing.compact(writing.close(), ENDLESS)
    assert (written.why_not, written.removed, len(written.files)) == ("", (old.path,), 1)
    assert len(list((tmp_path / "new").iterdir())) == 2
    writing.abort()
    assert list((tmp_path / "new").iterdir()) == []
    assert Path(old.path).exists()


def test_a_value_in_a_column_that_the_lake_lacks_is_not_left_behind(tmp_path: Path) -> None:
    found = rows(0, 2).append_column("new", pa.array([None, 1]))
    with pytest.raises(LakeTableMismatch, match="values in column new"):
        writer(tmp_path).upsert(found)
    writing = writer(tmp_path)
    writing.upsert(rows(0, 2).append_column("new", pa.array([None, None])))
    assert len(writing.close()) == 1


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (t.timestamp(9), r"use TIMESTAMP\(6\)"),
        (t.timestamp_ltz(7), r"use TIMESTAMP_LTZ\(6\)"),
        (t.DOUBLE, "does not allow in a key"),
        (t.FLOAT, "does not allow in a key"),
    ],
)
def test_keys_that_deletes_cannot_name_are_refused(kind: DataType, why: str) -> None:
    columns = {"id": t.BIGINT.not_null(), "k": kind.not_null()}
    info = table_info(columns, primary_key=("id", "k"), bucket_keys=("id",))
    with pytest.raises(UnsupportedLakeOption, match=why):
        schema_json(info, Layout.LEGACY)
