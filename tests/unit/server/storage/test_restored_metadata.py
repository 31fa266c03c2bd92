"""metadata.sqlite from a backup that is older than the logs: what is acknowledged is stored."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from sluice.errors import UnknownWriterId
from sluice.server.writer_ids import SKIPPED
from tests.unit.server.kv_support import KvCaller
from tests.unit.server.support import Node, batch

QUIET = {"kv_snapshot_interval_ms": 0, "log_ttl_check_interval_ms": 0}


@pytest.fixture
def node(start: Callable[..., Node]) -> Node:
    return start(**QUIET)


def back_up(node: Node) -> None:
    node.stop()
    shutil.copy(node.data_dir / "metadata.sqlite", node.data_dir.parent / "backup.sqlite")
    node.start()


def restore(node: Node) -> None:
    """Does what the error of a damaged file says."""
    node.stop()
    shutil.copy(node.data_dir.parent / "backup.sqlite", node.data_dir / "metadata.sqlite")
    for name in ("metadata.sqlite-wal", "metadata.sqlite-shm"):
        (node.data_dir / name).unlink(missing_ok=True)
    node.start()


def test_the_next_writer_of_a_log_gets_an_id_that_no_log_knows(node: Node) -> None:
    table = node.caller.create_table()
    back_up(node)
    for text in ("a", "b"):
        writer = node.caller.init_writer()
        node.caller.produce(table, batch(text, writer_id=writer, sequence=0))
    idle = node.caller.init_writer()  # issued too, and in no log
    with capture_logs() as events:
        restore(node)
    assert [one["writer_id"] for one in events if "older than the logs" in one["event"]] == [writer]
    other = node.caller.init_writer()
    assert idle < other == writer + 1 + SKIPPED
    assert node.caller.produce(table, batch("of another", writer_id=other, sequence=0)) == 2
    assert node.caller.produce(table, batch("again", writer_id=writer, sequence=1)) == 3
    with capture_logs() as events:
        node.restart()
    assert not [one for one in events if "older than the logs" in one["event"]]
    assert node.caller.init_writer() == other + 1


def test_the_next_writer_of_a_primary_key_table_too(node: Node) -> None:
    kv = KvCaller(node.caller)
    back_up(node)
    kv = KvCaller(node.caller, create=False)
    writer = node.caller.init_writer()
    kv.send(kv.records([(1, "x", 1)], writer_id=writer, sequence=0))
    restore(node)
    kv = KvCaller(node.caller, create=False)
    other = node.caller.init_writer()
    kv.send(kv.records([(2, "of another", 2)], writer_id=other, sequence=0))
    assert kv.lookup((1,), (2,)) == [(1, "x", 1), (2, "of another", 2)]


def test_an_intact_server_skips_no_id(node: Node) -> None:
    table = node.caller.create_table()
    writer = node.caller.init_writer()
    node.caller.produce(table, batch("a", writer_id=writer, sequence=0))
    node.restart()
    with pytest.raises(UnknownWriterId, match="was never issued"):
        node.caller.produce(table, batch("b", writer_id=writer + 1, sequence=0))
    assert node.caller.init_writer() == writer + 1
