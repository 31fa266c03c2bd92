"""PrepareLakeTableSnapshot, CommitLakeTableSnapshot and GetLakeSnapshot over gRPC."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sluice.errors import (
    CorruptMessage,
    FencedTieringEpoch,
    InvalidCoordinator,
    InvalidUpdateVersion,
    LakeSnapshotNotExist,
    TableNotExist,
    UnknownServerError,
)
from sluice.model import TableInfo, TablePath
from sluice.server.coordinator.tiering.lake_snapshots import Registered
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.error_codes import raise_in_body
from tests.unit.server.coordinator.calls.test_catalog_calls import (
    PARTITIONED,
    create_partition,
    drop_partition,
    partitions,
)
from tests.unit.server.coordinator.calls.test_tiering_calls import LAKE_TABLE, beat, claim, entry
from tests.unit.server.support import LOG_TABLE, PATH, Caller, Node, OwnedClock, to_pb


def prepare(
    caller: Caller,
    table_id: int,
    offsets: dict[int, int],
    *,
    ignore: bool = True,
    path: TablePath = PATH,
    partition_id: int | None = None,
) -> str:
    table = pb.PbTableOffsets(table_id=table_id, table_path=to_pb(path))
    for bucket, offset in offsets.items():
        table.bucket_offsets.add(bucket_id=bucket, log_end_offset=offset, partition_id=partition_id)
    request = pb.PrepareLakeTableSnapshotRequest(
        bucket_offsets=[table], ignore_previous_table_offsets=ignore
    )
    (answer,) = caller.call(apis.PREPARE_LAKE_TABLE_SNAPSHOT, request).prepare_lake_table_resp
    raise_in_body(answer)
    return str(answer.lake_table_offsets_path)


def commit(caller: Caller, table_id: int, snapshot_id: int, path: str, **more: Any) -> None:
    metadata = pb.PbLakeTableSnapshotMetadata(
        table_id=table_id,
        snapshot_id=snapshot_id,
        tiered_bucket_offsets_file_path=path,
        **more,
    )
    request = pb.CommitLakeTableSnapshotRequest(lake_table_snapshot_metadata=[metadata])
    (answer,) = caller.call(apis.COMMIT_LAKE_TABLE_SNAPSHOT, request).table_resp
    assert answer.table_id == table_id
    raise_in_body(answer)


def get(caller: Caller, path: TablePath = PATH, **more: Any) -> tuple[int, dict[int, int]]:
    request = pb.GetLakeSnapshotRequest(table_path=to_pb(path), **more)
    answer = caller.call(apis.GET_LAKE_SNAPSHOT, request)
    return answer.snapshotId, {b.bucket_id: b.log_offset for b in answer.bucket_snapshots}


def file_of(uri: str) -> Path:
    assert uri.startswith("file://")
    return Path(uri.removeprefix("file://"))


@pytest.fixture
def table(caller: Caller) -> int:
    return caller.create_table(bucket_count=3)


def test_prepare_then_commit(node: Node, tmp_path: Path, table: int) -> None:
    caller = node.caller
    with pytest.raises(LakeSnapshotNotExist, match=r"db\.t has no lake snapshot"):
        get(caller)
    path = prepare(caller, table, {0: 5, 2: 7})
    with pytest.raises(LakeSnapshotNotExist):
        get(caller)  # preparing registers nothing
    file = file_of(path)
    assert file.parent == tmp_path / f"data/remote/lake/db/t-{table}/metadata"
    content = json.loads(file.read_bytes())
    assert content == {"version": 1, "table_id": table, "bucket_offsets": [5, -1, 7]}
    commit(caller, table, 9_000_000_000, path)
    assert get(caller) == (9_000_000_000, {0: 5, 2: 7})
    node.restart()
    assert get(node.caller) == (9_000_000_000, {0: 5, 2: 7})


def test_prepare_may_build_on_the_latest(caller: Caller, table: int) -> None:
    commit(caller, table, 1, prepare(caller, table, {0: 5, 1: 6}))
    commit(caller, table, 2, prepare(caller, table, {1: 8, 2: 1}, ignore=False))
    assert get(caller) == (2, {0: 5, 1: 8, 2: 1})


@pytest.mark.parametrize("keep", [{}, {"earliest_snapshot_id_to_keep": -1}])
def test_a_repeated_commit_changes_nothing(
    caller: Caller, table: int, keep: dict[str, int]
) -> None:
    commit(caller, table, 1, prepare(caller, table, {0: 1}))
    path = prepare(caller, table, {0: 2})
    for _ in range(3):
        commit(caller, table, 2, path, **keep)
        assert get(caller) == (2, {0: 2})
        assert file_of(path).exists()
    commit(caller, table, 2, path, earliest_snapshot_id_to_keep=2)
    assert get(caller) == (2, {0: 2})
    assert prepare(caller, table, {1: 1}, ignore=False)


def test_retention(caller: Caller, table: int) -> None:
    paths = [prepare(caller, table, {0: n}) for n in range(6)]
    for n in (0, 1, 2):
        commit(caller, table, n, paths[n], earliest_snapshot_id_to_keep=-1)
    assert [get(caller, snapshot_id=n)[0] for n in (0, 1, 2)] == [0, 1, 2]
    commit(caller, table, 3, paths[3], earliest_snapshot_id_to_keep=1)
    with pytest.raises(LakeSnapshotNotExist, match="snapshot 0"):
        get(caller, snapshot_id=0)
    assert [get(caller, snapshot_id=n)[0] for n in (1, 2, 3)] == [1, 2, 3]
    commit(caller, table, 4, paths[4])  # says nothing: only the new one stays
    assert get(caller) == (4, {0: 4})
    assert [file_of(path).exists() for path in paths] == [False] * 4 + [True] * 2


@pytest.mark.parametrize("ask", ["get", "prepare"])
def test_a_commit_that_drops_what_is_being_read_is_no_error(
    node: Node, table: int, monkeypatch: pytest.MonkeyPatch, ask: str
) -> None:
    caller = node.caller
    commit(caller, table, 1, prepare(caller, table, {0: 1}))
    path = prepare(caller, table, {0: 2})
    assert node.cluster._parts is not None
    lake = node.cluster._parts._lake
    look = lake._registered

    def and_then_another_commits(info: TableInfo) -> list[Registered]:
        found = look(info)
        monkeypatch.undo()
        commit(caller, table, 2, path)  # drops snapshot 1 and its file
        return found

    monkeypatch.setattr(lake, "_registered", and_then_another_commits)
    if ask == "get":
        assert get(caller) == (2, {0: 2})
        return
    built_on = file_of(prepare(caller, table, {1: 1}, ignore=False))
    assert json.loads(built_on.read_bytes())["bucket_offsets"] == [2, 1]


def test_readable_and_latest_are_told_apart(caller: Caller, table: int) -> None:
    first = prepare(caller, table, {0: 1})
    commit(caller, table, 1, first, readable_bucket_offsets_file_path=first)
    commit(caller, table, 2, prepare(caller, table, {0: 2}), earliest_snapshot_id_to_keep=-1)
    assert get(caller) == (2, {0: 2})
    assert get(caller, readable=True) == (1, {0: 1})
    with pytest.raises(UnknownServerError, match="not both"):
        get(caller, readable=True, snapshot_id=1)


def test_latest_is_the_last_one_whatever_its_id(caller: Caller, table: int) -> None:
    for snapshot_id, offset in ((50, 1), (7, 2)):
        path = prepare(caller, table, {0: offset})
        commit(caller, table, snapshot_id, path, earliest_snapshot_id_to_keep=-1)
    assert get(caller) == (7, {0: 2})


def test_offsets_never_go_back(caller: Caller, table: int) -> None:
    commit(caller, table, 1, prepare(caller, table, {0: 5, 1: 5}))
    for offsets in ({0: 4, 1: 9}, {0: 9}):
        path = prepare(caller, table, offsets)
        with pytest.raises(InvalidUpdateVersion, match="back from"):
            commit(caller, table, 2, path)
    assert get(caller) == (1, {0: 5, 1: 5})
    commit(caller, table, 3, prepare(caller, table, {0: 5, 1: 5}))  # equal is fine


def test_a_dropped_partition_may_vanish_from_the_offsets(caller: Caller) -> None:
    table = caller.create_table(descriptor=PARTITIONED)
    for value in ("a", "b"):
        create_partition(caller, value)
    ids = partitions(caller)
    commit(caller, table, 1, prepare(caller, table, {0: 5}, partition_id=ids["a"]))
    without = prepare(caller, table, {0: 7}, partition_id=ids["b"])
    with pytest.raises(InvalidUpdateVersion):
        commit(caller, table, 2, without)
    drop_partition(caller, "a")
    commit(caller, table, 2, without)
    assert get(caller) == (2, {0: 7})


def test_a_dropped_table_takes_no_commit(caller: Caller, table: int) -> None:
    path = prepare(caller, table, {0: 1})
    caller.drop_table()
    with pytest.raises(TableNotExist, match=f"{table}"):
        commit(caller, table, 1, path)
    with pytest.raises(TableNotExist):
        prepare(caller, table, {0: 1})
    again = caller.create_table()
    with pytest.raises(LakeSnapshotNotExist):
        get(caller)
    with pytest.raises(CorruptMessage, match="not an offsets file of this table"):
        commit(caller, again, 1, path)
    with pytest.raises(TableNotExist, match="does not have the id"):
        prepare(caller, again, {0: 1}, path=TablePath("db", "renamed"))


def test_foreign_files_are_never_read(caller: Caller, table: int, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("{}")
    good = prepare(caller, table, {0: 1})
    folder = Path(file_of(good)).parent
    cannot_be = ("file://[/x", f"{folder}/a\0b", f"{folder}/a%00b")
    for path in (secret.as_uri(), f"{folder}/../x", "s3://bucket/x", "", *cannot_be):
        with pytest.raises(CorruptMessage, match="not an offsets file"):
            commit(caller, table, 1, path)
    with pytest.raises(UnknownServerError, match="offsets file"):
        commit(caller, table, 1, good.replace(".offsets", "-gone.offsets"))
    with pytest.raises(LakeSnapshotNotExist):
        get(caller)


def test_a_round_that_is_not_wanted_is_refused(
    start: Callable[..., Node], clock: OwnedClock
) -> None:
    node = start(clock=clock)
    caller = node.caller
    table = caller.create_table(descriptor=LAKE_TABLE)
    clock.ms += 10_000
    held = claim(caller)
    epochs = {"tiering_epoch": 1, "coordinator_epoch": 1}
    path = prepare(caller, table, {0: 1})
    with pytest.raises(InvalidCoordinator):
        commit(caller, table, 1, path, tiering_epoch=1, coordinator_epoch=2)
    with pytest.raises(FencedTieringEpoch):
        commit(caller, table, 1, path, tiering_epoch=2, coordinator_epoch=1)
    commit(caller, table, 1, path, **epochs)
    beat(caller, finished_tables=[entry(held)])
    commit(caller, table, 1, path, **epochs)  # a repeat, whatever has come since
    with pytest.raises(FencedTieringEpoch, match="has ended"):
        commit(caller, table, 2, prepare(caller, table, {0: 2}), **epochs)
    node.restart()
    commit(node.caller, table, 1, path, **epochs)
    with pytest.raises(InvalidCoordinator):
        commit(node.caller, table, 2, prepare(node.caller, table, {0: 2}), **epochs)
    assert get(node.caller) == (1, {0: 1})
    # an old client names no epochs; it is not fenced, as in Fluss
    commit(node.caller, table, 2, prepare(node.caller, table, {0: 2}))


def test_an_old_client_commits_offsets_without_a_file(caller: Caller, table: int) -> None:
    for snapshot_id, bucket in ((1, 0), (2, 1)):
        info = pb.PbLakeTableSnapshotInfo(table_id=table, snapshot_id=snapshot_id)
        info.buckets_req.add(bucket_id=bucket, log_end_offset=10 + bucket)
        request = pb.CommitLakeTableSnapshotRequest(tables_req=[info])
        (answer,) = caller.call(apis.COMMIT_LAKE_TABLE_SNAPSHOT, request).table_resp
        raise_in_body(answer)
    assert get(caller) == (2, {0: 10, 1: 11})


def test_one_bad_table_does_not_harm_the_others(caller: Caller, table: int) -> None:
    other = caller.create_table(TablePath("db", "other"), replace(LOG_TABLE))
    request = pb.PrepareLakeTableSnapshotRequest()
    for table_id, name in ((other + 5, "x"), (other, "other")):
        offsets = request.bucket_offsets.add(
            table_id=table_id, table_path=to_pb(TablePath("db", name))
        )
        offsets.bucket_offsets.add(bucket_id=0, log_end_offset=3)
    bad, good = caller.call(apis.PREPARE_LAKE_TABLE_SNAPSHOT, request).prepare_lake_table_resp
    assert bad.error_code == 7
    commit(caller, other, 1, good.lake_table_offsets_path)
    assert get(caller, TablePath("db", "other")) == (1, {0: 3})
    assert table != other


def test_files_that_nobody_needs_do_not_stay(node: Node, table: int, tmp_path: Path) -> None:
    kept = prepare(node.caller, table, {0: 1})
    commit(node.caller, table, 1, kept)
    abandoned = prepare(node.caller, table, {0: 2})
    fresh = prepare(node.caller, table, {0: 3})
    for uri in (kept, abandoned):
        os.utime(file_of(uri), (1, 1))
    gone = node.caller.create_table(TablePath("db", "gone"))
    node.caller.drop_table(TablePath("db", "gone"))
    orphan = tmp_path / f"data/remote/lake/db/gone-{gone}/metadata"
    unknown = tmp_path / f"data/remote/lake/db/unknown-{gone + 1}/metadata"
    for folder in (orphan, unknown):
        folder.mkdir(parents=True)
    node.restart()
    assert [file_of(uri).exists() for uri in (kept, abandoned, fresh)] == [True, False, True]
    assert not orphan.exists()
    assert unknown.exists()
    node.caller.drop_table()
    assert not file_of(kept).parent.exists()


def test_a_data_directory_can_be_moved(start: Callable[..., Node], tmp_path: Path) -> None:
    node = start()
    table = node.caller.create_table()
    path = prepare(node.caller, table, {0: 0, 1: 0})
    commit(node.caller, table, 1, path)
    os.utime(file_of(path), (1, 1))
    node.stop()
    (tmp_path / "data").rename(tmp_path / "elsewhere")
    moved = Node(tmp_path / "elsewhere")
    try:
        assert get(moved.caller) == (1, {0: 0, 1: 0})
        commit(moved.caller, table, 2, prepare(moved.caller, table, {0: 0}, ignore=False))
        assert get(moved.caller) == (2, {0: 0, 1: 0})
    finally:
        moved.stop()


def test_a_file_that_two_snapshots_share_stays(caller: Caller, table: int) -> None:
    path = prepare(caller, table, {0: 1})
    commit(caller, table, 1, path)
    commit(caller, table, 2, path)  # drops snapshot 1, not the file
    assert get(caller) == (2, {0: 1})
