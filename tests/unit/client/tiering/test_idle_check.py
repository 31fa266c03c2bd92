"""Which claimed tables are idle, and how many rows wait of the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from random import Random

import pyarrow as pa
import pytest

from sluice.client import Client
from sluice.client.admin.admin import Admin
from sluice.client.tiering import idle
from sluice.client.tiering.idle import UNKNOWN, IdleCheck, Waiting
from sluice.errors import LogBehindLake, RequestTimeOut
from sluice.model import (
    Claim,
    Column,
    Reason,
    Schema,
    TableBucket,
    TableDescriptor,
    TableInfo,
    TablePath,
    TieringRound,
)
from sluice.model import types as t
from sluice.rounds.plan.plan import make_plan
from sluice.statuses.full_rounds import FULL_ROUND_MS
from tests.unit.client.conftest import Cluster, WallClock

BUCKETS = 2
FRESHNESS_MS = 60_000
FRESH = {"table.datalake.enabled": "true", "table.datalake.freshness": "1min"}
DONE = TieringRound(outcome="committed", rows_written=1)


class SlowClock:
    """Ten seconds pass from each reading to the next one."""

    reads = 0

    def monotonic(self) -> float:
        self.reads += 1
        return self.reads * 10.0


@dataclass
class Shop:
    """Lake tables, their rows, and rounds that only report."""

    client: Client
    clock: WallClock
    snapshots: int = 0

    def create(
        self, name: str, *, keyed: bool = False, days: bool = False, **options: str
    ) -> TablePath:
        columns = (Column("id", t.BIGINT.not_null(), 0), Column("day", t.STRING.not_null(), 1))
        key = (("id", "day") if days else ("id",)) if keyed else ()
        path = TablePath("shop", name)
        descriptor = TableDescriptor(
            Schema(columns, key, 1),
            partition_keys=("day",) if days else (),
            bucket_count=BUCKETS,
            properties={**FRESH, **options},
        )
        self.client.admin.create_table(path, descriptor)
        return path

    def write(self, path: TablePath, ids: range, day: str = "a") -> None:
        rows = pa.table({"id": pa.array(ids, pa.int64()), "day": pa.array([day] * len(ids))})
        info = self.client.admin.table_info(path)
        if info.has_primary_key:
            with self.client.kv_writer(path) as writer:
                writer.upsert(rows)
        else:
            with self.client.log_writer(path) as writer:
                writer.write(rows)

    def claim(self, *paths: TablePath) -> list[Claim]:
        self.clock.ms += FRESHNESS_MS
        found = {}
        with self.client.tiering.claim_session(paths) as session:
            for claim in session.take(len(paths)):
                found[claim.path] = claim
        return [found[path] for path in paths]

    def ends(self, path: TablePath) -> dict[TableBucket, int]:
        info, admin = self.client.admin.table_info(path), self.client.admin
        ids: list[int | None] = [None]
        if info.is_partitioned:
            ids = [each.partition_id for each in admin.partitions_of(info)]
        return {
            TableBucket(info.table_id, one, bucket): end
            for one in ids
            for bucket, end in admin.list_offsets(path, None, one).items()
        }

    def register(self, claim: Claim, offsets: Mapping[TableBucket, int] | None = None) -> int:
        """As the two commits of a round leave it. The logs' ends, if no offsets are given."""
        self.snapshots += 1
        offsets = self.ends(claim.path) if offsets is None else offsets
        tiering = self.client.tiering
        file = tiering.prepare_lake_snapshot(claim.table_id, claim.path, offsets)
        tiering.commit_lake_snapshot(claim, self.snapshots, file, offsets, {}, -1)
        return self.snapshots

    def tier(self, *paths: TablePath) -> None:
        """Rounds that end well."""
        claims = self.claim(*paths)
        for claim in claims:
            self.register(claim)
        self.clock.ms += 1_000
        self.client.tiering.finished_many([(claim, DONE) for claim in claims])

    def check(self, *claims: Claim) -> list[Waiting]:
        with IdleCheck(self.client.config, self.client._recorded, self.clock) as check:
            found = check.check(claims)
        assert [*found] == [*claims]
        return [*found.values()]

    def end(self, *claims: Claim) -> None:
        self.client.tiering.finished_many([(claim, DONE) for claim in claims])


@pytest.fixture
def shop(cluster: Cluster, client: Client) -> Shop:
    return Shop(client, cluster.clock)


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("days", [False, True])
def test_a_table_is_idle_from_its_round_to_its_next_row(
    shop: Shop, keyed: bool, days: bool
) -> None:
    path = shop.create("orders", keyed=keyed, days=days)
    if days:
        shop.client.admin.create_partition(path, {"day": "a"})
    [claim] = shop.claim(path)
    [found] = shop.check(claim)
    assert (found.rows, found.is_idle) == (0, False), "its first round makes the lake table"
    assert found.is_never_tiered
    snapshot = shop.register(claim)
    shop.end(claim)

    [claim] = shop.claim(path)
    [found] = shop.check(claim)
    assert (found.rows, found.is_idle, found.lake_snapshot_id) == (0, True, snapshot)
    assert found.info is not None
    assert found.info.table_id == claim.table_id
    assert not found.is_never_tiered
    assert not found.needs_kv_snapshots
    shop.write(path, range(5))
    [found] = shop.check(claim)
    assert (found.rows, found.is_idle) == (5, False)


def test_partitions_count_while_they_exist(shop: Shop) -> None:
    path, admin = shop.create("orders", days=True), shop.client.admin
    shop.tier(path)
    [claim] = shop.claim(path)
    assert [w.is_idle for w in shop.check(claim)] == [True], "it has no partition yet"
    admin.create_partition(path, {"day": "a"})
    assert [w.is_idle for w in shop.check(claim)] == [True], "there is no row in it"
    shop.write(path, range(4), day="a")
    assert [w.rows for w in shop.check(claim)] == [4]
    admin.create_partition(path, {"day": "b"})
    shop.write(path, range(3), day="b")
    assert [w.rows for w in shop.check(claim)] == [7]
    admin.drop_partition(path, {"day": "a"})
    assert [w.rows for w in shop.check(claim)] == [3], "a round skips what was dropped"
    shop.register(claim)
    assert [(w.rows, w.is_idle) for w in shop.check(claim)] == [(0, True)]


def test_a_table_that_was_dropped_is_not_idle(shop: Shop) -> None:
    again, gone, other = (shop.create(name) for name in ("again", "gone", "other"))
    shop.tier(again, gone, other)
    claims = shop.claim(again, gone, other)
    for path in (again, gone):
        shop.client.admin.drop_table(path)
    shop.create("again")
    assert [w.is_idle for w in shop.check(*claims)] == [False, False, True], "each by itself"
    assert shop.check(*claims)[:2] == [UNKNOWN, UNKNOWN]


def test_a_table_that_no_longer_has_the_option_is_not_idle(shop: Shop) -> None:
    path = shop.create("orders")
    shop.tier(path)
    [claim] = shop.claim(path)
    shop.client.admin.set_options(path, {"table.datalake.enabled": "false"})
    assert [w.is_idle for w in shop.check(claim)] == [False]


def test_a_table_that_a_round_refuses_is_not_idle(shop: Shop) -> None:
    path = shop.create("orders", **{"table.datalake.historical-partition.enabled": "true"})
    shop.tier(path)
    shop.clock.ms += FRESHNESS_MS
    shop.tier(path)
    [claim] = shop.claim(path)
    assert shop.check(claim) == [UNKNOWN]


def test_a_column_that_the_lake_lacks_gets_a_round(shop: Shop) -> None:
    path = shop.create("orders")
    shop.tier(path)
    shop.clock.ms += 1_000
    shop.client.admin.add_columns(path, [Column("note", t.STRING, -1)])
    [claim] = shop.claim(path)
    assert [(w.rows, w.is_idle) for w in shop.check(claim)] == [(0, False)]
    shop.end(claim)
    [claim] = shop.claim(path)
    assert [w.is_idle for w in shop.check(claim)] == [True]


def test_a_log_behind_its_lake_is_not_idle(shop: Shop) -> None:
    path = shop.create("orders")
    shop.write(path, range(5))
    [claim] = shop.claim(path)
    shop.register(claim, {bucket: end + 1 for bucket, end in shop.ends(path).items()})
    shop.end(claim)
    [claim] = shop.claim(path)
    assert shop.check(claim) == [UNKNOWN]
    info = shop.client.admin.table_info(path)
    with pytest.raises(LogBehindLake):
        make_plan(info, shop.client.tiering, None, shop.client.admin.lake_snapshot(path))


def test_a_failure_is_followed_by_a_complete_round(shop: Shop) -> None:
    path = shop.create("orders")
    shop.tier(path)
    [claim] = shop.claim(path)
    shop.client.tiering.failed(claim, Reason.from_text("the driver was lost"))
    shop.clock.ms += FRESHNESS_MS
    [claim] = shop.claim(path)
    assert [(w.rows, w.is_idle) for w in shop.check(claim)] == [(0, False)]
    shop.end(claim)
    [claim] = shop.claim(path)
    assert [w.is_idle for w in shop.check(claim)] == [True]


def test_a_complete_round_follows_after_a_bounded_time(shop: Shop) -> None:
    path = shop.create("orders")
    shop.tier(path)
    complete, started_ms = [], shop.clock.ms
    while shop.clock.ms < started_ms + 3 * FULL_ROUND_MS:
        shop.clock.ms += 20 * 60_000
        [claim] = shop.claim(path)
        [found] = shop.check(claim)
        if not found.is_idle:
            complete.append(shop.clock.ms)
        shop.end(claim)
    assert len(complete) == 3
    assert all(b - a + 22 * 60_000 >= FULL_ROUND_MS for a, b in pairwise(complete))


def test_what_waits_is_what_a_round_would_copy(shop: Shop) -> None:
    """Of tables in random conditions, some of them tiered in part."""
    random = Random(3)
    paths = []
    for number in range(12):
        keyed, days = random.random() < 0.5, random.random() < 0.5
        path = shop.create(f"t{number}", keyed=keyed, days=days)
        paths.append(path)
        for day in ("a", "b")[: 1 + days]:
            if days:
                shop.client.admin.create_partition(path, {"day": day})
            shop.write(path, range(random.randrange(6)), day)
    claims = shop.claim(*paths)
    for claim in claims:
        ends = shop.ends(claim.path)
        offsets = {b: random.randint(0, end) for b, end in ends.items() if random.random() < 0.6}
        if random.random() < 0.8 and offsets:
            shop.register(claim, offsets)
    found = shop.check(*claims)
    for claim, waiting in zip(claims, found, strict=True):
        info = shop.client.admin.table_info(claim.path)
        registered = shop.client.admin.lake_snapshot(claim.path)
        assert waiting.rows == make_plan(info, shop.client.tiering, None, registered).offsets
        known = registered.offsets if registered else {}
        assert waiting.is_never_tiered == any(b not in known for b in shop.ends(claim.path))
    assert len({waiting.rows for waiting in found}) > 4


def test_rows_that_expired_before_the_first_round_do_not_wait(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log table whose rows were deleted by time, before any round copied them."""
    path = shop.create("orders")
    shop.write(path, range(6))
    [claim] = shop.claim(path)
    assert [w.rows for w in shop.check(claim)] == [6]
    list_offsets: Callable[..., dict[int, int]] = Admin.list_offsets

    def expired(admin: Admin, *arguments: object, **more: object) -> dict[int, int]:
        return list_offsets(admin, *arguments[:3], "latest", **more)

    monkeypatch.setattr(Admin, "list_offsets", expired)
    assert [w.rows for w in shop.check(claim)] == [0]
    info = shop.client.admin.table_info(path)
    assert make_plan(info, shop.client.tiering, None, None).splits == ()


def test_a_server_that_does_not_answer_is_waited_for_once(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a thousand tables of a dead server would cost an hour."""
    monkeypatch.setattr(idle, "THREADS", 1)
    paths = [shop.create(f"t{number}") for number in range(5)]
    shop.tier(*paths)
    claims = shop.claim(*paths)
    asked = []

    def silent(admin: Admin, path: TablePath, buckets: list[int], *_: object, **__: int) -> None:
        info = admin.table_info(path)
        leader = admin._connection.known_leader(TableBucket(info.table_id, None, buckets[0]))
        asked.append(path)
        raise RequestTimeOut("no answer", server=str(leader))

    monkeypatch.setattr(Admin, "list_offsets", silent)
    assert shop.check(*claims) == [UNKNOWN] * 5
    assert asked == paths[:1]


def test_a_cluster_that_is_away_is_not_idle(
    shop: Shop, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle, "CALL_MS", 300)
    paths = [shop.create(name) for name in ("a", "b")]
    shop.tier(*paths)
    claims = shop.claim(*paths)
    cluster.stop()
    assert shop.check(*claims) == [UNKNOWN] * 2


def test_after_a_while_the_other_tables_count_as_unknown(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = shop.create("orders")
    shop.tier(path)
    [claim] = shop.claim(path)
    monkeypatch.setattr(idle, "PATIENCE_S", -1.0)
    assert shop.check(claim) == [UNKNOWN]


def test_a_table_with_many_partitions_is_not_read_for_longer_than_the_check_may_take(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each answer arrives in time, so no time limit of a call ends this."""
    path, admin = shop.create("orders", days=True), shop.client.admin
    for day in "abcdef":
        admin.create_partition(path, {"day": day})
    [claim] = shop.claim(path)
    shop.register(claim)
    clock = SlowClock()
    monkeypatch.setattr(idle, "time", clock)
    assert shop.check(claim) == [UNKNOWN]
    assert clock.reads <= 5


def test_nothing_that_fails_fails_the_caller(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [shop.create(name) for name in ("a", "b", "c")]
    shop.tier(*paths)
    claims = shop.claim(*paths)
    offsets: Callable[..., dict[int, int]] = IdleCheck._offsets

    def broken(self: IdleCheck, info: TableInfo, *more: object) -> dict[int, int]:
        if info.path == paths[1]:
            raise RuntimeError("no such thing was foreseen")
        return offsets(self, info, *more)

    monkeypatch.setattr(IdleCheck, "_offsets", broken)
    found = shop.check(*claims)
    assert [w.is_idle for w in found] == [True, False, True]
    assert found[1] == UNKNOWN
