"""What a crash left of KV snapshots is removed after a start, while the server answers."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from sluice.model import TableBucket
from tests.unit.server.kv_support import KvCaller
from tests.unit.server.support import Node


@pytest.fixture
def node(start: Callable[..., Node]) -> Node:
    return start(kv_snapshot_interval_ms=0)


def test_a_start_does_not_wait_for_it_but_the_next_snapshot_does(
    node: Node, tmp_path: Path
) -> None:
    kv = KvCaller(node.caller)
    kv.put((1, "a", 1))
    node.cluster.take_kv_snapshots(kv.path)
    node.stop()
    folder = tmp_path / "data" / "remote" / "kv" / "db" / f"kv-{kv.table_id}" / "0"
    orphans = [folder / "snap-1" / "CURRENT", folder / "shared" / "left"]
    for path in orphans:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x")
    metadata, kept = folder / "snap-0" / "_METADATA", tmp_path / "kept"
    metadata.rename(kept)
    os.mkfifo(metadata)  # whoever reads it waits

    node.start()
    kv = KvCaller(node.caller, create=False)
    kv.put((2, "b", 2))
    assert kv.lookup((1,), (2,)) == [(1, "a", 1), (2, "b", 2)]
    taken: list[object] = []
    taking = threading.Thread(
        target=lambda: taken.append(node.cluster.take_kv_snapshots(kv.path)), daemon=True
    )
    taking.start()
    with metadata.open("wb") as answer:  # as soon as it is read
        assert orphans[1].exists()
        assert taken == []
        content = kept.read_bytes()
        kept.replace(metadata)  # whoever reads it next does not wait
        answer.write(content)
    taking.join(60)
    assert taken == [{TableBucket(kv.table_id, None, 0): 1}]
    assert not orphans[1].exists()
    assert not orphans[0].exists(), "the folder was made anew for the snapshot of that number"
    assert kv.snapshots() == {0: (1, 2)}
