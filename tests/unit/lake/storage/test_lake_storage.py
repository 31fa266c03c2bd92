"""The lake's files on local disks, elsewhere, and on S3."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from sluice.errors import LakeNotWritable
from sluice.lake.iceberg.write.split_writer import ParquetSplitWriter
from sluice.lake.parquet.writer import WriteOptions
from sluice.lake.storage import operations as storage
from sluice.lake.storage.file_systems import FileSystems
from sluice.lake.storage.table_storage import TableStorage
from sluice.model import TableBucket
from sluice.model import types as t
from sluice.rounds.values.types import LogRecords, Split
from sluice.storage import file_system
from tests.support.clusters.s3_server import S3Server
from tests.support.lake.split_writers import writer_factory
from tests.support.models.tables import table_info

BUCKET = TableBucket(1, None, 0)
FOLDER = "s3://lake/shop/orders/data/day=a%23b"


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with S3Server() as server:
        server.bucket("lake")
        yield server


def files_of(options: dict[str, str]) -> FileSystems:
    return FileSystems(TableStorage.of({}, {}, options, "", 0))


def writer(options: dict[str, str], folder: str = FOLDER, **sizes: int) -> ParquetSplitWriter:
    settings = WriteOptions(**{"target_file_bytes": 2**30, **sizes})
    split, info = Split(BUCKET, (), 0, 100), table_info({"id": t.BIGINT})
    return writer_factory(info, [split], folder, settings, files=files_of(options))(split)


def records(base: int, rows: int) -> LogRecords:
    batch = pa.record_batch({"id": pa.array(range(base, base + rows), pa.int64())})
    return LogRecords(batch, base, base + rows, 5, 1)


def test_files_are_renamed_only_where_that_is_one_step(tmp_path: Path) -> None:
    local, _ = file_system(str(tmp_path), {})
    memory, _ = file_system("memory://x", {})
    assert [storage.needs_rename(local), storage.needs_rename(memory)] == [True, False]


def test_a_file_that_is_gone_already_is_deleted(tmp_path: Path, s3: S3Server) -> None:
    FileSystems().delete(f"file:{tmp_path}/nothing")
    files_of(s3.options()).delete("s3://lake/nothing")


def test_rows_reach_s3_and_only_whole_files_have_a_name(s3: S3Server) -> None:
    reader = s3.bucket("lake")
    one = writer(s3.options(), row_group_rows=10, target_file_bytes=1)
    for base in range(0, 50, 10):
        one.write(records(base, 10))
        one.write(records(base + 10, 0))
    files = one.close()
    assert len(files) == 5
    assert all(file.path.startswith(f"{FOLDER}/00000-0-w1-") for file in files)
    found = [pq.read_table(file.path.removeprefix("s3://"), filesystem=reader) for file in files]
    assert [i for table in found for i in table["id"].to_pylist()] == list(range(50))
    for file in files:
        assert reader.get_file_info(file.path.removeprefix("s3://")).size == file.size_bytes
        files_of(s3.options()).delete(file.path)
    left = reader.get_file_info(fs.FileSelector("lake/shop", recursive=True))
    assert [info.path for info in left if info.is_file] == []


def test_a_writer_that_gives_up_leaves_nothing_on_s3(s3: S3Server) -> None:
    reader = s3.bucket("lake")
    one = writer(s3.options(), f"{FOLDER}/up", row_group_rows=10)
    one.write(records(0, 10))
    one.abort()
    left = reader.get_file_info(fs.FileSelector("lake", recursive=True))
    assert [info.path for info in left if info.is_file] == []


def test_s3_that_refuses_is_named_with_the_file_and_without_the_secret(s3: S3Server) -> None:
    s3.allowed = {}
    try:
        one = writer(s3.options("nobody", "top-secret"))
        with pytest.raises(
            LakeNotWritable, match=rf"write {FOLDER}/00000.*ACCESS_DENIED"
        ) as caught:
            one.write(records(0, 10))
            one.close()
        one.abort()
    finally:
        s3.allowed = None
    assert "top-secret" not in str(caught.value)
