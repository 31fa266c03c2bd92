"""Listing and removing what lies below a table's folders, on a local disk and on S3."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sluice.errors import LakeNotWritable
from sluice.lake.iceberg.snapshots.stored_files import StoredFiles, folders_of
from sluice.lake.storage.file_systems import FileSystems
from sluice.lake.storage.table_storage import TableStorage
from tests.support.clusters.s3_server import S3Server


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with S3Server() as server:
        yield server


@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
def test_a_local_folder_is_listed_to_its_depths(tmp_path: Path, scheme: str) -> None:
    names = ["data/a.parquet", "data/day=a%2Fb/.x.tmp", "data/ü/1/2/b.parquet", "metadata/v1.json"]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"12345")
    (tmp_path / "data" / "empty").mkdir()
    root = f"{scheme}{tmp_path}"
    stored = StoredFiles([root, f"{root}/not-there"], FileSystems())
    found = {file.path: file for file in stored}
    assert set(found) == {f"{root}/{name}" for name in names}
    one = found[f"{root}/data/a.parquet"]
    assert (one.size_bytes, one.name) == (5, "a.parquet")
    assert one.modified_ms is not None
    assert abs(time.time() * 1000 - one.modified_ms) < 600_000
    doomed = f"{root}/data/day=a%2Fb/.x.tmp"
    assert stored.remove([doomed, f"{root}/data/never-was"]) == {}
    assert {file.path for file in stored} == set(found) - {doomed}


def files_of(s3: S3Server, key: str = "tester") -> FileSystems:
    return FileSystems(TableStorage.of({}, {}, s3.options(key), "", 0))


def test_what_cannot_be_removed_is_told(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(b"")
    failed = StoredFiles([str(tmp_path)], FileSystems()).remove(
        [f"{tmp_path}/folder", f"{tmp_path}/file"]
    )
    assert list(failed) == [f"{tmp_path}/folder"]
    assert not (tmp_path / "file").exists()
    assert StoredFiles([str(tmp_path)], FileSystems()).remove([]) == {}


def test_s3_is_listed_folder_by_folder_and_removed_from(s3: S3Server) -> None:
    bucket = s3.bucket("lake")
    names = [f"db/t/data/id_bucket={n % 3}/{n:05d}.parquet" for n in range(30)]
    for name in [*names, "db/t2/data/other.parquet"]:
        with bucket.open_output_stream(f"lake/{name}") as sink:
            sink.write(b"123")
    stored = StoredFiles(["s3://lake/db/t"], files_of(s3))
    found = list(stored)
    assert {file.path for file in found} == {f"s3://lake/{name}" for name in names}
    assert {file.size_bytes for file in found} == {3}
    assert all(file.modified_ms for file in found)
    assert stored.remove([file.path for file in found[:20]]) == {}
    assert len(list(stored)) == 10
    assert len(list(StoredFiles(["s3://lake/db/t2"], files_of(s3)))) == 1


def test_a_whole_bucket_is_listed_and_removed_from(s3: S3Server) -> None:
    """As the location of a table of S3 Tables."""
    bucket = s3.bucket("whole")
    for name in ("a.parquet", "data/b.parquet"):
        with bucket.open_output_stream(f"whole/{name}") as sink:
            sink.write(b"123")
    stored = StoredFiles(["s3://whole"], files_of(s3))
    names = {"s3://whole/a.parquet", "s3://whole/data/b.parquet"}
    assert {file.path for file in stored} == names
    assert stored.head("s3://whole/data/b.parquet", 2) == b"12"
    assert stored.remove(sorted(names)) == {}
    assert list(stored) == []


def test_a_storage_that_refuses_or_is_unknown_is_named(s3: S3Server) -> None:
    with pytest.raises(LakeNotWritable, match="open nowhere://x"):
        StoredFiles(["nowhere://x"], FileSystems())
    stored = StoredFiles(["s3://lake/db/t"], files_of(s3, "nobody"))
    s3.allowed = {}
    try:
        with pytest.raises(LakeNotWritable, match="list s3://lake/db/t"):
            list(stored)
        [(path, reason)] = stored.remove(["s3://lake/db/t/x"]).items()
    finally:
        s3.allowed = None
    assert path == "s3://lake/db/t/x"
    assert "ACCESS_DENIED" in reason


class Table:
    """Iceberg's Table, as far as it names folders."""

    def __init__(self, **properties: str) -> None:
        self._properties = {key.replace("_", "."): value for key, value in properties.items()}

    def properties(self) -> Any:
        return self._properties

    def location(self) -> str:
        return "/lake/db/t/"


def test_folders_within_folders_are_listed_once() -> None:
    assert folders_of(Table()) == ["/lake/db/t"]
    inside = Table(write_data_path="/lake/db/t/files", write_metadata_path="/lake/db/t2")
    assert folders_of(inside) == ["/lake/db/t", "/lake/db/t2"]
    around = Table(write_data_path="/lake/db")
    assert folders_of(around) == ["/lake/db"]
