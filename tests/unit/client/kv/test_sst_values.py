"""Values read from SST files, beside those that RocksDB itself reads there: the same, or none."""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from rocksdict import (
    AccessType,
    BlockBasedIndexType,
    BlockBasedOptions,
    Checkpoint,
    ChecksumType,
    DataBlockIndexType,
    DBCompactionStyle,
    DBCompressionType,
    Options,
    Rdict,
    WriteBatch,
    WriteOptions,
)

from sluice.client.kv import sst_values
from sluice.client.kv.sst_values import read_values
from sluice.errors import CorruptRecord
from sluice.formats.kv import sst_table
from sluice.formats.kv.rocksdb_manifest import masked_crc
from tests.golden.test_kv_snapshot import snapshot_folder

COMPRESSIONS = ("none", "snappy", "zlib", "lz4", "lz4hc", "zstd")
BATCH_BYTES = 100_000


def options(change: Callable[[Options, BlockBasedOptions], None] | None = None) -> Options:
    found, blocks = Options(raw_mode=True), BlockBasedOptions()
    found.create_if_missing(True)
    found.create_missing_column_families(True)
    found.set_disable_auto_compactions(True)
    found.set_compression_type(DBCompressionType.lz4())
    if change is not None:
        change(found, blocks)
    found.set_block_based_table_factory(blocks)
    return found


class Store:
    """A RocksDB that is written without its log, as the server and Fluss write theirs."""

    def __init__(self, folder: Path, chosen: Options, **families: Options) -> None:
        self.folder = folder
        self.write_options = WriteOptions()
        self.write_options.disable_wal = True  # type: ignore[assignment, method-assign]
        self.db: Any = Rdict(str(folder / "db"), chosen, column_families=families or None)

    def write(self, puts: dict[bytes, bytes], deletes: list[bytes] | None = None) -> None:
        batch: Any = WriteBatch(raw_mode=True)
        for key, value in puts.items():
            batch.put(key, value)
        for key in deletes or []:
            batch.delete(key)
        self.db.write(batch, self.write_options)

    def flush(self) -> None:
        self.db.flush()

    def finish(self) -> Path:
        """A checkpoint; the store is closed."""
        target = self.folder / "checkpoint"
        Checkpoint(self.db).create_checkpoint(str(target))
        self.db.close()
        return target


def direct(folder: Path, batch_bytes: int = BATCH_BYTES) -> list[bytes]:
    return joined(list(read_values(folder, "the store", batch_bytes)))


def by_rocksdb(folder: Path) -> list[bytes]:
    """What RocksDB itself reads, row by row."""
    db: Any = Rdict(str(folder), Options(raw_mode=True), access_type=AccessType.read_only())
    try:
        return list(db.values())
    finally:
        db.close()


def joined(arrays: list[pa.Array]) -> list[bytes]:
    for array in arrays:
        array.validate(full=True)
    return [value for array in arrays for value in array.to_pylist()]


def random_options(rng: random.Random) -> Options:
    def change(found: Options, blocks: BlockBasedOptions) -> None:
        found.set_compression_type(getattr(DBCompressionType, rng.choice(COMPRESSIONS))())
        found.set_target_file_size_base(rng.choice([16 << 10, 64 << 20]))
        if rng.random() < 0.2:
            found.set_compaction_style(DBCompactionStyle.universal())
        blocks.set_format_version(rng.randint(2, 6))
        checksum = rng.choice([ChecksumType.xxh3(), ChecksumType.crc32c()])
        blocks.set_checksum_type(checksum)
        blocks.set_block_size(rng.choice([64, 512, 4096, 32768]))
        blocks.set_block_restart_interval(rng.choice([1, 4, 16]))
        blocks.set_index_block_restart_interval(rng.choice([1, 1, 5, 16]))
        if rng.random() < 0.5:
            blocks.set_bloom_filter(10, False)

    return options(change)


def fill_at_random(store: Store, rng: random.Random) -> None:
    """Puts and deletes of few keys, many of them again, in files of several levels."""
    keys = [
        rng.choice([b"", b"\0\0", b"shared prefix "]) + rng.randbytes(rng.choice([0, 1, 8, 9, 30]))
        for _ in range(rng.choice([3, 200, 1500]))
    ]
    longest = rng.choice([0, 100, 3000])
    for _ in range(rng.randint(1, 6)):
        for _ in range(rng.randint(1, 3)):
            chosen = rng.sample(keys, rng.randint(1, len(keys)))
            puts = {key: value(rng, longest) for key in chosen}
            store.write(puts, rng.sample(keys, rng.randint(0, len(keys) // 3)))
        if rng.random() < 0.8:
            store.flush()
        if rng.random() < 0.2:
            store.db.compact_range(None, None)
    store.write({b"large": rng.randbytes(rng.choice([0, 100_000]))})


def value(rng: random.Random, longest: int) -> bytes:
    size = rng.randint(0, longest)
    return rng.randbytes(size) if rng.random() < 0.5 else b"text " * (size // 5)


@pytest.mark.parametrize("seed", range(16))
def test_random_stores_are_read_as_rocksdb_reads_them(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    families = {"other": random_options(rng)} if rng.random() < 0.5 else {}
    store = Store(tmp_path, random_options(rng), **families)
    if families:
        store.db.get_column_family("other").put(b"a", b"of another family", store.write_options)
    fill_at_random(store, rng)
    folder = store.finish()
    assert direct(folder, rng.choice([1, 5000, 1 << 20])) == by_rocksdb(folder)


def test_the_newest_of_overlapping_files_is_read(tmp_path: Path) -> None:
    store = Store(tmp_path, options())
    for turn in range(5):
        puts = {b"%05d" % i: b"%d of turn %d" % (i, turn) for i in range(turn, 2000, turn + 1)}
        store.write(puts, [b"%05d" % i for i in range(turn, 2000, 17)])
        store.flush()
    folder = store.finish()
    found = direct(folder)
    assert found == by_rocksdb(folder)
    assert b"1999 of turn 4" in found


@pytest.mark.parametrize("puts", [{}, {b"a": b""}, {b"": b"of the empty key"}])
def test_small_stores(tmp_path: Path, puts: dict[bytes, bytes]) -> None:
    store = Store(tmp_path, options())
    store.write({b"gone": b"x", **puts})
    store.flush()
    store.write({}, [b"gone"])
    folder = store.finish()
    assert direct(folder) == list(puts.values()) == by_rocksdb(folder)


def test_files_of_a_level_are_read_one_after_another(tmp_path: Path) -> None:
    store = Store(tmp_path, options(lambda o, _: o.set_target_file_size_base(20_000)))
    rng = random.Random(1)
    for _ in range(2):
        store.write({b"%06d" % i: rng.randbytes(50) for i in range(30_000)})
        store.flush()
    store.db.compact_range(None, None)
    store.write({b"%06d" % i: b"new" for i in range(0, 30_000, 300)})
    folder = store.finish()
    assert len(list(folder.glob("*.sst"))) > 70, "more than sources that a merge may have"
    found = list(read_values(folder, "the store", BATCH_BYTES))
    assert max(len(array.buffers()[2]) for array in found) <= BATCH_BYTES
    assert joined(found) == by_rocksdb(folder)


@pytest.mark.parametrize("rows_max", [1, 2, 7])
@pytest.mark.parametrize("rows", [6, 7, 8, 14, 300])
def test_blocks_and_arrays_may_end_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int, rows_max: int
) -> None:
    store = Store(tmp_path, options(lambda _, blocks: blocks.set_block_size(64)))
    for turn in range(3):
        store.write(
            {b"%03d" % i: b"%d of turn %d" % (i, turn) for i in range(turn, rows)},
            [b"%03d" % i for i in range(rows, rows + 20)],  # more to be read behind the last row
        )
        store.flush()
    folder = store.finish()
    monkeypatch.setattr(sst_values, "_READ_BYTES", 1)
    monkeypatch.setattr(sst_values, "_READ_BYTES_MIN", 1)  # a block at a time
    monkeypatch.setattr(sst_values, "_BATCH_ROWS", rows_max)
    found = list(read_values(folder, "the store", BATCH_BYTES))
    assert [len(array) for array in found[:-1]] == [rows_max] * (len(found) - 1)
    assert joined(found) == by_rocksdb(folder)
    assert len(joined(found)) == rows


def test_of_versions_that_fill_many_blocks_the_newest_is_read(tmp_path: Path) -> None:
    store = Store(tmp_path, options(lambda _, blocks: blocks.set_block_size(64)))
    snapshots = []  # they keep a compaction from dropping what is older
    for turn in range(60):
        store.write({key: key + b" %d" % turn for key in (b"a", b"b", b"c")})
        snapshots.append(store.db.snapshot())
        store.write({}, [b"a"] if turn % 2 else [b"b"])
        snapshots.append(store.db.snapshot())
    store.db.compact_range(None, None)
    store.write({b"c": b"of another file"})
    folder = store.finish()
    assert max(path.stat().st_size for path in folder.glob("*.sst")) > 3_000, "none was dropped"
    assert direct(folder) == by_rocksdb(folder) == [b"b 59", b"of another file"]


def test_blocks_that_grow_much_are_taken_a_few_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path, options(lambda _, blocks: blocks.set_block_size(512)))
    store.write({b"%04d" % i: b"%d " % i + b"text " * 60 for i in range(500)})
    folder = store.finish()
    monkeypatch.setattr(sst_values, "_READ_BYTES", 2000)
    monkeypatch.setattr(sst_values, "_READ_BYTES_MIN", 2000)
    assert direct(folder) == by_rocksdb(folder)


def test_a_snapshot_of_a_real_server_is_read_directly(tmp_path: Path) -> None:
    folder = snapshot_folder(tmp_path / "db")
    assert direct(folder) == by_rocksdb(folder) != []


# ---- left to RocksDB ----


def ranges(store: Store) -> None:
    store.db.delete_range(b"00010", b"00020", write_opt=store.write_options)


def entities(store: Store) -> None:
    store.db.put_entity(b"00500x", [b"a"], [b"b"], write_opt=store.write_options)


def long_keys(store: Store) -> None:
    store.write({b"00500" + b"k" * 70_000: b"v"})


def many_files(store: Store) -> None:
    for i in range(70):
        store.write({b"%05d" % i: b"again"})
        store.flush()


def log(store: Store) -> None:
    store.db.put(b"zz", b"in the log")


def two_level_index(_: Options, blocks: BlockBasedOptions) -> None:
    blocks.set_index_type(BlockBasedIndexType.two_level_index_search())


def hashes(_: Options, blocks: BlockBasedOptions) -> None:
    blocks.set_data_block_index_type(DataBlockIndexType.binary_and_hash())


def other_checksums(_: Options, blocks: BlockBasedOptions) -> None:
    blocks.set_checksum_type(ChecksumType.xxhash64())


def blobs(found: Options, _: BlockBasedOptions) -> None:
    found.set_enable_blob_files(True)
    found.set_min_blob_size(5)


def dictionaries(found: Options, _: BlockBasedOptions) -> None:
    found.set_compression_type(DBCompressionType.zstd())
    found.set_compression_options(-14, 3, 0, 4096)


CHANGES = (two_level_index, hashes, other_checksums, blobs, dictionaries)
WRITES = (ranges, entities, long_keys, many_files)


def filled(folder: Path, chosen: Options) -> Store:
    store = Store(folder, chosen)
    store.write({b"%05d" % i: b"value %d" % i for i in range(1000)})
    return store


@pytest.mark.parametrize("what", [*CHANGES, *WRITES], ids=lambda what: what.__name__)
def test_what_is_not_known_is_refused(tmp_path: Path, what: Any) -> None:
    store = filled(tmp_path, options(what if what in CHANGES else None))
    if what in WRITES:
        what(store)
    if what is dictionaries:
        store.flush()
        store.db.compact_range(None, None)
    folder = store.finish()
    with pytest.raises(CorruptRecord, match="the store is damaged, or Sluice cannot read it: "):
        list(read_values(folder, "the store", BATCH_BYTES))


def test_a_log_with_content_is_refused(tmp_path: Path) -> None:
    store = filled(tmp_path, options())
    store.flush()
    log(store)
    store.db.flush_wal(True)
    folder = tmp_path / "copy"
    shutil.copytree(tmp_path / "db", folder)  # as if the server had died here
    store.db.close()
    with pytest.raises(CorruptRecord, match="a write-ahead log that RocksDB must replay"):
        direct(folder)


def test_a_key_that_two_files_of_a_level_share_is_refused(tmp_path: Path) -> None:
    store = Store(tmp_path, options(lambda o, _: o.set_target_file_size_base(2000)))
    snapshots = []  # they keep a compaction from dropping what is older
    rng = random.Random(0)
    for turn in range(60):
        store.write({b"a": rng.randbytes(200)})
        snapshots.append(store.db.snapshot())
        if turn == 30:
            store.flush()
    store.db.compact_range(None, None)
    folder = store.finish()
    assert snapshots
    with pytest.raises(CorruptRecord, match="overlap"):
        direct(folder)


def test_a_file_must_have_as_many_entries_as_it_says(tmp_path: Path) -> None:
    def plain(found: Options, blocks: BlockBasedOptions) -> None:
        found.set_compression_type(DBCompressionType.none())
        blocks.set_checksum_type(ChecksumType.crc32c())
        blocks.set_format_version(5)

    folder = filled(tmp_path, options(plain)).finish()
    [path] = folder.glob("*.sst")
    content = bytearray(path.read_bytes())
    table = sst_values._Table(path, len(content))
    metaindex = table._block(table.footer.metaindex)
    _, properties = sst_table.find_parts(table.footer, metaindex, len(content))
    table.close()
    at = content.index(b"entries\xe8\x07", properties.start)  # 1000
    content[at + len(b"entries")] += 1
    block = bytes(content[properties.start : properties.end - 4])
    content[properties.end - 4 : properties.end] = struct.pack("<I", masked_crc(block))
    path.unlink()  # RocksDB has it by a hard link
    path.write_bytes(content)
    with pytest.raises(CorruptRecord, match="1000 entries were read instead of 1001"):
        direct(folder)


def test_what_was_read_before_an_error_is_correct(tmp_path: Path) -> None:
    store = filled(tmp_path, options())
    entities(store)
    folder = store.finish()
    found = []
    with pytest.raises(CorruptRecord, match="other than puts and deletes"):
        for array in read_values(folder, "the store", 1000):
            found += array.to_pylist()
    assert found == by_rocksdb(folder)[: len(found)]
    assert len(found) > 0


# ---- damaged ----


@pytest.mark.parametrize("seed", range(6))
def test_a_flipped_byte_never_gives_other_rows(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    store = Store(tmp_path, random_options(rng))
    for turn in range(3):
        store.write({b"%04d" % i: rng.randbytes(9) for i in range(turn, 300, turn + 1)})
        store.flush()
    folder = store.finish()
    expected = direct(folder)
    names = [p.name for p in folder.iterdir() if p.suffix == ".sst" or p.name[:3] == "MAN"]
    refused = 0
    for _ in range(40):
        path = folder / rng.choice([*sorted(names), "CURRENT"])
        content = path.read_bytes()
        at = rng.randrange(len(content))
        if rng.random() < 0.3:  # footers are small
            at = len(content) - 1 - rng.randrange(min(60, len(content)))
        damaged = bytearray(content)
        damaged[at] ^= 1 << rng.randrange(8)
        path.unlink()  # RocksDB has it by a hard link
        path.write_bytes(damaged)
        try:
            assert direct(folder) == expected, f"{path.name} at {at}"
        except CorruptRecord:
            refused += 1
        path.write_bytes(content)
    assert refused
    assert direct(folder) == expected


def test_damage_is_told_with_its_name(tmp_path: Path) -> None:
    store = Store(tmp_path, options())
    rng = random.Random(0)
    store.write({b"%05d" % i: rng.randbytes(100) for i in range(5000)})
    folder = store.finish()
    expected = direct(folder)
    [sst] = folder.glob("*.sst")
    content = bytearray(sst.read_bytes())
    content[len(content) // 2] ^= 1
    sst.unlink()
    sst.write_bytes(content)
    found = []
    with pytest.raises(
        CorruptRecord, match=r"the store is damaged, .*: the block at \d+ is damaged"
    ):
        for array in read_values(folder, "the store", 1000):
            found += array.to_pylist()
    assert found == expected[: len(found)]
    sst.unlink()
    with pytest.raises(CorruptRecord, match="the store"):
        list(read_values(folder, "the store", 1000))
