"""The tablet's call GetTableStats, by which engines answer COUNT(*) without a scan.

See docs/fluss/messages.md#table-statistics
"""

from __future__ import annotations

from collections.abc import Mapping

from sluice.errors import InvalidTable, UnknownTableOrBucket
from sluice.model import TableBucket
from sluice.server.tablet.buckets.ports import Tables
from sluice.server.tablet.buckets.replicas import Replicas
from sluice.server.tablet.kv.manager import KvManager
from sluice.server.tablet.logs.manager import LogManager
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import Api
from sluice.wire.error_codes import errors_into
from sluice.wire.listeners.handlers import Handler
from sluice.wire.messages.table_paths import bucket_in


class StatsService:
    """Handlers of calls on statistics. Stateless."""

    def __init__(
        self, tables: Tables, logs: LogManager, tablets: KvManager, replicas: Replicas
    ) -> None:
        self._tables = tables
        self._logs = logs
        self._tablets = tablets
        self._replicas = replicas

    def handlers(self) -> Mapping[Api, Handler]:
        return {apis.GET_TABLE_STATS: self.get_table_stats}

    def get_table_stats(self, request: pb.GetTableStatsRequest) -> pb.GetTableStatsResponse:
        """Returns the number of rows of each bucket, or the bucket's error."""
        response = pb.GetTableStatsResponse()
        for item in request.buckets_req:
            bucket = bucket_in(item, request.table_id)
            answer = response.buckets_resp.add(
                bucket_id=bucket.bucket, partition_id=bucket.partition_id
            )
            with errors_into(answer):
                answer.row_count = self._row_count(bucket)
        return response

    def _row_count(self, bucket: TableBucket) -> int:
        table = self._tables.find(bucket.table_id)
        if table is None:
            raise UnknownTableOrBucket(f"no table has the id {bucket.table_id}")
        if not table.info.has_primary_key:
            with self._replicas.leading(bucket):
                log = self._logs.find(table, bucket)
                return log.end_offset - log.start_offset
        with self._tablets.leading(bucket) as tablet:
            rows = tablet.row_count()
        if rows is None:
            raise InvalidTable(
                f"table {table.info.path}, bucket {bucket}: the number of rows is not known: it is"
                " not counted with table.changelog.image = WAL, or after `sluice skip-damaged`"
            )
        return rows
