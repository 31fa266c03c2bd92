"""Files are opened with keys that are still valid, on the driver and on executors."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sluice.errors import ConfigurationError, LakeFileUnreadable, LakeNotWritable
from sluice.lake.iceberg.catalog.file_io import FileIo, storage_of
from sluice.lake.iceberg.snapshots.stored_files import StoredFiles
from sluice.lake.parquet.reader import LakeReader
from sluice.lake.parquet.writer import FileTarget, ParquetFiles, WriteOptions
from sluice.lake.storage.file_systems import FileSystems
from sluice.lake.storage.keys_file import KeysFile, read_keys
from sluice.lake.storage.small_files import read_file, write_file
from sluice.lake.storage.table_storage import TableStorage
from sluice.rounds.records.json_files import write_json
from tests.simulation.clock import ManualClock
from tests.support.clusters.s3_server import S3Server

LIFE_MS = 60_000
FILE = "s3://lake/t/f"


@pytest.fixture
def s3() -> Iterator[S3Server]:
    with S3Server() as server:
        server.bucket("lake")
        server.allowed = {}
        yield server


class Catalog:
    """Gives keys that the store lets in for a minute."""

    def __init__(self, s3: S3Server, clock: ManualClock) -> None:
        self._s3, self.clock = s3, clock
        self.given = 0
        self.answers = True
        self._ends: dict[str, int] = {}

    def advance(self, milliseconds: int) -> None:
        """Moves the time forward; the store refuses keys that have ended."""
        self.clock.advance(milliseconds)
        allowed = self._s3.allowed or {}
        for key, end_ms in self._ends.items():
            if end_ms <= self.clock.now_ms():
                allowed.pop(key, None)

    def keys(self) -> TableStorage:
        if not self.answers:
            raise LakeNotWritable("load table: the catalog is away")
        self.given += 1
        key, token = f"key{self.given}", f"token-of-key{self.given}"
        now_ms = self.clock.now_ms()
        self._s3.allowed = {**(self._s3.allowed or {}), key: token}
        self._ends[key] = now_ms + LIFE_MS
        given = {
            **self._s3.options(key, f"secret-of-key{self.given}"),
            "s3.session-token": token,
            "s3.session-token-expires-at-ms": str(now_ms + LIFE_MS),
        }
        return TableStorage.of(given, {}, {}, "s3://lake/t", now_ms)


@pytest.fixture
def catalog(s3: S3Server) -> Catalog:
    return Catalog(s3, ManualClock())


def test_the_driver_asks_for_keys_when_they_are_due(catalog: Catalog) -> None:
    files = FileSystems(catalog.keys(), "", catalog.keys, catalog.clock)
    write_file(FILE, b"1", files)
    catalog.advance(LIFE_MS // 2)
    assert read_file(FILE, 9, files) == b"1"
    assert catalog.given == 1
    catalog.advance(LIFE_MS // 4)
    write_file(FILE, b"22", files)
    assert catalog.given == 2
    assert read_file(FILE, 9, files) == b"22"
    files.delete(FILE)
    assert read_file(FILE, 9, files) is None


def test_a_catalog_that_is_away_is_asked_again_and_named_at_last(catalog: Catalog) -> None:
    files = FileSystems(catalog.keys(), "", catalog.keys, catalog.clock)
    catalog.answers = False
    catalog.advance(LIFE_MS - 5_000)
    write_file(FILE, b"1", files)  # these keys are still valid
    catalog.advance(5_000)
    with pytest.raises(LakeNotWritable) as caught:
        write_file(FILE, b"1", files)
    assert "ACCESS_DENIED" in str(caught.value)
    assert "the keys of the catalog have ended" in str(caught.value)
    assert "the catalog is away" in str(caught.value)
    assert "secret-of-key1" not in str(caught.value)
    with pytest.raises(LakeNotWritable, match="list s3://lake/t: .* the catalog is away"):
        list(StoredFiles(["s3://lake/t"], files))
    with pytest.raises(LakeNotWritable, match="read s3://lake/t/f: .* the catalog is away"):
        StoredFiles([], files).head(FILE, 9)
    with (
        pytest.raises(LakeFileUnreadable, match="data file .* the catalog is away"),
        LakeReader(files).reading("data file", FILE),
    ):
        raise OSError("the store refuses")
    catalog.answers = True
    catalog.advance(5_000)
    write_file(FILE, b"1", files)


def test_new_keys_count_also_if_the_clock_was_set_back(catalog: Catalog, tmp_path: Path) -> None:
    first = catalog.keys()
    now_ms = catalog.clock.now_ms()
    catalog.clock.advance(-600_000)
    second = catalog.keys()
    assert second.read_ms < first.read_ms
    catalog.clock.advance(now_ms + LIFE_MS - catalog.clock.now_ms())
    files = FileSystems(first, "", lambda: second, catalog.clock)
    assert files.newest() is second
    uri = str(tmp_path / "keys.json")
    write_json(uri, {"version": 1, **second.to_json()}, private=True)
    assert FileSystems(first, uri, clock=catalog.clock).newest() == second


def test_the_folders_of_a_prefix_share_one_file_system(s3: S3Server) -> None:
    """Each file system keeps connections open: one a folder takes all that a process may have."""
    credentials = {"s3://lake/t/": s3.options("a", "b"), "s3://lake/t/secret": {}}
    files = FileSystems(TableStorage.of({}, credentials, {}, "s3://lake/t", 0))
    opened = [files.open(f"s3://lake/t/day={day}/f") for day in range(3)]
    assert [path for _, path in opened] == [f"lake/t/day={day}/f" for day in range(3)]
    assert len({id(one) for one, _ in opened}) == 1
    others = [files.open(uri)[0] for uri in ("s3://lake/t/secret/f", "s3://other/f")]
    assert len({id(one) for one in [opened[0][0], *others]}) == 3
    assert files.open("s3://lake/t")[0] is opened[0][0], "the folder itself has its keys"
    assert files.open("s3://lake")[1] == "lake/"


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ({"s3.sse.type": "kms"}, "or override it with datalake.iceberg.s3.sse.type"),
        ({"s3.delete-enabled": "false"}, "The catalog sends this option: change it there"),
    ],
)
def test_a_refused_option_that_the_catalog_has_sent(option: dict[str, str], told: str) -> None:
    file_io = FileIo("org.apache.iceberg.aws.s3.S3FileIO", option, {})
    with pytest.raises(ConfigurationError) as sent:
        FileSystems(storage_of(file_io, {}, {}, "s3://lake/t", 0)).open(FILE)
    assert str(sent.value).endswith(told)
    with pytest.raises(ConfigurationError) as own:
        FileSystems(storage_of(file_io, option, {}, "s3://lake/t", 0)).open(FILE)
    assert "The catalog sends" not in str(own.value)


class SlowCatalog:
    """Answers when the test lets it."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self.asked, self.go_on = threading.Event(), threading.Event()

    def keys(self) -> TableStorage:
        self.asked.set()
        assert self.go_on.wait(30)
        return self._catalog.keys()


def test_one_thread_asks_and_the_others_go_on(catalog: Catalog) -> None:
    slow, first = SlowCatalog(catalog), catalog.keys()
    files = FileSystems(first, "", slow.keys, catalog.clock)
    catalog.advance(LIFE_MS - 1)
    asker = threading.Thread(target=files.newest)
    asker.start()
    assert slow.asked.wait(30)
    assert files.newest() is first, "still valid: nobody waits"
    slow.go_on.set()
    asker.join(30)
    assert files.newest() is not first
    assert catalog.given == 2


def test_executors_read_renewed_keys_from_the_drivers_file(
    catalog: Catalog, tmp_path: Path
) -> None:
    uri = str(tmp_path / "round" / "keys-1.json")
    driver = FileSystems(catalog.keys(), uri, catalog.keys, catalog.clock)
    sent = pickle.dumps(driver)
    executor = pickle.loads(sent)
    executor._clock = catalog.clock
    write_file(FILE, b"1", executor)
    catalog.advance(LIFE_MS)
    write_json(uri, {"version": 1, **catalog.keys().to_json()}, private=True)
    assert Path(uri).stat().st_mode & 0o777 == 0o600
    write_file(FILE, b"22", executor)
    assert read_file(FILE, 9, executor) == b"22"


def test_an_executor_without_the_file_says_what_it_lacks(catalog: Catalog, tmp_path: Path) -> None:
    uri = f"{tmp_path}/nowhere/keys.json"
    executor = FileSystems(catalog.keys(), uri, clock=catalog.clock)
    catalog.advance(LIFE_MS)
    with pytest.raises(LakeNotWritable, match=f"have ended, and {uri} has no new ones"):
        write_file(FILE, b"1", executor)
    write_json(uri, {"version": 7})
    catalog.advance(LIFE_MS)
    with pytest.raises(LakeNotWritable, match="has version 7, this Sluice reads 1"):
        write_file(FILE, b"1", executor)


def test_the_keys_file_lives_as_long_as_the_lake_is_open(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sluice.lake.storage.keys_file._LOOK_S", 0.01)
    uri = f"{tmp_path}/round/keys.json"
    files = FileSystems(catalog.keys(), uri, catalog.keys, catalog.clock)
    keys_file = KeysFile(uri, files.newest)
    assert not Path(uri).exists(), "executors have the first keys already"
    catalog.advance(LIFE_MS)
    waited = threading.Event()
    for _ in range(3_000):
        if Path(uri).exists():
            break
        waited.wait(0.01)
    assert read_keys(uri) == files.newest()
    keys_file.close()
    assert not Path(uri).exists()
    assert not keys_file._thread.is_alive()


def test_a_data_file_ends_before_its_keys_do(catalog: Catalog) -> None:
    """Its later parts would be refused: the next rows go into a file of the new keys."""
    files = FileSystems(catalog.keys(), "", catalog.keys, catalog.clock)
    writer = ParquetFiles(FileTarget(files, "s3://lake/t/data", "p", ()), WriteOptions(2**30))
    for number in range(6):
        writer.write_group(pa.table({"n": [number]}))
        catalog.advance(LIFE_MS // 4)
    found = writer.close()
    assert catalog.given == 2
    rows = [
        pq.read_table(pa.BufferReader(read_file(one.path, 10_000, files) or b""))["n"].to_pylist()
        for one in found
    ]
    assert rows == [[0, 1, 2], [3, 4, 5]]


def test_nobody_goes_on_with_keys_that_have_ended(catalog: Catalog) -> None:
    """All who come after the end wait for the one that asks."""
    slow, first = SlowCatalog(catalog), catalog.keys()
    files = FileSystems(first, "", slow.keys, catalog.clock)
    catalog.advance(LIFE_MS)
    found: list[TableStorage] = []
    threads = [threading.Thread(target=lambda: found.append(files.newest())) for _ in range(8)]
    for thread in threads:
        thread.start()
    assert slow.asked.wait(30)
    slow.go_on.set()
    for thread in threads:
        thread.join(30)
    assert len(found) == 8
    assert first not in found
    assert catalog.given == 2


@pytest.mark.slow
def test_keys_that_come_after_the_end_are_not_written(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The catalog answers so late that the lake is closed: nobody would delete the file."""
    monkeypatch.setattr("sluice.lake.storage.keys_file._END_S", 0.01)
    slow = SlowCatalog(catalog)
    uri = f"{tmp_path}/round/keys.json"
    first = catalog.keys()
    answers = iter([first])

    def newest() -> TableStorage:
        if (found := next(answers, None)) is not None:
            return found
        return slow.keys()

    keys_file = KeysFile(uri, newest, catalog.clock)
    catalog.advance(LIFE_MS)
    assert slow.asked.wait(30)
    keys_file.close()
    slow.go_on.set()
    keys_file._thread.join(30)
    assert not Path(uri).exists()
