"""Files are read in their order; those of a storage that is not local, several at a time."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem

from sluice.lake.parquet.reader import LakeReader
from sluice.lake.storage.file_systems import FileSystems
from sluice.rounds.values.lake_files import LiveFile

AHEAD = 16


class Store(LocalFileSystem):
    """A storage that notes which files are opened, and may let none be read before some are."""

    protocol = "teststore"
    cachable = False
    opened: list[str]
    gate: threading.Barrier | None
    threads: set[str]

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        """A path without the protocol, which fsspec of 2024 only does for `file`."""
        return str(super()._strip_protocol(str(path).removeprefix("teststore://")))

    @classmethod
    def reset(cls, together: int = 0) -> None:
        cls.opened, cls.threads = [], set()
        cls.gate = threading.Barrier(together, timeout=60) if together else None

    def open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        Store.opened.append(path.rpartition("/")[2])
        Store.threads.add(threading.current_thread().name)
        if Store.gate is not None:
            Store.gate.wait()
        return super().open(path, mode, **options)


fsspec.register_implementation("teststore", Store, clobber=True)


@pytest.fixture(autouse=True)
def fresh_store() -> None:
    Store.reset()


def files(folder: Path, count: int, size: int = 10) -> list[LiveFile]:
    found = []
    for i in range(count):
        (folder / f"{i:03}").write_bytes(f"{i:03}".encode() + b"x" * size)
        found.append(LiveFile(f"teststore://{folder}/{i:03}", 1, size + 3, 1))
    return found


def numbers(reader: LakeReader, some: list[LiveFile]) -> list[int]:
    found = []
    for file, source in reader.open_all(some):
        content = source.read(3)
        assert file.path.endswith(content.decode())
        found.append(int(content))
    return found


@pytest.mark.parametrize("spelling", ["{}", "file:{}", "file://{}", "teststore://{}"])
@pytest.mark.parametrize("size", [0, 10, 300_000])
def test_files_of_every_size_are_read_from_their_beginning_and_end(
    tmp_path: Path, spelling: str, size: int
) -> None:
    folder = tmp_path / "day=a%2Fb c"
    folder.mkdir()
    (folder / "f").write_bytes(b"a" * size + b"end")
    with LakeReader(FileSystems()).open(spelling.format(folder / "f"), size + 3) as source:
        assert source.size() == size + 3
        source.seek(size)
        assert source.read() == b"end"


def test_only_the_local_storage_is_local(tmp_path: Path) -> None:
    reader = LakeReader(FileSystems())
    assert reader.is_local(f"{tmp_path}/f")
    assert reader.is_local(f"file:{tmp_path}/f")
    assert not reader.is_local(f"teststore://{tmp_path}/f")


@pytest.mark.parametrize("count", [0, 1, AHEAD - 1, AHEAD, AHEAD + 1, 3 * AHEAD])
def test_all_files_come_in_their_order(tmp_path: Path, count: int) -> None:
    some = files(tmp_path, count)
    assert numbers(LakeReader(FileSystems()), some) == [*range(count)]
    assert sorted(Store.opened) == [f"{i:03}" for i in range(count)]
    assert threading.current_thread().name not in Store.threads
    local = [LiveFile(f.path.removeprefix("teststore://"), 1, f.size_bytes, 1) for f in some]
    assert numbers(LakeReader(FileSystems()), local) == [*range(count)]


def test_files_are_fetched_at_the_same_time(tmp_path: Path) -> None:
    some = files(tmp_path, AHEAD)
    Store.reset(together=AHEAD)  # no file opens before all of them are asked for
    assert numbers(LakeReader(FileSystems()), some) == [*range(AHEAD)]


def test_whoever_stops_early_fetches_no_more(tmp_path: Path) -> None:
    some = files(tmp_path, 10 * AHEAD)
    opened = LakeReader(FileSystems()).open_all(some)
    next(opened)
    opened.close()  # type: ignore[attr-defined]
    assert len(Store.opened) <= AHEAD
    assert not [t for t in threading.enumerate() if t.name.startswith("sluice-look-up")]


@pytest.mark.parametrize("spelling", ["{}", "teststore://{}"])
def test_a_file_that_is_gone_is_an_error_that_names_it(tmp_path: Path, spelling: str) -> None:
    some = files(tmp_path, 3)
    (tmp_path / "001").unlink()
    named = [
        LiveFile(spelling.format(f.path.removeprefix("teststore://")), 1, f.size_bytes, 1)
        for f in some
    ]
    with pytest.raises(FileNotFoundError, match="001"):
        numbers(LakeReader(FileSystems()), named)
    assert not [t for t in threading.enumerate() if t.name.startswith("sluice-look-up")]
    with pytest.raises((ValueError, ImportError), match="nosuchscheme"):
        LakeReader(FileSystems()).open("nosuchscheme://host/f", 10)
