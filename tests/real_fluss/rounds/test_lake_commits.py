"""Lake commits on a real Fluss, which has no fence and repeats nothing harmlessly by itself.

What the rounds rely on: a commit that says which snapshot to keep may be sent twice, and fields and
calls that a real server does not know are passed over.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest

from sluice.driver.repairing import diagnose_table, repair
from sluice.errors import LakeRolledBack
from sluice.model import Claim, TableBucket, TablePath
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from tests.real_fluss.conftest import RealSite
from tests.support.fluss.native_call import NativeCall

pytestmark = [pytest.mark.real_fluss, pytest.mark.spark, pytest.mark.slow]


def rows(first: int, count: int) -> pa.Table:
    return pa.table({"id": pa.array(range(first, first + count), pa.int64())})


class Commits:
    """Raw prepares and commits for one claimed table with two buckets."""

    def __init__(self, site: RealSite, claim: Claim) -> None:
        self._site, self._claim = site, claim

    def prepare(self, *ends: int) -> str:
        offsets = {TableBucket(self._claim.table_id, None, n): end for n, end in enumerate(ends)}
        tiering = self._site.client.tiering
        return tiering.prepare_lake_snapshot(self._claim.table_id, self._claim.path, offsets)

    def commit(self, snapshot_id: int, path: str, keep: int) -> None:
        """As rounds send it: with our own fields 1001 and 1002, which this server does not know."""
        self._site.client.tiering.commit_lake_snapshot(self._claim, snapshot_id, path, {}, {}, keep)

    def latest(self) -> tuple[int, list[int]]:
        found = self._site.client.admin.lake_snapshot(self._claim.path)
        assert found is not None
        return found.snapshot_id, [end for _, end in sorted(found.offsets.items())]

    def merging_prepare(self, end: int) -> None:
        """Reads the latest offsets file on the server, and fails if it is gone."""
        path = self._claim.path
        table = pb.PbTableOffsets(
            table_id=self._claim.table_id,
            table_path=pb.PbTablePath(database_name=path.database, table_name=path.table),
        )
        table.bucket_offsets.add(bucket_id=0, log_end_offset=end)
        request = pb.PrepareLakeTableSnapshotRequest(
            bucket_offsets=[table], ignore_previous_table_offsets=False
        )
        caller = NativeCall(self._site.fluss.coordinator_port, timeout_s=40)
        try:
            answer = caller.call(apis.PREPARE_LAKE_TABLE_SNAPSHOT, request)
        finally:
            caller.close()
        [entry] = answer.prepare_lake_table_resp
        assert not entry.error_code, entry.error_message
        assert entry.lake_table_offsets_path.endswith(".offsets")


def test_the_same_commit_sent_twice_harms_nothing(site: RealSite) -> None:
    path = site.create("twice", rows(0, 1))
    commits = Commits(site, site.claim(path))
    first = commits.prepare(7, 8)
    for _ in range(2):  # the very first one: nothing to keep
        commits.commit(100, first, keep=-1)
        assert commits.latest() == (100, [7, 8])
    second = commits.prepare(9, 9)
    for keep in (100, 100, 101, -1):  # the previous one, again, its own id, none
        commits.commit(101, second, keep)
        assert commits.latest() == (101, [9, 9])
        commits.merging_prepare(10)
    third = commits.prepare(12, 12)
    for _ in range(2):
        commits.commit(102, third, keep=101)
        assert commits.latest() == (102, [12, 12])
    commits.merging_prepare(13)


def test_epochs_that_a_real_server_does_not_know_are_passed_over(site: RealSite) -> None:
    """It would have to refuse these; so the claim is asked for before each commit."""
    path = site.create("epochs", rows(0, 1))
    claim = site.claim(path)
    older = replace(claim, tiering_epoch=claim.tiering_epoch - 1)
    commits = Commits(site, older)
    commits.commit(100, commits.prepare(1, 1), keep=-1)
    assert commits.latest() == (100, [1, 1])
    assert site.client.tiering.still_claimed(claim)
    assert not site.client.tiering.still_claimed(older)


def assert_rows(site: RealSite, path: TablePath, count: int) -> None:
    seen = site.rows(f"SELECT count(*), count(DISTINCT id), sum(id) FROM lake.{{db}}.{path.table}")
    assert tuple(seen[0]) == (count, count, sum(range(count)))
    registered = site.client.admin.lake_snapshot(path)
    assert registered is not None
    assert sum(registered.offsets.values()) == count


def test_a_round_that_died_between_its_commits_is_registered_by_the_next(
    site: RealSite, arm: Callable[[str], None]
) -> None:
    path = site.create("died", rows(0, 1))
    site.append(path, rows(0, 10))
    site.tier(path)
    site.append(path, rows(10, 5))
    arm("round.fluss_commit.before=raise")
    with pytest.raises(RuntimeError):
        site.tier(path)
    arm("")
    site.append(path, rows(15, 5))
    result = site.tier(path)
    assert (result.recovered_snapshot_id is not None, result.rows) == (True, 5)
    assert_rows(site, path, 20)


@pytest.mark.parametrize("way", ["restore", "retier"])
def test_a_rollback_is_repaired(site: RealSite, way: str) -> None:
    path = site.create("rolled_back", rows(0, 1))
    site.append(path, rows(0, 10))
    first = site.tier(path)
    site.append(path, rows(10, 5))
    site.tier(path)
    name = f"{site.database}.{path.table}"
    site.rows(f"CALL lake.system.rollback_to_snapshot('{name}', {first.lake_snapshot_id})")
    with pytest.raises(LakeRolledBack):
        site.tier(path)
    found = diagnose_table(site.config, path, site.jvm)
    assert [action.name for action in found.actions] == ["restore", "retier"]
    repair(site.config, path, way, wait_ms=60_000, jvm=site.jvm)
    assert diagnose_table(site.config, path, site.jvm).healthy
    site.append(path, rows(15, 5))
    assert site.tier(path).rows == 5
    assert_rows(site, path, 20)
