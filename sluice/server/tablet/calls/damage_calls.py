"""The calls on buckets that refuse calls because the server's disk is damaged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sluice.errors import TableNotExist, UnknownTableOrBucket
from sluice.model import TableBucket
from sluice.server.tablet.buckets.ports import HostedTable, Tables
from sluice.server.tablet.kv.manager import KvManager
from sluice.server.tablet.logs.manager import LogManager
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import Api
from sluice.wire.listeners.handlers import Handler
from sluice.wire.messages.table_paths import bucket_ids, bucket_in, path_of, table_path


class DamageService:
    """Handlers of these calls. Stateless."""

    def __init__(self, tables: Tables, logs: LogManager, tablets: KvManager) -> None:
        self._tables = tables
        self._logs = logs
        self._tablets = tablets

    def handlers(self) -> Mapping[Api, Handler]:
        return {apis.LIST_DAMAGE: self.list_damage, apis.SKIP_DAMAGE: self.skip_damage}

    def list_damage(self, request: pb.ListDamageRequest) -> pb.ListDamageResponse:
        """Returns the damage of logs, and the lost stores, for which buckets refuse calls.

        Damage of what a start does not read shows once it was read.
        """
        tables = list(self._tables.tables())
        if request.HasField("table_path"):
            path = path_of(request.table_path)
            tables = [table for table in tables if table.info.path == path]
            if not tables:
                raise TableNotExist(f"table {path} does not exist")
        return pb.ListDamageResponse(damage=[one for table in tables for one in self._of(table)])

    def skip_damage(self, request: pb.SkipDamageRequest) -> pb.SkipDamageResponse:
        """Lets a log go on without a damaged range.

        :raises LogOffsetOutOfRange: exactly these offsets are not damaged.
        :raises UnknownTableOrBucket: there is no such log.
        """
        bucket = bucket_in(request)
        log = self._logs.opened(bucket)
        if log is None:
            raise UnknownTableOrBucket(f"bucket {bucket} does not exist, or is empty")
        log.give_up(request.start_offset, request.end_offset)
        return pb.SkipDamageResponse()

    def refuses(self, bucket: TableBucket) -> bool:
        """Whether a bucket refuses calls, as far as that is known."""
        log = self._logs.opened(bucket)
        is_damaged = log is not None and bool(log.damage())
        return is_damaged or self._tablets.refusal(bucket) is not None

    def _of(self, table: HostedTable) -> Iterator[pb.PbDamage]:
        for bucket in table.buckets():
            there = {"table_path": table_path(table.info.path), **bucket_ids(bucket)}
            log = self._logs.opened(bucket)
            for one, refused in log.damage() if log is not None else ():
                yield pb.PbDamage(
                    start_offset=one.start, end_offset=one.stop, refused=refused, **there
                )
            if (lost := self._tablets.refusal(bucket)) is not None:
                yield pb.PbDamage(refused=str(lost), **there)
