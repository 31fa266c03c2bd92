"""Leases on a real Fluss, whose KV snapshots really go: it confirms whatever it is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pytest
from click.testing import CliRunner

from sluice.cli.main import cli
from sluice.client import Client, connect
from sluice.client.leases.calls import LeaseClient
from sluice.client.leases.snapshot_lease import bucket_selections
from sluice.errors import KvSnapshotNotExist, UnsupportedVersion
from sluice.formats.keys.keys import encode_key
from sluice.formats.kv.kv_batch import build_kv_batch
from sluice.formats.rows.arrays import encode_rows
from sluice.model import BucketSnapshot, Column, Schema, TableBucket, TablePath
from sluice.model.types import BIGINT, STRING
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from tests.real_fluss.raw import RawCluster
from tests.support.fluss.native_call import NativeCall
from tests.support.fluss.real_fluss import RealFluss
from tests.support.programs.processes import wait_for

pytestmark = [pytest.mark.real_fluss, pytest.mark.slow]

KEYED = Schema(
    (Column("id", replace(BIGINT, nullable=False), 0), Column("text", STRING, 1)), ("id",), 1
)
PATH = TablePath("leases", "kv")
CONF = {"kv.snapshot.interval": "300ms", "kv.snapshot.num-retained": "1"}


class Table:
    """One bucket; ``newer`` puts a row and waits for the snapshot that holds it."""

    def __init__(self, fluss: RealFluss, client: Client) -> None:
        self.raw = RawCluster(fluss, PATH.database)
        self.coordinator = NativeCall(fluss.coordinator_port, timeout_s=40)
        self.client = client
        self.bucket = TableBucket(self.raw.create(PATH.table, KEYED), None, 0)
        self.rows = 0

    def newest(self) -> BucketSnapshot | None:
        return self.client.leases.latest(PATH).snapshots.get(self.bucket)

    def newer(self) -> BucketSnapshot:
        self.rows += 1
        batch = pa.record_batch({"id": pa.array([self.rows], pa.int64()), "text": ["x"]})
        types = [column.data_type for column in KEYED.columns]
        keys = encode_key(batch, KEYED.primary_key, KEYED, None)
        rows = encode_rows(batch, types, "COMPACTED")
        self.raw.put(self.bucket.table_id, build_kv_batch(keys, rows, 1))

        def is_there() -> bool:
            found = self.newest()
            return found is not None and found.log_offset >= self.rows

        wait_for("a KV snapshot", is_there)
        found = self.newest()
        assert found is not None
        return found

    def files(self, snapshot: BucketSnapshot) -> list[Path]:
        request = pb.GetKvSnapshotMetadataRequest(
            table_id=self.bucket.table_id, bucket_id=0, snapshot_id=snapshot.snapshot_id
        )
        reply = self.coordinator.call(apis.GET_KV_SNAPSHOT_METADATA, request)
        return [Path(unquote(urlsplit(f.remote_path).path)) for f in reply.snapshot_files]

    def close(self) -> None:
        self.coordinator.close()
        self.raw.close()


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Table]:
    with (
        RealFluss(tmp_path_factory.mktemp("fluss"), conf=CONF) as fluss,
        connect(fluss.bootstrap) as client,
    ):
        made = Table(fluss, client)
        yield made
        made.close()


def is_gone(table: Table, snapshot: BucketSnapshot) -> bool:
    try:
        table.files(snapshot)
    except KvSnapshotNotExist:
        return True
    return False


def test_a_leased_snapshot_stays_and_goes_when_it_is_dropped(table: Table) -> None:
    first = table.newer()
    with table.client.snapshot_lease("job", PATH, duration_ms=60_000) as lease:
        assert lease.is_held
        held = lease.snapshots[table.bucket]
        assert held.snapshot_id >= first.snapshot_id
        files = table.files(held)
        for _ in range(4):
            table.newer()
        assert table.files(held) == files
        assert all(file.is_file() for file in files)
        lease.check()

    def goes() -> bool:
        table.newer()  # deletion comes with the next snapshots
        return is_gone(table, held)

    wait_for("the deletion of what is no longer leased", goes)


def test_what_is_gone_is_found_though_fluss_confirms_it(table: Table) -> None:
    gone = table.newer()

    def goes() -> bool:
        table.newer()
        return is_gone(table, gone)

    wait_for("the deletion of an old snapshot", goes)
    assert table.client.leases.acquire("liar", 60_000, [gone]) == {table.bucket}

    class Late(LeaseClient):
        """Offers what is gone at its first look."""

        looks = 0

        def latest(self, *arguments, **more):  # type: ignore[no-untyped-def]
            found = super().latest(*arguments, **more)
            self.looks += 1
            return replace(found, snapshots={table.bucket: gone}) if self.looks == 1 else found

    leases = Late(table.client._connection)
    parts = bucket_selections(table.client.admin, table.client.admin.table_info(PATH))
    found = leases.acquire_latest("late", parts, 60_000)
    assert leases.looks >= 2
    assert all(file.is_file() for file in table.files(found.snapshots[table.bucket]))
    table.client.leases.renew("late", 60_000)
    table.client.leases.release("late", [table.bucket])
    for lease_id in ("late", "liar", "never-was"):
        table.client.leases.drop(lease_id)


def test_a_real_fluss_does_not_list_leases(table: Table) -> None:
    with pytest.raises(UnsupportedVersion):
        table.client.leases.all()
    ran = CliRunner().invoke(cli, ["leases", "--bootstrap", table.client.config.bootstrap])
    assert ran.exit_code == 0
    assert ran.stdout == "no round in progress can have a lease\n"
    assert ran.stderr.startswith("note: This cluster lists no leases. Shown are those that")
