"""Every bit of an SST file counts."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from sluice.server.tablet.kv.sst_check import check_sst
from sluice.server.tablet.kv.store import KvResources, KvStore

MIB = 1 << 20


@pytest.fixture(scope="module")
def sst(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of about 10 MiB, more than is read at once."""
    folder = tmp_path_factory.mktemp("store") / "db"
    resources = KvResources(block_cache_bytes=MIB, write_buffer_bytes=64 * MIB, open_max=10)
    store, rng = KvStore(folder, resources), random.Random(0)
    rows = [(key.to_bytes(8, "big"), rng.randbytes(1_000)) for key in range(10_000)]
    store.write(rows, [], 1, len(rows))
    store.close()
    return max(folder.glob("*.sst"), key=lambda path: path.stat().st_size)


def test_a_good_file_passes(sst: Path) -> None:
    assert sst.stat().st_size > 9 * MIB
    for one in sst.parent.glob("*.sst"):
        check_sst(one)


def test_a_flipped_bit_anywhere_is_found(sst: Path, tmp_path: Path) -> None:
    content, rng = bytearray(sst.read_bytes()), random.Random(1)
    size, path = len(content), tmp_path / "1.sst"
    begins = (0, 4 * MIB, 8 * MIB)  # and the filter, the index and the properties at the end
    places = [*begins, *(rng.randrange(size) for _ in range(20)), *range(size - 2_000, size, 90)]
    path.write_bytes(content)
    with path.open("r+b") as file:
        for place in places:
            file.seek(place)
            file.write(bytes([content[place] ^ 1 << rng.randrange(8)]))
            file.flush()
            if place < size - 53 or content[place]:  # else unused in the footer
                with pytest.raises(ValueError, match="."):
                    check_sst(path)
            file.seek(place)
            file.write(content[place : place + 1])
    check_sst(path)


@pytest.mark.parametrize("left", [0, 20, 5_000])
def test_a_truncated_file_is_found(sst: Path, tmp_path: Path, left: int) -> None:
    path = tmp_path / "1.sst"
    path.write_bytes(sst.read_bytes()[:left])
    with pytest.raises(ValueError, match="no footer"):
        check_sst(path)
