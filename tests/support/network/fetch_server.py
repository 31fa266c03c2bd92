"""A reader before a server whose answers to fetches are filled in by the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from sluice.client import LogReader, connect
from sluice.config import ClientConfig
from sluice.formats.log.batch import encode_log_batch, set_offset_and_timestamp
from sluice.model import TableBucket, TableInfo
from sluice.model.types import BIGINT
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import Role
from tests.support.models.tables import table_info
from tests.support.network.wire_server import WireServer

INFO = table_info({"id": BIGINT})
BUCKET = TableBucket(1, None, 0)


def batch(first: int, count: int, change_types: bytes | None = None) -> bytes:
    """A log batch of the ids from ``first``, which are its offsets too."""
    rows = pa.record_batch({"id": pa.array(range(first, first + count), pa.int64())})
    encoded = bytearray(encode_log_batch(rows, 1, change_types=change_types))
    set_offset_and_timestamp(encoded, first, 1000)
    return bytes(encoded)


@contextmanager
def reading(
    answer: Callable[[Any, Any], object], info: TableInfo = INFO, **config: Any
) -> Iterator[LogReader]:
    """A reader of a server whose answer about each bucket is filled in by the test."""

    def fetch(request: Any) -> Any:
        reply = pb.FetchLogResponse()
        table = reply.tables_resp.add(table_id=1)
        for asked in request.tables_req[0].buckets_req:
            bucket = table.buckets_resp.add(bucket_id=asked.bucket_id, high_watermark=30)
            answer(asked, bucket)
        return reply

    handlers = {(Role.TABLET, apis.FETCH_LOG): fetch}
    with (
        WireServer(handlers) as server,
        connect(ClientConfig(bootstrap=server.address, **config)) as client,
    ):
        yield LogReader(client._connection, client.admin, info.path, info)


def ids(reader: LogReader, start: int, stop: int) -> list[int]:
    return [i for r in reader.read(BUCKET, start, stop) for i in r.batch["id"].to_pylist()]
