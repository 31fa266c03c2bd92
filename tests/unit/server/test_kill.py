"""kill -9 of a server process at named places: what was acknowledged is there, exactly once."""

from __future__ import annotations

import random
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sluice.errors import (
    CorruptRecord,
    FlussError,
    LogOffsetOutOfRange,
    LogStorageError,
    NetworkError,
)
from sluice.formats.log.batch import iter_batches
from tests.support.programs.processes import environment, wait_for
from tests.unit.server.coordinator.tiering.test_lake_snapshots import commit, get, prepare
from tests.unit.server.storage.test_removed_logs import ends
from tests.unit.server.support import Caller, batch, give_up

SERVE = """
import sys
import structlog
from sluice.config import ServerConfig
from sluice.server.cluster import EmbeddedCluster
structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
cluster = EmbeddedCluster(
    ServerConfig(data_dir=sys.argv[1], listen="grpc://127.0.0.1:0", segment_bytes=int(sys.argv[2]))
)
print(cluster.start(), flush=True)
sys.stdin.read()
cluster.stop()
"""


@contextmanager
def serving(
    data_dir: Path, failpoints: str = "", segment_bytes: int = 1 << 28
) -> Iterator[tuple[Caller, subprocess.Popen[str]]]:
    """A server in a process of its own; it is killed when the block ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE, str(data_dir), str(segment_bytes)],
        env=environment({"SLUICE_FAILPOINTS": failpoints} if failpoints else {}),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        address = process.stdout.readline().strip()
        assert address.startswith("grpc://"), process.wait(60)
        caller = Caller(address)
        yield caller, process
        caller.transport.close()
    finally:
        process.kill()
        process.wait(120)
        process.stdin.close()
        process.stdout.close()


def texts(count: int) -> list[str]:
    return [f"row {n}" for n in range(count)]


@pytest.mark.parametrize(
    ("is_clean", "names"),
    [
        pytest.param(True, 1, marks=pytest.mark.slow),
        pytest.param(False, 1, marks=pytest.mark.slow),
        (False, 2),
    ],
)
def test_a_kill_while_a_removed_log_is_continued(
    tmp_path: Path, *, is_clean: bool, names: int
) -> None:
    data_dir = tmp_path / "data"
    with serving(data_dir) as (caller, process):
        table = caller.create_table()
        for text in texts(5):
            caller.produce(table, batch(text))
        wait_for("a sync", lambda: ends(tmp_path))
        if is_clean:
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(60) == 0
    ((reserved, _),) = ends(tmp_path)
    shutil.rmtree(data_dir / "log/db")
    where = f"server.continue_at.after_name=kill@{names}"
    with pytest.raises(AssertionError), serving(data_dir, where):
        pass
    assert len(list((data_dir / "log/db").rglob("*.log"))) == names
    with serving(data_dir) as (caller, _):
        with pytest.raises(CorruptRecord, match="refuses reads and writes"):
            caller.produce(table, batch("x"))
        assert len(give_up(caller.address)) == 1
        end = caller.produce(table, batch("x"))
        assert end == (5 if is_clean else reserved)
        with pytest.raises(CorruptRecord, match=f"offsets 0 to {end - 1} are lost"):
            caller.fetch(table, 0)


@pytest.mark.parametrize(
    "where",
    [
        "server.append.before_write=kill@8",
        pytest.param("server.append.after_write=kill@8", marks=pytest.mark.slow),
        pytest.param("server.roll.after_index=kill@2", marks=pytest.mark.slow),
    ],
)
def test_a_kill_during_appends(tmp_path: Path, where: str) -> None:
    sent = [batch(text) for text in texts(15)]
    with serving(tmp_path, where, segment_bytes=1_000) as (caller, process):
        table = caller.create_table()
        writer = caller.init_writer()
        sent = [
            batch(text, writer_id=writer, sequence=n, first=n) for n, text in enumerate(texts(15))
        ]
        acknowledged = 0
        with pytest.raises(NetworkError):
            for records in sent:
                assert caller.produce(table, records) == acknowledged
                acknowledged += 1
        assert process.wait(120) == -signal.SIGKILL
    assert 0 < acknowledged < len(sent)
    with serving(tmp_path, segment_bytes=1_000) as (caller, _):
        found = caller.read_all(table)
        assert [content for _, content in found[:acknowledged]] == [
            records[25:] for records in sent[:acknowledged]
        ]
        # the writer sends again what was never answered, and then the rest
        for n, records in enumerate(sent[acknowledged:], start=acknowledged):
            assert caller.produce(table, records) == n
        assert [content for _, content in caller.read_all(table)] == [
            records[25:] for records in sent
        ]


@pytest.mark.parametrize(
    "where",
    ["server.commit_lake.before", pytest.param("server.commit_lake.after", marks=pytest.mark.slow)],
)
def test_a_kill_during_a_lake_commit(tmp_path: Path, where: str) -> None:
    with serving(tmp_path, f"{where}=kill@2") as (caller, process):
        table = caller.create_table()
        commit(caller, table, 1, prepare(caller, table, {0: 5}))
        path = prepare(caller, table, {0: 9})
        with pytest.raises(NetworkError):
            commit(caller, table, 2, path)
        assert process.wait(120) == -signal.SIGKILL
    with serving(tmp_path) as (caller, _):
        assert get(caller) == ((1, {0: 5}) if where.endswith("before") else (2, {0: 9}))
        commit(caller, table, 2, path)
        assert get(caller) == (2, {0: 9})


@pytest.mark.parametrize("where", ["server.create_table.before_commit"])
def test_a_kill_while_a_table_is_created(tmp_path: Path, where: str) -> None:
    with serving(tmp_path, f"{where}=kill") as (caller, process):
        with pytest.raises(NetworkError):
            caller.create_table()
        assert process.wait(120) == -signal.SIGKILL
    with serving(tmp_path) as (caller, _):
        table = caller.create_table()
        assert caller.produce(table, batch("a")) == 0


def test_a_kill_while_the_tiering_of_a_new_table_is_stored(tmp_path: Path) -> None:
    from tests.unit.server.coordinator.calls.test_tiering_calls import LAKE_TABLE, claim

    properties = {**LAKE_TABLE.properties, "table.datalake.freshness": "0s"}
    with serving(tmp_path, "server.tiering.before_commit=kill") as (caller, process):
        with pytest.raises(NetworkError):
            caller.create_table(properties=properties)
        assert process.wait(120) == -signal.SIGKILL
    with serving(tmp_path) as (caller, _):
        table = caller.create_table(properties=properties)  # nothing of it is there
        assert claim(caller).tiering_table.table_id == table


def test_epochs_survive_kills(tmp_path: Path) -> None:
    from tests.unit.server.coordinator.calls.test_tiering_calls import LAKE_TABLE, beat, claim

    epochs = []
    for _ in range(3):
        with serving(tmp_path) as (caller, _):
            if not epochs:
                properties = {**LAKE_TABLE.properties, "table.datalake.freshness": "0s"}
                caller.create_table(properties=properties)
            held = claim(caller)
            epochs.append((held.coordinator_epoch, held.tiering_table.tiering_epoch))
            assert beat(caller).coordinator_epoch == held.coordinator_epoch
    assert epochs == [(1, 1), (2, 2), (3, 3)]


def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    """The kernel refuses to let a file grow, then lets it grow again."""
    with serving(tmp_path) as (caller, process):
        table = caller.create_table()
        writer = caller.init_writer()
        big = random.Random(1).randbytes(5_000).hex()
        sent = [batch(f"{n}{big}", writer_id=writer, sequence=n) for n in range(100)]
        before = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
        caller.produce(table, sent[0])
        limit = max(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) + 9_000
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (limit, before[1]))
        stored = 1
        with pytest.raises(LogStorageError, match="File too large"):
            for records in sent[1:]:
                caller.produce(table, records)
                stored += 1
        with pytest.raises(LogStorageError):
            caller.produce(table, sent[stored])
        assert len(caller.read_all(table)) == stored
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, before)
        for records in sent[stored:]:
            caller.produce(table, records)
    with serving(tmp_path) as (caller, _):
        assert [content for _, content in caller.read_all(table)] == [r[25:] for r in sent]


def test_a_clean_stop_ends_with_success(tmp_path: Path) -> None:
    with serving(tmp_path) as (caller, process):
        table = caller.create_table()
        caller.produce(table, batch("a"))
        process.communicate("", timeout=120)
        assert process.returncode == 0
        with pytest.raises(FlussError):
            caller.produce(table, batch("b"))
    assert list(tmp_path.rglob("*.index"))


@pytest.mark.parametrize("is_synced", [True, False])
def test_a_flipped_bit_and_a_kill_renumber_nothing(tmp_path: Path, *, is_synced: bool) -> None:
    """Issue 20: fifteen batches went, fourteen of them intact, and their offsets came again."""
    data_dir = tmp_path / "data"
    with serving(data_dir) as (caller, process):
        table = caller.create_table()
        for text in texts(20):
            caller.produce(table, batch(text))
        before = caller.read_all(table)
        if is_synced:
            wait_for("a sync", lambda: ends(tmp_path))
        process.kill()
        process.wait(120)
    (log,) = tmp_path.rglob("*.log")
    content = bytearray(log.read_bytes())
    content[content.index(before[5][1]) + len(before[5][1]) - 1] ^= 1
    log.write_bytes(content)
    with serving(data_dir) as (caller, _):
        for _ in range(2):
            with pytest.raises(CorruptRecord) as told:
                caller.read_all(table)
        assert f"refuses reads and writes: {log}, bytes " in str(told.value)
        with pytest.raises(CorruptRecord, match="refuses reads and writes"):
            caller.produce(table, batch("new"))
        if not is_synced:
            with pytest.raises(LogOffsetOutOfRange, match="no file tells where the log goes on"):
                give_up(caller.address)
            return
        assert len(give_up(caller.address)) == 1
        found = [
            (header.base_offset, bytes(view[25:]))
            for start in (0, 6)
            for header, view in iter_batches(caller.fetch(table, start).records)
        ]
        assert found == before[:5] + before[6:]
        assert caller.produce(table, batch("new")) == 20
