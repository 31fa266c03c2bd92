"""What the error about a damaged range says: a log reader can leave it out, a store cannot."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from sluice.errors import CorruptRecord
from tests.unit.server.kv_support import KvCaller
from tests.unit.server.support import Node


def test_a_damaged_changelog_is_left_out_by_readers_only(
    start: Callable[..., Node], tmp_path: Path
) -> None:
    node = start(kv_snapshot_interval_ms=0)
    kv = KvCaller(node.caller)
    for key in range(3):
        kv.put((key, "row", key))
    node.stop()
    shutil.rmtree(tmp_path / "data" / "kv")
    (log,) = (tmp_path / "data" / "log").rglob("*.log")
    log.with_suffix(".index").unlink()  # as after a kill
    content = bytearray(log.read_bytes())
    content[2 * len(content) // 3 - 2] ^= 1  # of the second row
    log.write_bytes(content)
    node.start()
    kv = KvCaller(node.caller, create=False)
    with pytest.raises(CorruptRecord, match="skip-damaged") as refused:
        kv.lookup((0,))
    assert "read on" not in str(refused.value)
    with pytest.raises(CorruptRecord) as refused:
        kv.changelog(offset=1)
    assert str(refused.value).endswith(
        "; restore this file from a backup while the server is stopped. Readers of the log can read"
        " on from offset 2, but a key-value store that must replay these offsets cannot leave them"
        " out"
    )
    assert kv.changelog(offset=2)
