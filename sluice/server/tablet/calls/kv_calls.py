"""The tablet's calls on primary-key tables.

See docs/fluss/messages.md#produce-log-and-put-kv and docs/fluss/messages.md#lookup
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from sluice.errors import (
    AuthorizationError,
    InvalidRequiredAcks,
    InvalidScanRequest,
    RecordTooLarge,
    UnknownWriterId,
    UnsupportedVersion,
)
from sluice.formats.keys.primary_keys import has_key_of_its_own
from sluice.formats.kv.kv_batch import KvBatch, parse_kv_batch
from sluice.formats.kv.value_batch import build_value_batch
from sluice.model import TableBucket
from sluice.server.tablet.buckets.ports import Tables
from sluice.server.tablet.kv.manager import KvManager
from sluice.server.writer_ids import StoredWriterIds
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import Api
from sluice.wire.error_codes import errors_into
from sluice.wire.listeners.handlers import Handler, caller, client_version
from sluice.wire.messages.table_paths import bucket_in, refuse_history

ACKS = (-1, 0, 1)

AGGREGATE, OVERWRITE, LOCAL = 0, 1, 2
"""``agg_mode`` of PutKv."""

_HEADROOM = 64 * 1024  # bytes of a response in addition to its rows


class KvService:
    """Handlers of the calls on primary-key tables. Stateless."""

    def __init__(
        self,
        tables: Tables,
        tablets: KvManager,
        writer_ids: StoredWriterIds,
        *,
        max_batch_rows: int,
        max_bytes: int,
    ) -> None:
        self._tables = tables
        self._tablets = tablets
        self._writer_ids = writer_ids
        self._max_batch_rows = max_batch_rows
        self._max_bytes = max_bytes - _HEADROOM

    def handlers(self) -> Mapping[Api, Handler]:
        return {
            apis.PUT_KV: self.put_kv,
            apis.LOOKUP: self.lookup,
            apis.PREFIX_LOOKUP: self.prefix_lookup,
        }

    def put_kv(self, request: pb.PutKvRequest) -> pb.PutKvResponse:
        """Applies one batch per bucket; each bucket has its own result or error.

        :raises InvalidRequiredAcks: acks is neither 0, 1 nor -1.
        :raises UnsupportedVersion: an aggregation mode that this server does not have.
        """
        if request.acks not in ACKS:
            raise InvalidRequiredAcks(f"acks = {request.acks}: send 0, 1 or -1")
        if request.agg_mode not in (AGGREGATE, OVERWRITE):
            raise UnsupportedVersion(
                f"agg_mode = {request.agg_mode}: this server supports only 0 and 1"
            )
        targets, overwrite = tuple(request.target_columns), request.agg_mode == OVERWRITE

        def put(bucket: TableBucket, item: Any, answer: Any) -> None:
            refuse_history(item, answer)
            batch = parse_kv_batch(item.records)
            self._check(bucket, batch)
            self._check_version(bucket, apis.PUT_KV)
            with self._tablets.leading(bucket) as tablet:
                answer.log_end_offset = tablet.put(batch, targets, overwrite=overwrite)

        response = pb.PutKvResponse()
        _each(request, response, put)
        return response

    def lookup(self, request: pb.LookupRequest) -> pb.LookupResponse:
        """Returns the rows of keys; with ``insert_if_not_exists``, inserts missing ones first.

        An inserted row has its key, a number in an auto-increment column, and nulls.

        :raises AuthorizationError: the client would insert rows, but may only read.
        :raises InvalidRequiredAcks: acks is neither 0, 1 nor -1.
        """
        inserts = request.insert_if_not_exists
        if inserts and not caller().may_write:
            raise AuthorizationError(
                f"Lookup with insert_if_not_exists needs the role write; {caller().name!r} may only"
                " read: use another token, or change the role in the users file"
            )
        if inserts and request.acks not in ACKS:
            raise InvalidRequiredAcks(f"acks = {request.acks}: send 0, 1 or -1")
        left = self._max_bytes  # limit of one response with all its buckets

        def look_up(bucket: TableBucket, item: Any, answer: Any) -> None:
            nonlocal left
            refuse_history(item, answer)
            self._check_version(bucket, apis.LOOKUP)
            if inserts:
                self._check_count(bucket, len(item.keys))
            with self._tablets.leading(bucket) as tablet:
                values = (tablet.lookup_or_insert if inserts else tablet.lookup)(list(item.keys))
            left = _taken(left, values)
            for value in values:
                answer.values.add(values=value)

        response = pb.LookupResponse()
        _each(request, response, look_up)
        return response

    def prefix_lookup(self, request: pb.PrefixLookupRequest) -> pb.PrefixLookupResponse:
        """Returns the rows of all keys with the given prefixes."""
        left = self._max_bytes

        def look_up(bucket: TableBucket, item: Any, answer: Any) -> None:
            nonlocal left
            self._check_version(bucket, apis.PREFIX_LOOKUP)
            with self._tablets.leading(bucket) as tablet:
                for prefix in item.keys:
                    values = tablet.prefix_lookup(prefix, left)
                    left = _taken(left, values)
                    answer.value_lists.add(values=values)

        response = pb.PrefixLookupResponse()
        _each(request, response, look_up)
        return response

    def limit_scan(self, bucket: TableBucket, limit: int) -> pb.LimitScanResponse:
        """Returns the first rows of a bucket, ordered by key, as one value batch."""
        response = pb.LimitScanResponse()
        with errors_into(response):
            if limit <= 0:
                raise InvalidScanRequest(f"limit = {limit}: request at least one row")
            with self._tablets.leading(bucket) as tablet:
                values = tablet.first(limit, self._max_bytes)
            response.is_log_table = False
            response.records = build_value_batch(pa.array(values, pa.binary()))
        return response

    def _check_version(self, bucket: TableBucket, api: Api) -> None:
        """Checks that the client encodes the table's keys correctly.

        :raises UnsupportedVersion: its version encodes them differently.
        """
        if client_version() != 0:
            return
        table = self._tables.find(bucket.table_id)
        if table is not None and has_key_of_its_own(table.info):
            raise UnsupportedVersion(
                f"{api.name} version 0 cannot be used with table {table.info.path}: its bucket key"
                " is only part of its primary key (kv format 2), for which such clients encode"
                " keys incorrectly: use a newer client"
            )

    def _check(self, bucket: TableBucket, batch: KvBatch) -> None:
        self._check_count(bucket, len(batch.keys))
        if batch.writer_id >= 0 and not self._writer_ids.is_issued(batch.writer_id):
            raise UnknownWriterId(
                f"bucket {bucket}: writer id {batch.writer_id} was never issued: call"
                " InitWriter first"
            )

    def _check_count(self, bucket: TableBucket, records: int) -> None:
        if records > self._max_batch_rows:
            raise RecordTooLarge(
                f"bucket {bucket}: the batch has {records} records, more than the limit of"
                f" {self._max_batch_rows}: send smaller batches"
            )


def _each(request: Any, response: Any, act: Callable[[TableBucket, Any, Any], None]) -> None:
    """Handles each bucket of a request separately, with its own result or error."""
    for item in request.buckets_req:
        bucket = bucket_in(item, request.table_id)
        answer = response.buckets_resp.add(
            bucket_id=bucket.bucket, partition_id=bucket.partition_id
        )
        with errors_into(answer):
            act(bucket, item, answer)


def _taken(left: int, values: list[bytes] | list[bytes | None]) -> int:
    left -= sum(len(value) for value in values if value is not None)
    if left < 0:
        raise RecordTooLarge("the rows do not fit in one response: look up fewer keys at once")
    return left
