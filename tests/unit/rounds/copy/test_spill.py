"""What is spilled: bounded memory, full and damaged disks, and what killed processes leave."""

from __future__ import annotations

import gc
import resource
import signal
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from sluice.errors import SpillFailed
from sluice.model import LOG_OFFSET
from sluice.rounds.copy.last_changes import LastChanges
from sluice.rounds.copy.spill import SpillFolder, remove_left_over
from sluice.rounds.values.types import LogRecords

MIB = 1 << 20
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])
TEXT_SCHEMA = pa.schema([("k", pa.string()), ("v", pa.string())])
VALUES = pa.array([f"{i:080d}" for i in range(5_000)])


def batches(rows: int, seed: int = 0, schema: pa.Schema = SCHEMA) -> Iterator[LogRecords]:
    """Updates of keys drawn from ten times as many, in batches of 5,000."""
    rng = np.random.default_rng(seed)
    kinds = pa.array(np.full(5_000, 3, np.uint8))
    for offset in range(0, rows, 5_000):
        keys = pa.array(rng.integers(0, rows * 10, 5_000)).cast(schema.field("k").type)
        batch = pa.RecordBatch.from_arrays([keys, VALUES], schema=schema)
        yield LogRecords(batch, offset, offset + 5_000, 9, 1, kinds)


@contextmanager
def changes(folder: Path, limit: int, schema: pa.Schema = SCHEMA) -> Iterator[LastChanges]:
    with LastChanges(schema, ["k"], memory_limit_bytes=limit, spill_dir=folder) as found:
        yield found


_POOLS: list[pa.MemoryPool] = []
"""A pool must not go before the last buffer that it gave."""


class Peak:
    """The most that Arrow and numpy held at once since it was made, each counted apart."""

    def __enter__(self) -> Peak:
        gc.collect()
        self._before = pa.default_memory_pool()
        self.pool = pa.proxy_memory_pool(self._before)
        _POOLS.append(self.pool)
        pa.set_memory_pool(self.pool)
        tracemalloc.start()
        return self

    def bytes(self) -> int:
        return int(self.pool.max_memory()) + tracemalloc.get_traced_memory()[1]

    def __exit__(self, *_: object) -> None:
        tracemalloc.stop()
        pa.set_memory_pool(self._before)


@pytest.mark.parametrize("schema", [SCHEMA, TEXT_SCHEMA], ids=["number", "text"])
def test_memory_is_bounded_however_long_the_window(tmp_path: Path, schema: pa.Schema) -> None:
    """A window many times as large as the limit, and a snapshot beside it."""
    limit, rows = 3 * MIB, 200_000
    with Peak() as peak:
        with changes(tmp_path, limit, schema) as found:
            for records in batches(rows, schema=schema):
                found.add(records)
            upserts = 0
            for part in found.parts():
                upserts += part.upserts.num_rows
                del part
            snapshot = (records.batch for records in batches(rows, 1, schema))
            kept = sum(some.num_rows for some in found.unchanged_rows(snapshot))
            del records, snapshot
        assert peak.bytes() < 1.25 * limit
    keys = [np.concatenate([r.batch.column("k") for r in batches(rows, s)]) for s in (0, 1)]
    assert upserts == len(np.unique(keys[0]))
    assert kept == (~np.isin(keys[1], keys[0])).sum()


@pytest.mark.no_rerun
def test_nothing_is_written_before_the_limit_and_nothing_stays_after(tmp_path: Path) -> None:
    folder = tmp_path / "below" / "spill"
    with changes(folder, 64 * MIB) as found:
        for records in batches(20_000):
            found.add(records)
        assert sum(part.upserts.num_rows for part in found.parts()) > 19_000
    assert not folder.exists()
    with changes(folder, MIB) as found:
        for records in batches(50_000):
            found.add(records)
        assert len(list(folder.glob("*/*.arrow"))) > 1
        parts = found.parts()
        next(parts)
    assert list(folder.iterdir()) == []
    parts.close()
    assert list(folder.iterdir()) == []


@pytest.mark.no_rerun
def test_a_key_that_changes_all_the_time_is_not_spilled(tmp_path: Path) -> None:
    kinds = pa.array(np.full(5_000, 3, np.uint8))
    keys = pa.array(np.arange(5_000) % 3)
    batch = pa.RecordBatch.from_arrays([keys, VALUES], schema=SCHEMA)
    with changes(tmp_path, 2 * MIB) as found:
        for offset in range(0, 500_000, 5_000):
            found.add(LogRecords(batch, offset, offset + 5_000, 9, 1, kinds))
        (part,) = found.parts()
        assert part.upserts.column(LOG_OFFSET).to_pylist() == [499_997, 499_998, 499_999]
    assert list(tmp_path.iterdir()) == []


@contextmanager
def files_of_at_most(size_bytes: int) -> Iterator[None]:
    """A disk that is full, as far as this process can see: writes beyond that size fail."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.no_rerun
def test_a_full_disk_says_so_and_nothing_stays(tmp_path: Path) -> None:
    with changes(tmp_path, MIB) as found:
        with (
            files_of_at_most(10_000),
            pytest.raises(SpillFailed, match=f"cannot write {tmp_path}/.*free disk space"),
        ):
            for records in batches(50_000):
                found.add(records)
        assert list(tmp_path.glob("*/*.arrow")) == []
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    text = f"cannot make a folder in {tmp_path}/file: .*Exists"
    with changes(tmp_path / "file", 1) as found, pytest.raises(SpillFailed, match=text):
        found.add(next(batches(5_000)))


@pytest.mark.parametrize("damage", ["gone", "cut", "overwritten", "foreign"])
@pytest.mark.parametrize("reading", ["parts", "without"])
def test_a_damaged_file_is_an_error_and_never_fewer_rows(
    tmp_path: Path, damage: str, reading: str
) -> None:
    with changes(tmp_path, MIB) as found:
        for records in batches(50_000):
            found.add(records)
        first, second = sorted(tmp_path.glob("*/*.arrow"))[:2]
        content = first.read_bytes()
        if damage == "gone":
            first.unlink()
        elif damage == "cut":
            first.write_bytes(content[: len(content) // 2])
        elif damage == "overwritten":
            middle = len(content) // 2
            first.write_bytes(content[:middle] + b"\xff" * 4096 + content[middle + 4096 :])
        else:
            with changes(tmp_path / "other", MIB) as other:
                for records in batches(50_000, 7):
                    other.add(records)
                (_, foreign) = sorted((tmp_path / "other").glob("*/*.arrow"))[:2]
                second.write_bytes(foreign.read_bytes())
        snapshot = [records.batch for records in batches(5_000)]
        with pytest.raises(SpillFailed, match=r"cannot read .*\.arrow"):
            list(found.parts() if reading == "parts" else found.unchanged_rows(snapshot))


SPILLS_AND_DIES = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from test_spill import MIB, SCHEMA, batches
from sluice.rounds.copy.last_changes import LastChanges
found = LastChanges(SCHEMA, ["k"], memory_limit_bytes=MIB, spill_dir=Path({folder!r}))
for records in batches(50_000):
    found.add(records)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.no_rerun
def test_what_a_killed_process_leaves_is_removed_by_the_next_that_spills(tmp_path: Path) -> None:
    code = SPILLS_AND_DIES.format(tests=str(Path(__file__).parent), folder=str(tmp_path))
    killed = subprocess.Popen([sys.executable, "-c", code])
    assert killed.wait(240) == -signal.SIGKILL
    (left,) = tmp_path.glob("*/")
    assert left.name.startswith(f"sluice-spill-{killed.pid}-")
    assert len(list(left.glob("*.arrow"))) > 1
    (tmp_path / "sluice-spill-of-somebody-else").mkdir()

    living = SpillFolder(tmp_path)
    assert not left.exists()
    names = {path.name for path in tmp_path.iterdir()}
    assert remove_left_over(tmp_path) == []  # that of a living process stays
    assert {path.name for path in tmp_path.iterdir()} == names
    living.close()
    assert [path.name for path in tmp_path.iterdir()] == ["sluice-spill-of-somebody-else"]
