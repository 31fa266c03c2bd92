"""A damaged metadata.sqlite stops the start, with what to do; nothing is changed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from sluice.client import connect
from sluice.config import ServerConfig
from sluice.errors import DataDirError, StorageError
from sluice.model import Column, Schema, TableDescriptor, TablePath
from sluice.model import types as t
from sluice.server.cluster import EmbeddedCluster
from sluice.server.storage.database import Database

PAGE = 4096
TODO = (
    "Nothing was changed, and the logs are untouched. Restore metadata.sqlite from a backup of the"
    " data directory, and delete metadata.sqlite-wal and metadata.sqlite-shm. Without it the server"
    " cannot tell which logs belong to which tables: their schemas, options, partitions, tiered"
    " offsets and leases are in it alone. With tables that have an auto-increment column, restore"
    " the whole data directory from one backup: beside newer logs, their numbers are given twice"
)


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    config = ServerConfig(data_dir=str(folder), listen="grpc://127.0.0.1:0")
    with EmbeddedCluster(config) as cluster, connect(cluster.address) as client:
        client.admin.create_database("shop")
        schema = Schema((Column("id", t.BIGINT, 0),), highest_field_id=0)
        for number in range(40):
            client.admin.create_table(TablePath("shop", f"t{number}"), TableDescriptor(schema))
    return folder


def flipped(page: int, content: bytes) -> bytes:
    """The content with each bit of a page flipped."""
    start = page * PAGE
    wrong = bytes(byte ^ 0xFF for byte in content[start : start + PAGE])
    return content[:start] + wrong + content[start + PAGE :]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut in half": lambda content: content[: len(content) // 2],
    "only a header": lambda content: content[:100],
    "not a database": lambda _: b"not a database" * 1000,
    "first page": lambda content: flipped(0, content),
    **{f"page {page}": lambda content, page=page: flipped(page, content) for page in (1, 3, 8)},  # type: ignore[misc]
}


def files(folder: Path) -> dict[str, bytes]:
    found = (path for path in folder.rglob("*") if path.is_file() and path.name != "LOCK")
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


@pytest.mark.parametrize("damage", DAMAGES)
def test_the_start_ends_with_what_to_do(damage: str, intact: Path, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    shutil.copytree(intact, folder)
    metadata = folder / "metadata.sqlite"
    metadata.write_bytes(DAMAGES[damage](metadata.read_bytes()))
    before = files(folder)
    config = ServerConfig(data_dir=str(folder), listen="grpc://127.0.0.1:0")
    with pytest.raises(StorageError) as refused, EmbeddedCluster(config):
        pass
    said = str(refused.value)
    assert said.startswith(f"metadata file {metadata} is damaged (")
    assert said.endswith(f"). {TODO}")
    after = files(folder)
    assert {name: after[name] for name in before} == before
    shutil.copy(intact / "metadata.sqlite", metadata)
    for name in ("metadata.sqlite-wal", "metadata.sqlite-shm"):
        (folder / name).unlink(missing_ok=True)
    with EmbeddedCluster(config) as cluster, connect(cluster.address) as client:
        assert len(client.admin.list_tables("shop")) == 40


@pytest.mark.parametrize("is_left", [True, False])
def test_empty_metadata_are_as_bad_as_none(is_left: bool, intact: Path, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    shutil.copytree(intact, folder)
    metadata = folder / "metadata.sqlite"
    metadata.write_bytes(b"") if is_left else metadata.unlink()
    before = files(folder)
    config = ServerConfig(data_dir=str(folder), listen="grpc://127.0.0.1:0")
    with pytest.raises(DataDirError) as refused, EmbeddedCluster(config):
        pass
    said = f"data directory {folder}: metadata.sqlite is {'empty' if is_left else 'missing'}, "
    assert str(refused.value).startswith(said)
    assert "move" not in str(refused.value)
    assert files(folder) == before


def test_a_damage_while_the_server_runs_says_it_too(intact: Path, tmp_path: Path) -> None:
    path = tmp_path / "metadata.sqlite"
    shutil.copy(intact / "metadata.sqlite", path)
    with closing(Database(path)) as database:
        with path.open("r+b") as file:
            file.seek(PAGE)
            file.write(b"\xff" * (path.stat().st_size - PAGE))
        database._connection.execute("PRAGMA shrink_memory")
        with pytest.raises(StorageError) as refused:
            database.query("SELECT * FROM tables")
    assert str(refused.value).startswith("metadata file metadata.sqlite is damaged (")
    assert str(refused.value).endswith(TODO)
