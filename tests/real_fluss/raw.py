"""Raw calls to a real Fluss: what our encoders made goes in, the server's own bytes come out."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from sluice.client import connect
from sluice.model import Schema, TableDescriptor, TablePath
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from tests.support.fluss.native_call import NativeCall
from tests.support.fluss.real_fluss import RealFluss
from tests.support.fluss.table_creation import create_table

_TIMEOUT_MS = 30_000
_FETCH_BYTES = 8 << 20
_VERSION = {apis.PRODUCE_LOG.key: 0, apis.PUT_KV.key: 1}


class RawCluster:
    """A database of its own on a running cluster, with one bucket a table."""

    def __init__(self, fluss: RealFluss, database: str) -> None:
        self.database = database
        self._bootstrap = fluss.bootstrap
        self._coordinator = NativeCall(fluss.coordinator_port, timeout_s=40)
        self._tablet = NativeCall(fluss.tablet_port, timeout_s=40)
        request = pb.CreateDatabaseRequest(database_name=database, ignore_if_exists=True)
        self._coordinator.call(apis.CREATE_DATABASE, request)

    def create(
        self,
        name: str,
        schema: Schema,
        properties: Mapping[str, str] | None = None,
        bucket_keys: Sequence[str] = (),
    ) -> int:
        path = TablePath(self.database, name)
        descriptor = TableDescriptor(
            schema,
            bucket_count=1,
            bucket_keys=tuple(bucket_keys),
            properties=dict(properties or {}),
        )
        with connect(self._bootstrap) as client:
            create_table(client, path, descriptor)
            return client.admin.table_info(path).table_id

    def produce(self, table_id: int, batch: bytes) -> None:
        """One log batch to bucket 0, tried again while it has no leader."""
        request = pb.ProduceLogRequest(acks=-1, table_id=table_id, timeout_ms=_TIMEOUT_MS)
        request.buckets_req.add(bucket_id=0, records=batch)
        self._write(apis.PRODUCE_LOG, request)

    def put(self, table_id: int, batch: bytes, target_columns: Sequence[int] = ()) -> None:
        """One KV batch to bucket 0."""
        request = pb.PutKvRequest(
            acks=-1, table_id=table_id, timeout_ms=_TIMEOUT_MS, target_columns=target_columns
        )
        request.buckets_req.add(bucket_id=0, records=batch)
        self._write(apis.PUT_KV, request)

    def fetch(self, table_id: int, projected: Sequence[int] = ()) -> bytes:
        """The log of bucket 0."""
        request = pb.FetchLogRequest(follower_server_id=-1, max_bytes=_FETCH_BYTES)
        table = request.tables_req.add(
            table_id=table_id,
            projection_pushdown_enabled=bool(projected),
            projected_fields=projected,
        )
        table.buckets_req.add(bucket_id=0, fetch_offset=0, max_fetch_bytes=_FETCH_BYTES)
        [answer] = self._tablet.call(apis.FETCH_LOG, request).tables_resp[0].buckets_resp
        assert not answer.error_code, answer.error_message
        return bytes(answer.records)

    def lookup(self, table_id: int, keys: Sequence[bytes]) -> list[bytes | None]:
        request = pb.LookupRequest(table_id=table_id)
        request.buckets_req.add(bucket_id=0, keys=keys)
        [answer] = self._tablet.call(apis.LOOKUP, request, 1).buckets_resp
        assert not answer.error_code, answer.error_message
        return [bytes(v.values) if v.HasField("values") else None for v in answer.values]

    def _write(self, api: apis.Api, request: Any) -> None:
        not_leader, unknown = 12, 21
        deadline = time.monotonic() + _TIMEOUT_MS / 1000
        while True:
            [answer] = self._tablet.call(api, request, _VERSION[api.key]).buckets_resp
            if answer.error_code not in (not_leader, unknown) or time.monotonic() > deadline:
                break
            time.sleep(0.01)
        assert not answer.error_code, f"{answer.error_code} {answer.error_message}"

    def close(self) -> None:
        self._coordinator.close()
        self._tablet.close()
