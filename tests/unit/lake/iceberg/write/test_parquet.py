"""Files of one split, read back by pyarrow; Spark reads them in tests/spark."""

from __future__ import annotations

import pickle
import resource
import signal
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sluice.errors import LakeNotWritable, LakeTableMismatch, UnsupportedType
from sluice.iceberg_rules.layout import Layout
from sluice.lake.iceberg.write.split_writer import ParquetSplitWriter, ParquetWriterFactory
from sluice.lake.parquet.writer import WriteOptions
from sluice.model import DataType, TableBucket
from sluice.model import types as t
from sluice.rounds.values.types import LogRecords, Split, SplitPart
from tests.support.lake.split_writers import writer_factory
from tests.support.models.tables import table_info

BUCKET = TableBucket(1, 9, 3)
SPLIT = Split(BUCKET, ("mon",), 0, 100)


def factory(
    folder: Path | str,
    columns: dict[str, DataType] | None = None,
    layout: Layout = Layout.LEGACY,
    splits: Sequence[Split] = (SPLIT,),
    **options: int | str,
) -> ParquetWriterFactory:
    info = table_info(columns or {"a": t.BIGINT, "s": t.STRING})
    settings = WriteOptions(**{"target_file_bytes": 2**30, **options})  # type: ignore[arg-type]
    return writer_factory(info, splits, folder, settings, layout=layout)


def records(base: int, rows: int, timestamp_ms: int = 5) -> LogRecords:
    values = pa.array(np.arange(base, base + rows))
    text = pa.array([f"row {i}" for i in range(base, base + rows)])
    batch = pa.RecordBatch.from_arrays([values, text], ["a", "s"])
    return LogRecords(batch, base, base + max(1, rows), timestamp_ms, 1)


def write(writer: ParquetSplitWriter, *batches: LogRecords) -> list[Path]:
    for batch in batches:
        writer.write(batch)
    return [Path(file.path) for file in writer.close()]


def test_rows_carry_bucket_offset_and_commit_time(tmp_path: Path) -> None:
    writer = pickle.loads(pickle.dumps(factory(tmp_path / "p")))(SPLIT, 7)
    writer.write(records(0, 2, 1_700_000_000_123))
    writer.write(records(2, 0))
    writer.write(records(3, 1, 1_700_000_000_999))
    (file,) = writer.close()
    path = Path(file.path)
    assert path == tmp_path / "p" / "00003-7-w1-p9-00001.parquet"
    assert (file.rows, file.partition, file.size_bytes) == (3, ("mon", "3"), path.stat().st_size)
    table = pq.read_table(path, partitioning=None)
    assert table.column("__bucket").to_pylist() == [3, 3, 3]
    assert table.column("__offset").to_pylist() == [0, 1, 3]
    assert table.column("__timestamp").cast(pa.int64()).to_pylist() == [
        1_700_000_000_123_000, 1_700_000_000_123_000, 1_700_000_000_999_000,
    ]  # fmt: skip
    assert table.column("s").to_pylist() == ["row 0", "row 1", "row 3"]
    ids = [f.metadata[b"PARQUET:field_id"] for f in table.schema]
    assert ids == [b"1", b"2", b"3", b"4", b"5"]
    assert pq.ParquetFile(path).metadata.row_group(0).column(0).compression == "ZSTD"


def test_parts_of_a_window_have_files_of_their_own(tmp_path: Path) -> None:
    parts = [replace(SPLIT, part=SplitPart(number, 100)) for number in (0, 1)]
    made = [write(factory(tmp_path)(part), records(50 * i, 2)) for i, part in enumerate(parts)]
    names = [path.name for paths in made for path in paths]
    assert names == ["00003-0-w1-p9-part0-00001.parquet", "00003-0-w1-p9-part1-00001.parquet"]


def test_files_of_two_partitions_have_names_of_their_own(tmp_path: Path) -> None:
    """Clean-up looks for the name of a file among all that are referenced, in any folder."""
    splits = [replace(SPLIT, bucket=replace(BUCKET, partition_id=number)) for number in (9, None)]
    whole = factory(tmp_path, splits=splits)
    made = [write(whole(split), records(0, 2)) for split in splits]
    names = [path.name for paths in made for path in paths]
    assert names == ["00003-0-w1-p9-00001.parquet", "00003-0-w1-00001.parquet"]


def test_no_rows_make_no_file(tmp_path: Path) -> None:
    assert write(factory(tmp_path)(SPLIT), records(0, 0)) == []
    assert list(tmp_path.iterdir()) == []


def test_row_groups_are_bounded_by_rows_and_by_bytes(tmp_path: Path) -> None:
    batches = [records(i * 100, 100) for i in range(10)]
    (path,) = write(factory(tmp_path / "rows", row_group_rows=250)(SPLIT), *batches)
    meta = pq.ParquetFile(path).metadata
    assert [meta.row_group(i).num_rows for i in range(meta.num_row_groups)] == [300, 300, 300, 100]
    size = batches[0].batch.nbytes
    (path,) = write(factory(tmp_path / "bytes", row_group_bytes=size * 2)(SPLIT), *batches)
    meta = pq.ParquetFile(path).metadata
    assert [meta.row_group(i).num_rows for i in range(meta.num_row_groups)] == [200] * 5


def test_files_roll_at_the_target_size(tmp_path: Path) -> None:
    writer = factory(tmp_path, row_group_rows=1000, target_file_bytes=5_000)(SPLIT)
    paths = write(writer, *[records(i * 1000, 1000) for i in range(5)])
    assert len(paths) > 1
    assert [p.name for p in paths] == [
        f"00003-0-w1-p9-{i + 1:05d}.parquet" for i in range(len(paths))
    ]
    offsets = [o for p in paths for o in pq.read_table(p).column("__offset").to_pylist()]
    assert offsets == list(range(5000))


def test_a_file_appears_under_its_name_only_when_it_is_whole(tmp_path: Path) -> None:
    writer = factory(tmp_path, row_group_rows=10)(SPLIT)
    writer.write(records(0, 100))
    assert [p.suffix for p in tmp_path.iterdir()] == [".tmp"]
    assert all(p.name.startswith(".") for p in tmp_path.iterdir())
    writer.close()
    assert [p.suffix for p in tmp_path.iterdir()] == [".parquet"]


def test_abort_leaves_nothing(tmp_path: Path) -> None:
    writer = factory(tmp_path, row_group_rows=1000, target_file_bytes=1)(SPLIT)
    writer.write(records(0, 1000))
    assert len(list(tmp_path.iterdir())) == 1
    writer.write(records(1000, 10))
    writer.abort()
    assert list(tmp_path.iterdir()) == []
    unfinished = factory(tmp_path, row_group_rows=10)(SPLIT)
    unfinished.write(records(0, 100))
    unfinished.abort()
    assert list(tmp_path.iterdir()) == []


def test_the_same_split_twice_never_shares_a_file(tmp_path: Path) -> None:
    """A lost executor and its successor."""
    one, two = factory(tmp_path)(SPLIT, 1), factory(tmp_path)(SPLIT, 2)
    paths = {*write(one, records(0, 5)), *write(two, records(0, 5))}
    assert len(paths) == 2


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(LakeNotWritable, match="file/x"):
        write(factory(tmp_path / "file" / "x")(SPLIT), records(0, 1))
    with pytest.raises(LakeNotWritable, match="nosuchscheme"):
        factory("nosuchscheme://host/x")(SPLIT)


@pytest.fixture
def small_disk() -> Iterator[None]:
    """The kernel refuses files above 100 kB, as a full disk would."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.usefixtures("small_disk")
def test_a_disk_that_refuses_is_a_typed_error_and_leaves_no_file(tmp_path: Path) -> None:
    writer = factory(tmp_path, row_group_rows=10_000)(SPLIT)
    with pytest.raises(LakeNotWritable, match=r"00003-0-w1-p9-00001\.parquet.*File too large"):
        write(writer, *[records(i * 50_000, 50_000) for i in range(4)])
    writer.abort()
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_is_full_at_the_end_of_a_file_leaves_none(tmp_path: Path) -> None:
    writer = factory(tmp_path, row_group_rows=1000)(SPLIT)
    writer.write(records(0, 1000))
    (unfinished,) = tmp_path.iterdir()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (unfinished.stat().st_size, limits[1]))
    try:
        with pytest.raises(LakeNotWritable, match=r"00003-0-w1-p9-00001\.parquet.*File too large"):
            writer.close()
        writer.abort()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("options", [{"compression": "rar"}, {"compression_level": "much"}])
def test_a_file_that_cannot_be_begun_leaves_none(tmp_path: Path, options: dict[str, str]) -> None:
    writer = factory(tmp_path, None, **options)(SPLIT)
    with pytest.raises(LakeNotWritable, match=r"00003-0-w1-p9-00001\.parquet"):
        write(writer, records(0, 10))
    writer.abort()
    assert list(tmp_path.iterdir()) == []


def test_a_value_that_does_not_fit_is_named(tmp_path: Path) -> None:
    seconds = pa.RecordBatch.from_pydict({"t": pa.array([2**60], pa.timestamp("s"))})
    writer = factory(tmp_path, {"t": t.timestamp(0)})(SPLIT)
    with pytest.raises(UnsupportedType, match="column t"):
        write(writer, LogRecords(seconds, 0, 1, 0, 1))


def test_no_value_of_an_unknown_column_is_left_behind(tmp_path: Path) -> None:
    batch = records(0, 2).batch
    wider = batch.append_column("new", pa.array([None, None], pa.int32()))
    write(factory(tmp_path)(SPLIT), LogRecords(wider, 0, 2, 0, 1))
    filled = batch.append_column("new", pa.array([None, 1], pa.int32()))
    with pytest.raises(LakeTableMismatch, match="column new"):
        write(factory(tmp_path)(SPLIT), LogRecords(filled, 0, 2, 0, 1))
    with pytest.raises(LakeTableMismatch, match=r"lacks columns \['s'\]"):
        write(factory(tmp_path)(SPLIT), LogRecords(batch.select(["a"]), 0, 2, 0, 1))
