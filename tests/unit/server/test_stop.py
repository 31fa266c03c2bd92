"""A stop within its time: many written buckets, what hangs, and what a start finds then."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from sluice.errors import DataDirLocked
from sluice.model import TablePath
from sluice.server.data_dir import DataDir
from sluice.server.tablet.buckets.files import LogFiles
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from tests.unit.server.kv_support import KvCaller
from tests.unit.server.support import Node, batch

PATIENCE_S = 10.0


class CountedFiles(LogFiles):
    """Keeps which log files were synced; a test may hold the syncs up."""

    def __init__(self) -> None:
        self.synced: list[Path] = []
        self.hold: Callable[[Path], object] = lambda _: None

    def sync(self, path: Path, folders: Sequence[Path] = ()) -> None:
        if path.suffix == ".log":
            self.synced.append(path)
        self.hold(path)
        super().sync(path, folders)


class HeldUpload(LogFiles):
    """The upload of a KV snapshot takes until the test ends it."""

    def __init__(self) -> None:
        self.synced: set[str] = set()
        self.began, self.ends = threading.Event(), threading.Event()

    def sync(self, path: Path, folders: Sequence[Path] = ()) -> None:
        super().sync(path, folders)
        self.synced.add(path.parent.name)

    def copy(self, source: Path, target: Path) -> None:
        self.began.set()
        self.ends.wait(60)
        super().copy(source, target)


def write(node: Node, buckets: int) -> int:
    """A table with one batch in each bucket; its id."""
    table_id = node.caller.create_table(bucket_count=buckets)
    request = pb.ProduceLogRequest(acks=-1, table_id=table_id, timeout_ms=10_000)
    for bucket in range(buckets):
        request.buckets_req.add(bucket_id=bucket, records=batch("a", "b"))
    answers = node.caller.call(apis.PRODUCE_LOG, request).buckets_resp
    assert not any(answer.error_code for answer in answers)
    return table_id


@pytest.fixture
def files() -> CountedFiles:
    return CountedFiles()


def test_a_stop_syncs_only_what_was_written_since(
    start: Callable[..., Node], files: CountedFiles
) -> None:
    node = start(files=files, sync_interval_ms=3_600_000)
    table_id = write(node, 40)
    node.cluster._parts._logs.sync(list(node.cluster._parts._logs._logs))  # type: ignore[union-attr]
    assert len(files.synced) == 40
    node.caller.produce(table_id, batch("c"), bucket=7)
    node.stop()
    assert [path.parent.name for path in files.synced[40:]] == ["log-7"]
    node.start()
    assert node.caller.offsets(table_id, buckets=(7, 8)) == [3, 2]


def test_logs_are_synced_at_the_same_time(start: Callable[..., Node], files: CountedFiles) -> None:
    node = start(files=files, sync_interval_ms=3_600_000)
    write(node, 8)
    together = threading.Barrier(8, timeout=20)
    files.hold = lambda path: path.suffix != ".log" or together.wait()
    node.stop()
    assert len(files.synced) == 8
    assert not together.broken


def test_a_stop_that_takes_too_long_leaves_the_rest_to_the_next_start(
    start: Callable[..., Node],
    files: CountedFiles,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    node = start(files=files, sync_interval_ms=3_600_000)
    table_id = write(node, 5)
    hangs = threading.Event()
    files.hold = lambda _: hangs.wait(60)
    began = time.monotonic()
    node.caller.transport.close()
    assert not node.cluster.stop(0.1, within_s=0.5)
    assert time.monotonic() - began < PATIENCE_S
    logged = capfd.readouterr()
    assert "the next start recovers them" in logged.out + logged.err
    assert "unsynced_logs=5" in logged.out + logged.err
    with pytest.raises(DataDirLocked):  # this process still closes logs
        node.start()
    shutil.copytree(tmp_path / "data", tmp_path / "killed/data")
    hangs.set()
    other = Node(tmp_path / "killed/data")
    assert other.caller.offsets(table_id, buckets=range(5)) == [2] * 5
    other.stop()


def test_logs_are_synced_though_a_kv_snapshot_is_still_uploaded(
    start: Callable[..., Node],
) -> None:
    files = HeldUpload()
    node = start(files=files, sync_interval_ms=3_600_000, kv_snapshot_interval_ms=1)
    kv = KvCaller(node.caller)
    kv.put((1, "x", 1))
    assert files.began.wait(PATIENCE_S)
    table_id = node.caller.create_table(path=TablePath("db", "logs"), bucket_count=3)
    for bucket in range(3):
        node.caller.produce(table_id, batch("a"), bucket=bucket)
    files.synced.clear()
    node.caller.transport.close()
    assert not node.cluster.stop(0.1, within_s=0.5)
    assert files.synced == {"log-0", "log-1", "log-2"}
    files.ends.set()


def test_the_directory_stays_locked_while_a_log_is_closed(
    start: Callable[..., Node], files: CountedFiles, tmp_path: Path
) -> None:
    node = start(files=files, sync_interval_ms=3_600_000)
    write(node, 1)
    closing, ends = threading.Event(), threading.Event()

    def hold(path: Path) -> None:
        if path.suffix == ".index":
            closing.set()
            ends.wait(60)

    files.hold = hold
    node.caller.transport.close()
    assert not node.cluster.stop(0.1, within_s=0.5)
    assert closing.is_set()
    with pytest.raises(DataDirLocked):
        DataDir.open(tmp_path / "data")
    ends.set()


@pytest.mark.slow
def test_2500_written_buckets_are_closed_in_time(start: Callable[..., Node]) -> None:
    """Issue 20: 26 s, one sync after the other."""
    node = start(sync_interval_ms=3_600_000)
    table_id = write(node, 2_500)
    node.caller.transport.close()
    began = time.monotonic()
    assert node.cluster.stop(4, within_s=60)
    assert time.monotonic() - began < PATIENCE_S
    node.start()
    assert node.caller.offsets(table_id, buckets=(0, 2_499)) == [2, 2]
