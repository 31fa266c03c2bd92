"""The calls on damage of this server's disk: what is damaged, and what a store may do without."""

from __future__ import annotations

from collections.abc import Mapping

from sluice.errors import CorruptRecord, LogOffsetOutOfRange, TableNotExist
from sluice.server.tablet.buckets.ports import HostedTable, Tables
from sluice.server.tablet.kv.manager import KvManager
from sluice.server.tablet.logs.manager import LogManager, buckets_of
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
        """Returns the damaged ranges of logs, and the stores that refuse calls.

        A store is opened where its log is damaged. Another one shows once it has refused a call,
        and is opened if that was before a restart.
        """
        tables = list(self._tables.tables())
        if request.HasField("table_path"):
            path = path_of(request.table_path)
            tables = [table for table in tables if table.info.path == path]
            if not tables:
                raise TableNotExist(f"table {path} does not exist")
        return pb.ListDamageResponse(damage=[one for table in tables for one in self._of(table)])

    def skip_damage(self, request: pb.SkipDamageRequest) -> pb.SkipDamageResponse:
        """Lets a store do without a range that it refuses calls for; the next call opens it.

        :raises CorruptRecord: it refuses calls for another reason.
        :raises LogOffsetOutOfRange: it does not refuse calls.
        """
        bucket = bucket_in(request)
        with self._tablets.leading(bucket) as (tablet, _):
            try:
                tablet.row_count()
            except CorruptRecord as error:
                found = error.details.get("base_offset"), error.details.get("next_offset")
                if found != (request.start_offset, request.end_offset):
                    raise
                tablet.give_up(request.start_offset, request.end_offset)
                return pb.SkipDamageResponse()
        raise LogOffsetOutOfRange(
            f"bucket {bucket}: its key-value store does not need offset {request.start_offset}:"
            " there is nothing to skip"
        )

    def _of(self, table: HostedTable) -> list[pb.PbDamage]:
        found: list[pb.PbDamage] = []
        for bucket in buckets_of(table):
            log = self._logs.opened(bucket)
            if log is None:
                continue
            damaged = log.damaged()
            refusal = None
            if table.info.has_primary_key:
                refusal = self._tablets.refusal(bucket, opens=bool(damaged))
            there = {"table_path": table_path(table.info.path), **bucket_ids(bucket)}
            entries: dict[tuple[int | None, int | None], pb.PbDamage] = {
                (one.start, one.stop): pb.PbDamage(
                    start_offset=one.start, end_offset=one.stop, place=one.place, **there
                )
                for one in damaged
            }
            if refusal is not None:
                start, end = refusal.details.get("base_offset"), refusal.details.get("next_offset")
                entry = pb.PbDamage(start_offset=start, end_offset=end, **there)
                entries.setdefault((start, end), entry).refused = str(refusal)
            found += entries.values()
        return found
