"""With one set of options, pyarrow and Iceberg's own FileIO read and write each other's files."""

from __future__ import annotations

import io
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from sluice.checks.folders import write_and_remove
from sluice.driver.lakes.jvm import Jvm
from sluice.lake.iceberg.catalog.java import JavaThrew
from sluice.lake.iceberg.snapshots.stored_files import StoredFiles
from sluice.lake.storage.file_systems import FileSystems
from sluice.lake.storage.table_storage import TableStorage
from sluice.storage import StorageTimeouts, check_storage, file_system, fsspec_file_system
from tests.stores.conftest import Store
from tests.support.stores.iceberg_io import IcebergIO

pytestmark = pytest.mark.long
ROWS = pa.table({"id": pa.array(range(200_000), pa.int64()), "s": ["a"] * 200_000})
NAMES = [
    "plain.parquet",
    "day=a%23b/x y.parquet",
    "p=100%25/q.parquet",
    "plus=a+b/%2B.parquet",
    "ö=ü/%3F.parquet",
]
"""Iceberg encodes partitions. Where a # or ? stands as it is, its S3FileIO ends the name."""
REFUSED = r"(?i)denied|403|401|UNAUTHENTICATED"
SHORT = StorageTimeouts(connect_s=2, request_s=5, attempts_max=2)


@pytest.mark.parametrize("name", NAMES)
def test_each_reads_what_the_other_wrote(store: Store, jvm: Jvm, name: str) -> None:
    theirs = IcebergIO(jvm, store.file_io, store.options)
    uri = f"{store.root}/each/{name}"
    filesystem, path = file_system(uri, store.options)

    with pq.ParquetWriter(path, ROWS.schema, filesystem=filesystem) as writer:
        writer.write_table(ROWS)
    content = theirs.read(uri)
    assert pq.read_table(io.BytesIO(content)) == ROWS
    assert pq.read_table(path, filesystem=filesystem, partitioning=None) == ROWS

    theirs.delete(uri)
    assert filesystem.get_file_info(path).type == fs.FileType.NotFound

    theirs.write(uri, content)
    assert filesystem.get_file_info(path).size == len(content)
    assert pq.read_table(path, filesystem=filesystem, partitioning=None) == ROWS
    filesystem.delete_file(path)
    assert not theirs.exists(uri)


def test_a_folder_is_listed_and_a_missing_file_is_missing(store: Store) -> None:
    filesystem, path = file_system(f"{store.root}/listed", store.options)
    for name in ("a/1", "a/2", "b"):
        with filesystem.open_output_stream(f"{path}/{name}") as out:
            out.write(name.encode())
    found = filesystem.get_file_info(fs.FileSelector(path, recursive=True))
    files = {info.path: info.size for info in found if info.is_file}
    assert files == {f"{path}/a/1": 3, f"{path}/a/2": 3, f"{path}/b": 1}
    with pytest.raises(FileNotFoundError):
        filesystem.open_input_file(f"{path}/c")
    globs, folder = fsspec_file_system(f"{store.root}/listed", store.options)
    assert sorted(globs.glob(f"{folder}/*/*")) == [f"{path}/a/1", f"{path}/a/2"]
    assert globs.cat_file(f"{folder}/b") == b"b"


def test_a_larger_file_in_many_writes(store: Store, jvm: Jvm) -> None:
    uri = f"{store.root}/larger"
    filesystem, path = file_system(uri, store.options)
    piece = bytes(range(256)) * 4096
    with filesystem.open_output_stream(path) as out:
        for _ in range(24):
            out.write(piece)
    with filesystem.open_input_file(path) as file:
        assert file.size() == 24 * len(piece)
        file.seek(20 * len(piece) + 5)
        assert file.read(1000) == piece[5:1005]
    assert IcebergIO(jvm, store.file_io, store.options).read(uri) == piece * 24


def test_a_file_replaces_one_of_its_name(store: Store) -> None:
    filesystem, path = file_system(f"{store.root}/twice", store.options)
    for content in (b"first", b"2nd"):
        with filesystem.open_output_stream(path) as out:
            out.write(content)
        assert filesystem.open_input_file(path).read() == content


def test_the_check_of_a_folder_leaves_no_file(store: Store) -> None:
    """At S3 and Azure, pyarrow leaves an empty folder where it has deleted the last file."""
    found, folder = fsspec_file_system(f"{store.root}/checked/folder", store.options)
    assert write_and_remove(found, folder) == "a file was written, read and removed"
    filesystem, path = file_system(f"{store.root}/checked", store.options)
    selector = fs.FileSelector(path, allow_not_found=True, recursive=True)
    assert not [info.path for info in filesystem.get_file_info(selector) if info.is_file]


def test_a_walk_finds_all_files_that_iceberg_wrote(store: Store, jvm: Jvm) -> None:
    """Iceberg makes no folders: they are but parts of the objects' names."""
    theirs = IcebergIO(jvm, store.file_io, store.options)
    root = f"{store.root}/walked/t"
    uris = {f"{root}/data/day={day}/{n}.parquet" for day in (1, 2) for n in (1, 2)}
    uris |= {f"{root}/metadata/v1.json", f"{root}/top"}
    for uri in uris:
        theirs.write(uri, b"abc")
    theirs.write(f"{store.root}/walked/t2/other", b"abc")
    files = FileSystems(TableStorage.of({}, {}, store.options, "", 0))
    found = list(StoredFiles([root], files))
    assert {file.path for file in found} == uris
    assert {file.size_bytes for file in found} == {3}
    filesystem, path = file_system(root, store.options)
    listed = filesystem.get_file_info(fs.FileSelector(path, recursive=True))
    folders = {f"{path}/{name}" for name in ("data", "data/day=1", "data/day=2", "metadata")}
    assert {info.path for info in listed if not info.is_file} == folders
    files.delete(f"{root}/top")
    files.delete(f"{root}/top")
    assert not theirs.exists(f"{root}/top")
    assert list(StoredFiles([f"{root}/nothing"], files)) == []


def test_wrong_keys_are_refused_at_once(store: Store, jvm: Jvm) -> None:
    if not store.refused:
        pytest.skip("it lets everybody in")
    uri = f"{store.root}/refused"
    filesystem, path = file_system(uri, store.options)
    with filesystem.open_output_stream(path) as out:
        out.write(b"abc")
    check_storage(uri, store.refused)
    stranger, _ = file_system(uri, store.refused, SHORT)
    began = time.monotonic()
    with pytest.raises(OSError, match=REFUSED) as caught:
        stranger.open_input_file(path).read()
    with pytest.raises(OSError, match=REFUSED), stranger.open_output_stream(path) as out:
        out.write(b"xyz")
    assert time.monotonic() - began < 30
    secrets = [v for n, v in store.refused.items() if n.endswith(("key", "token")) or "sas" in n]
    assert secrets
    assert not [secret for secret in secrets if secret in str(caught.value)]
    with pytest.raises(JavaThrew):
        IcebergIO(jvm, store.file_io, store.refused).read(uri)
    assert filesystem.open_input_file(path).read() == b"abc"
