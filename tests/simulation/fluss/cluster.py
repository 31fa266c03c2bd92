"""The simulated Fluss cluster: a catalog, logs, lake snapshots and a coordinator.

The server's own :class:`~sluice.statuses.TieringStatuses` decides the state and epoch of each
table. Logs and offsets files are those of
:class:`~tests.support.models.memory_cluster.MemoryCluster`. Registration follows one of two rules.
The embedded server refuses stale rounds and offsets that go back. An Apache Fluss cluster accepts
every commit (docs/fluss/known-problems.md#unfenced-lake-commits).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pyarrow as pa

from sluice.clock import Clock, monotonic_ms
from sluice.errors import (
    CorruptMessage,
    FencedTieringEpoch,
    InvalidUpdateVersion,
    TableNotExist,
)
from sluice.iceberg_rules.layout import Layout
from sluice.model import (
    LakeSnapshotInfo,
    Partition,
    TableBucket,
    TableInfo,
    TablePath,
    TieringStatus,
)
from sluice.model import types as t
from sluice.model.durations import duration_ms
from sluice.model.tiering import kept_values
from sluice.server.coordinator.tiering.heartbeats import answer_heartbeat, made_safe
from sluice.statuses import BACKOFF_MS, FRESHNESS, State, TableStatus, TieringStatuses
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.error_codes import errors_into
from sluice.wire.messages.status_messages import status_to_message
from sluice.wire.messages.table_paths import bucket_in, path_of
from tests.support.models.memory_cluster import MemoryCluster, RegisteredSnapshot
from tests.support.models.tables import table_info

TIMEOUT_MS = 120_000
"""The coordinator revokes a claim that had no heartbeat for this long."""
_ROWS = pa.RecordBatch.from_pydict({"a": pa.array(range(16), pa.int64())})


class FlussTable(MemoryCluster):
    """One table id: its logs and its list of lake snapshots."""

    def __init__(self, info: TableInfo) -> None:
        super().__init__(info)
        self.described = info
        self.acknowledged: dict[TableBucket, list[int]] = {}
        """Offsets of all rows ever appended, in order, including rows that were deleted since."""
        self.lake_ends: dict[TableBucket, int] = {}
        """The highest offset ever registered of each bucket: leaders never lower it."""

    def buckets(self) -> list[TableBucket]:
        """The buckets that exist now."""
        ids = [*self.partitions_by_id]
        partitions: Sequence[int | None] = ids if self.described.is_partitioned else (None,)
        numbers = range(self.described.bucket_count)
        return [TableBucket(self.described.table_id, p, n) for p in partitions for n in numbers]

    def add(self, bucket: TableBucket, rows: int, now_ms: int) -> None:
        """Appends one batch; an empty one uses one offset."""
        base = self.end(bucket)
        self.append(bucket, _ROWS.slice(0, rows), now_ms)
        self.acknowledged.setdefault(bucket, []).extend(range(base, base + rows))

    def end(self, bucket: TableBucket) -> int:
        return self._end(bucket)

    def latest(self) -> RegisteredSnapshot | None:
        return self.registered[-1] if self.registered else None

    def latest_registered(self) -> LakeSnapshotInfo | None:
        """The latest registered lake snapshot with its offsets."""
        return self.lake_snapshot(self.described.path)


class SimCluster:
    """All tables, and the coordinator's handlers of client requests."""

    def __init__(
        self,
        clock: Clock,
        *,
        fenced: bool,
        note: Callable[[str], None],
        on_registered: Callable[[FlussTable, int, LakeSnapshotInfo | None], None],
        new_table: Callable[[TableInfo], FlussTable] = FlussTable,
        primary_key: bool = False,
        layout: Layout = Layout.CLEAN,
    ) -> None:
        """:param fenced: registers by the embedded server's rules; else by Apache Fluss's.
        :param note: receives the name of each event.
        :param on_registered: receives each registration: table, snapshot id, previous snapshot.
        :param new_table: makes a table. :param primary_key: whether tables have one.
        :param layout: of the lake tables that its version makes.
        """
        self._clock = clock
        self.fenced, self.layout = fenced, layout
        self._note = note
        self._on_registered = on_registered
        self._new_table, self._primary_key = new_table, primary_key
        self.tables: dict[TablePath, FlussTable] = {}
        self._ids = 0
        self._stored: dict[int, TableStatus] = {}
        # Apache Fluss assigns a failed table again at once, without back-off.
        self._backoff_ms = BACKOFF_MS if fenced else 0
        self.statuses = TieringStatuses(1, TIMEOUT_MS, self._backoff_ms)
        self.handlers: dict[str, Callable[[Any], Any]] = {
            "LakeTieringHeartbeat": self.heartbeat,
            "PrepareLakeTableSnapshot": self.prepare,
            "CommitLakeTableSnapshot": self.commit,
            "ListTieringStatuses": self.list_statuses,
        }

    # ---- what happens to it ----

    def next_id(self) -> int:
        """A new id of a table or partition; ids are never reused."""
        self._ids += 1
        return self._ids

    def create_table(
        self, path: TablePath, buckets: int, freshness: str, *, partitioned: bool
    ) -> FlussTable:
        """Creates a tiered table, and drops the one of that name if it exists."""
        self.drop_table(path)
        columns = {"a": t.BIGINT, **({"day": t.STRING} if partitioned else {})}
        days = ("day",) if partitioned else ()
        if self._primary_key:
            columns = {name: kind.not_null() for name, kind in columns.items()} | {"n": t.BIGINT}
        info = table_info(
            columns,
            path=path,
            table_id=self.next_id(),
            partition_keys=days,
            primary_key=("a", *days) if self._primary_key else (),
            bucket_keys=("a",) if self._primary_key else (),
            buckets=buckets,
            properties={FRESHNESS: freshness},
        )
        table = self.tables[path] = self._new_table(info)
        now_ms = self._clock.now_ms()
        freshness_ms = duration_ms(FRESHNESS, freshness)
        new = TableStatus(info.table_id, path, freshness_ms, now_ms)
        with self._change():
            self.statuses.enable(new, now_ms, at_once=self.fenced)
        return table

    def drop_table(self, path: TablePath) -> None:
        """Drops a table, if it exists."""
        old = self.tables.pop(path, None)
        if old is not None:
            self.statuses.forget(old.described.table_id)
            self._stored.pop(old.described.table_id, None)

    def restart(self) -> None:
        """Restarts the coordinator: its epoch rises, and stored tiering epochs stay.

        Apache Fluss stores no tiering epochs and starts again from 1.
        """
        epoch = self.statuses.coordinator_epoch + 1
        self.statuses = TieringStatuses(epoch, TIMEOUT_MS, self._backoff_ms)
        with self._change():
            for status in self._stored.values():
                epoch = status.tiering_epoch if self.fenced else 0
                self.statuses.restore(replace(status, tiering_epoch=epoch))

    def retry(self, path: TablePath) -> None:
        """Clears the failures of a table, which makes it due if it was waiting."""
        described = self.table(path).described
        if self.statuses.get(described.table_id) is not None:
            with self._change():
                self.statuses.retry(described.table_id, self._clock.now_ms())

    def request_compaction(self, path: TablePath) -> None:
        """Requests a compaction from the next round of a table; Apache Fluss keeps no request."""
        described = self.table(path).described
        if self.fenced and self.statuses.get(described.table_id) is not None:
            with self._change():
                self.statuses.request_compaction(described.table_id, self._clock.now_ms())

    def requested(self, path: TablePath) -> int | None:
        """When the open request for a compaction of a table was made."""
        status = self.statuses.get(self.table(path).described.table_id)
        return None if status is None else status.compaction_requested_ms

    # ---- what anybody may ask ----

    def table(self, path: TablePath) -> FlussTable:
        found = self.tables.get(path)
        if found is None:
            raise TableNotExist(f"table {path} does not exist")
        return found

    def offsets(
        self,
        path: TablePath,
        buckets: Sequence[int],
        partition_id: int | None,
        kind: str,
        table_id: int,
    ) -> dict[int, int]:
        """First (``earliest``) or next (``latest``) offset of each bucket."""
        table = self._by_id(table_id)
        ask = table.earliest_offsets if kind == "earliest" else table.latest_offsets
        return ask(path, table_id, partition_id, buckets)

    def partitions(self, path: TablePath) -> list[Partition]:
        return list(self.table(path).partitions_by_id.values())

    def lake_snapshot(self, path: TablePath, snapshot_id: int | None) -> LakeSnapshotInfo | None:
        table = self.table(path)
        if snapshot_id is None:
            return table.latest_registered()
        for entry in reversed(table.registered):
            if entry.snapshot_id == snapshot_id:
                offsets = table.offsets_files[entry.offsets_path]
                return LakeSnapshotInfo(table.described.table_id, snapshot_id, dict(offsets))
        return None

    # ---- the coordinator's calls ----

    def heartbeat(self, request: pb.LakeTieringHeartbeatRequest) -> pb.LakeTieringHeartbeatResponse:
        """Answers by the embedded server's code; Apache Fluss ignores released tables."""
        known = made_safe(request)
        if not self.fenced:
            known.ClearField("released_tables")
        with self._change():
            times = self._times()
            return answer_heartbeat(self.statuses, known, *times, _not_logged, _not_logged)

    def list_statuses(
        self, request: pb.ListTieringStatusesRequest
    ) -> pb.ListTieringStatusesResponse:
        """Reports one table's status; Apache Fluss has none."""
        path, response = path_of(request.table_path), pb.ListTieringStatusesResponse()
        for one in self.statuses.all() if self.fenced else ():
            if one.path == path:
                told = TieringStatus(
                    path=one.path,
                    table_id=one.table_id,
                    status="" if one.state is None else one.state.value,
                    tiering_epoch=one.tiering_epoch,
                    **kept_values(one),
                )
                response.tiering_statuses.append(status_to_message(told))
        return response

    def prepare(
        self, request: pb.PrepareLakeTableSnapshotRequest
    ) -> pb.PrepareLakeTableSnapshotResponse:
        response = pb.PrepareLakeTableSnapshotResponse()
        for asked in request.bucket_offsets:
            answer = response.prepare_lake_table_resp.add(table_id=asked.table_id)
            with errors_into(answer):
                table = self._by_id(asked.table_id)
                offsets = {
                    bucket_in(entry, asked.table_id): entry.log_end_offset
                    for entry in asked.bucket_offsets
                }
                path = table.prepare_lake_snapshot(asked.table_id, table.described.path, offsets)
                answer.lake_table_offsets_path = path
        return response

    def commit(
        self, request: pb.CommitLakeTableSnapshotRequest
    ) -> pb.CommitLakeTableSnapshotResponse:
        response = pb.CommitLakeTableSnapshotResponse()
        for asked in request.lake_table_snapshot_metadata:
            answer = response.table_resp.add(table_id=asked.table_id)
            with errors_into(answer):
                self._register(self._by_id(asked.table_id), asked)
        return response

    def _register(self, table: FlussTable, asked: pb.PbLakeTableSnapshotMetadata) -> None:
        if self.fenced:
            if any(entry.snapshot_id == asked.snapshot_id for entry in table.registered):
                return
            self._check_round(asked)
        path = asked.tiered_bucket_offsets_file_path
        offsets = table.offsets_files.get(path)
        if offsets is None:
            raise CorruptMessage(f"{path!r} is no offsets file of table {table.described.path}")
        before = table.latest_registered()
        if self.fenced and before is not None:
            for bucket in table.buckets():
                if offsets.get(bucket, -1) < before.offsets.get(bucket, -1):
                    raise InvalidUpdateVersion(f"bucket {bucket} would go back")
        table.retain(asked.snapshot_id, path, asked.earliest_snapshot_id_to_keep)
        for bucket, offset in offsets.items():
            table.lake_ends[bucket] = max(offset, table.lake_ends.get(bucket, 0))
        self._on_registered(table, asked.snapshot_id, before)

    def _check_round(self, asked: pb.PbLakeTableSnapshotMetadata) -> None:
        with self._change():
            status = self.statuses.check(
                asked.table_id, asked.coordinator_epoch, asked.tiering_epoch
            )
            if status.state is not State.TIERING:
                raise FencedTieringEpoch(f"the round of epoch {asked.tiering_epoch} has ended")

    def _times(self) -> tuple[int, int]:
        return self._clock.now_ms(), monotonic_ms(self._clock)

    def _by_id(self, table_id: int) -> FlussTable:
        for table in self.tables.values():
            if table.described.table_id == table_id:
                return table
        raise TableNotExist(f"no table has the id {table_id}: was it dropped?")

    @contextmanager
    def _change(self) -> Iterator[None]:
        """Advances the statuses to the current time before a change, and stores them after it."""
        for _ in self.statuses.advance(*self._times()):
            self._note("worker given up")
        yield
        for table_id in self.statuses.changed:
            status = self.statuses.get(table_id)
            if status is not None:
                self._stored[table_id] = status
        self.statuses.changed.clear()


def _not_logged(event: str, **details: object) -> None:
    """A simulation counts what happens in its own way."""
