"""Leases of runs, read from the plans of their rounds, where a cluster lists none."""

from __future__ import annotations

import errno
import os
import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fsspec.implementations.local import LocalFileSystem

from sluice.client import Client, connect
from sluice.client.leases import round_leases
from sluice.client.leases.ids import lease_id
from sluice.client.leases.round_leases import PLANS_MAX, RoundLeases, what_is_unknown
from sluice.config import ClientConfig
from sluice.errors import NetworkError, SluiceError
from sluice.model import Reason, TablePath, TieringStatus
from sluice.rounds.records.dropped_leases import forget_drop
from sluice.rounds.records.json_files import write_json
from sluice.rounds.records.plan_file import plan_uri
from sluice.rounds.records.result import RoundFailure, failure_uri
from sluice.server.cluster import EmbeddedCluster
from tests.support.programs.processes import wait_for
from tests.support.statuses.lease_parts import ManualClock
from tests.support.statuses.planned_rounds import claim_and_plan, plan_round, write_result
from tests.unit.server.kv_support import KvCaller
from tests.unit.server.support import Caller, config

RUN, OTHER = lease_id("west", "lake", "1"), lease_id("west", "lake", "2")
PATHS = [TablePath("shop", name) for name in ("a", "b", "c")]
TIERED = {"table.datalake.enabled": "true"}


class Scene:
    def __init__(self, folder: Path, cluster: EmbeddedCluster, client: Client) -> None:
        self.client, self.work, self.clock = client, folder / "work", ManualClock()
        self.looks = RoundLeases(str(self.work), self.clock)
        caller = Caller(cluster.address)
        for path in PATHS:
            table = KvCaller(caller, path, bucket_count=2, properties=TIERED)
            table.put((1, "text", 1), bucket=0)
            table.put((2, "text", 2), bucket=1)
            cluster.take_kv_snapshots(path)
        caller.transport.close()

    def known(self) -> dict[str, list[str]]:
        self.clock.ms += 60_000
        found = self.looks.known(self.client)
        return {one.lease_id: [str(table.path) for table in one.tables] for one in found.leases}


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    settings = config(tmp_path / "data", listen="grpc://127.0.0.1:0", kv_snapshot_interval_ms=0)
    with EmbeddedCluster(settings) as cluster, connect(cluster.address) as client:
        yield Scene(tmp_path, cluster, client)


def test_what_a_run_holds_is_in_its_plans(scene: Scene) -> None:
    begun_ms = time.time() * 1000 - 1_000
    claim_and_plan(scene.client, scene.work, RUN, PATHS[0])
    claim_and_plan(scene.client, scene.work, RUN, PATHS[1])
    claim_and_plan(scene.client, scene.work, OTHER, PATHS[2])
    found = scene.looks.known(scene.client)
    assert (found.unread, found.error) == (0, None)
    told = {one.lease_id: one for one in found.leases}
    listed = {one.lease_id: one for one in scene.client.leases.all()}
    assert told.keys() == listed.keys() == {RUN, OTHER}
    for name, one in told.items():
        assert (one.buckets, one.held_bytes) == (listed[name].buckets, listed[name].held_bytes)
        assert one.created_ms is not None
        assert begun_ms < one.created_ms < time.time() * 1000 + 1_000
    assert {(str(t.path), t.buckets, t.oldest_snapshot_id) for t in told[RUN].tables} == {
        ("shop.a", 2, 0),
        ("shop.b", 2, 0),
    }


def test_what_has_ended_is_not_told(scene: Scene) -> None:
    plans = [claim_and_plan(scene.client, scene.work, RUN, path) for path in PATHS]
    assert scene.known() == {RUN: ["shop.a", "shop.b", "shop.c"]}
    write_result(scene.work, plans[0])
    assert scene.known() == {RUN: ["shop.b", "shop.c"]}, "a result: it is settled now"
    scene.client.tiering.release(plans[1].claim, Reason.from_text("ended"))
    assert scene.known() == {RUN: ["shop.c"]}, "its end is recorded"
    failed = RoundFailure(Reason.from_text("first try"))
    uri = failure_uri(plan_uri(str(scene.work), RUN, plans[2].claim), "1")
    write_json(uri, failed.to_json())
    assert scene.known() == {RUN: ["shop.c"]}, "a retry reads the same snapshots"
    write_result(scene.work, plans[2])
    assert scene.known() == {}


def test_what_somebody_dropped_is_not_told(scene: Scene) -> None:
    plans = [claim_and_plan(scene.client, scene.work, RUN, path) for path in PATHS[:2]]
    claim_and_plan(scene.client, scene.work, OTHER, PATHS[2])
    dropped = scene.looks.drop(scene.client, RUN)
    assert dropped == f"lease {RUN} is dropped, if it existed: this cluster lists no leases"
    assert [one.lease_id for one in scene.client.leases.all()] == [OTHER]
    at_once = scene.looks.known(scene.client)
    assert [one.lease_id for one in at_once.leases] == [OTHER]
    assert RoundLeases(str(scene.work)).known(scene.client).leases == at_once.leases
    again = RoundLeases(str(scene.work)).drop(scene.client, RUN)
    assert again == f"lease {RUN} was dropped before. This cluster does not tell whether it existed"
    assert scene.known() == {OTHER: ["shop.c"]}
    # A plan that comes later has a lease again.
    plan_round(scene.client, scene.work, RUN, plans[1].claim)
    assert scene.known() == {RUN: ["shop.b"], OTHER: ["shop.c"]}
    forget_drop(str(scene.work), RUN)
    assert scene.known() == {RUN: ["shop.a", "shop.b"], OTHER: ["shop.c"]}
    forget_drop(str(scene.work), RUN)


def is_full(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_drop_that_leaves_no_note_stays_in_the_list(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As somebody who was killed after the drop: dropping again is harmless."""
    claim_and_plan(scene.client, scene.work, RUN, PATHS[0])
    existed = f"lease {RUN} is dropped, if it existed: this cluster lists no leases"
    with monkeypatch.context() as patch:
        patch.setattr(LocalFileSystem, "pipe_file", is_full)
        assert scene.looks.drop(scene.client, RUN) == (
            f"{existed}. It stays in lists until its rounds end, because the work folder does not"
            " take a note of it: OSError: [Errno 28] No space left on device"
        )
    assert scene.client.leases.all() == []
    assert scene.known() == {RUN: ["shop.a"]}
    assert scene.looks.drop(scene.client, RUN) == existed
    assert scene.known() == {}


@pytest.mark.parametrize("name", ["job-7", "..", "sluice-../../x-" + RUN[-36:], OTHER])
def test_a_drop_writes_only_beside_plans(scene: Scene, name: str) -> None:
    claim_and_plan(scene.client, scene.work, RUN, PATHS[0])
    before = sorted(scene.work.parent.rglob("*.json"))
    assert "if it existed" in scene.looks.drop(scene.client, name)
    assert sorted(scene.work.parent.rglob("*.json")) == before


def test_a_plan_without_snapshots_holds_nothing(scene: Scene) -> None:
    claim_and_plan(scene.client, scene.work, RUN, PATHS[0])
    claim = scene.client.tiering.claim([PATHS[1]], RUN)
    assert claim is not None
    content = {"version": 1, "table_id": claim.table_id, "table": "shop.b", "lease_id": RUN}
    content |= {"tiering_epoch": claim.tiering_epoch, "coordinator_epoch": 0, "bootstrap": "x"}
    write_json(plan_uri(str(scene.work), RUN, claim), content)
    assert scene.known() == {RUN: ["shop.a"]}


def test_a_plan_that_is_not_there_or_not_readable_may_hold_its_table(scene: Scene) -> None:
    plans = [claim_and_plan(scene.client, scene.work, RUN, path) for path in PATHS]
    shutil.rmtree(Path(plan_uri(str(scene.work), RUN, plans[0].claim)).parent)
    Path(plan_uri(str(scene.work), RUN, plans[1].claim)).write_text("{")
    found = scene.looks.known(scene.client)
    [lease] = found.leases
    known = {str(one.path): (one.buckets, one.held_bytes) for one in lease.tables}
    assert known["shop.a"] == known["shop.b"] == (None, None)
    assert known["shop.c"][0] == 2
    assert lease.buckets is None
    assert found.unread == 1
    assert found.error is not None
    assert f"Plan files of 1 table are not read: {found.error}." in what_is_unknown(found, "x")
    damaged = plans[1].to_json() | {"snapshots": ["0", "1"]}
    write_json(plan_uri(str(scene.work), RUN, plans[1].claim), damaged)
    assert sorted(scene.known()[RUN]) == ["shop.a", "shop.b", "shop.c"]


def test_an_error_of_a_file_system_hides_no_lease(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim_and_plan(scene.client, scene.work, RUN, PATHS[0])

    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("not now")  # some have errors of their own

    monkeypatch.setattr(LocalFileSystem, "ls", refuse)
    found = scene.looks.known(scene.client)
    assert [one.lease_id for one in found.leases] == [RUN]
    assert (found.unread, found.error) == (1, "RuntimeError: not now")
    assert scene.looks.drop(scene.client, RUN).endswith("a note of it: RuntimeError: not now")


def test_a_plan_is_read_again_only_if_it_has_changed(scene: Scene) -> None:
    plan = claim_and_plan(scene.client, scene.work, RUN, PATHS[0])
    path = Path(plan_uri(str(scene.work), RUN, plan.claim))
    assert scene.known() == {RUN: ["shop.a"]}
    before = path.stat()
    path.write_text(" " * before.st_size)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert scene.known() == {RUN: ["shop.a"]}
    write_json(str(path), replace(plan, snapshots=()).to_json())  # as a second try of acquire
    assert scene.known() == {}


def test_without_a_work_folder_only_tables_are_known(scene: Scene) -> None:
    claim_and_plan(scene.client, scene.work, RUN, PATHS[0])
    found = RoundLeases().known(scene.client)
    [lease] = found.leases
    assert (lease.lease_id, lease.buckets, lease.held_bytes) == (RUN, None, None)
    assert "(work_uri)" in what_is_unknown(found, None)


def test_those_who_wait_for_a_cluster_that_is_away_wait_once() -> None:
    clock = ManualClock()
    times = {"request_timeout_ms": 200, "connect_timeout_ms": 200, "retry_timeout_ms": 0}
    found: list[SluiceError] = []
    with Client(ClientConfig("grpc://127.0.0.1:1", **times)) as client:
        looks = RoundLeases(clock=clock)
        for wait_ms in (0, 4_999, 1):
            clock.ms += wait_ms
            with pytest.raises(NetworkError) as failure:
                looks.known(client)
            found.append(failure.value)
    assert found[0] is found[1]
    assert found[1] is not found[2]


def test_a_cluster_that_goes_away_has_leases_still() -> None:
    """The statuses were read before; whether the table has a primary key cannot be read."""
    times = {"request_timeout_ms": 200, "connect_timeout_ms": 200, "retry_timeout_ms": 0}
    status = TieringStatus(PATHS[0], 1, "Tiering", 1, claimed_by=RUN)
    away = ClientConfig("grpc://127.0.0.1:1", **times)
    with Client(away) as client, pytest.raises(NetworkError):
        RoundLeases().known(client, [status])


def test_a_drop_that_waits_for_the_storage_counts_as_waiting(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(round_leases, "PLANS_WAIT_S", 0.1)
    claim_and_plan(scene.client, scene.work, RUN, PATHS[0])
    goes_on = threading.Event()
    with monkeypatch.context() as patch:
        patch.setattr(LocalFileSystem, "ls", lambda *_, **__: goes_on.wait(60) and [])
        assert "it did not answer within 0.1 s" in scene.looks.drop(scene.client, RUN)
        known = scene.looks.known(scene.client)
        assert known.error == "earlier reads of them still wait for the storage"
        goes_on.set()


def test_many_old_runs_cost_nothing(scene: Scene) -> None:
    """Only plans of rounds in progress are read, whatever else is in the work folder."""
    claim_and_plan(scene.client, scene.work, RUN, PATHS[0])
    for number in range(2_000):
        old = scene.work / lease_id("west", "lake", f"old{number}") / f"{number}-1"
        old.mkdir(parents=True)
        (old / "plan.json").write_text("{")
    started = time.thread_time()
    assert scene.known() == {RUN: ["shop.a"]}
    assert time.thread_time() - started < 1
    assert PLANS_MAX == 5_000


def test_a_storage_that_hangs_is_asked_once(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(round_leases, "PLANS_WAIT_S", 0.3)
    files = []
    for lease, path in ((RUN, PATHS[0]), (OTHER, PATHS[1])):
        plan = claim_and_plan(scene.client, scene.work, lease, path)
        files.append(Path(plan_uri(str(scene.work), lease, plan.claim)))
    kept = [file.read_text() for file in files]
    for file in files:
        file.unlink()
        os.mkfifo(file)  # who opens it waits for somebody who writes
    before = set(threading.enumerate())
    try:
        for _ in range(12):
            scene.clock.ms += 60_000
            known = scene.looks.known(scene.client)
            assert (known.unread, len(known.leases)) == (2, 2)
        new = set(threading.enumerate()) - before
        assert len([one for one in new if one.name.startswith("sluice-plan")]) <= 8
        assert "earlier reads of them still wait" in what_is_unknown(known, "work")
    finally:
        for file in files:
            os.close(os.open(file, os.O_WRONLY))
    for file, text in zip(files, kept, strict=True):
        file.unlink()
        file.write_text(text)

    def are_read() -> bool:
        scene.clock.ms += 60_000
        return scene.looks.known(scene.client).unread == 0

    wait_for("the plans to be read again", are_read)
