"""A real server on a free port, and the shortest way to call it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from sluice.client import connect
from sluice.clock import Clock
from sluice.config import DatalakeConfig, ServerConfig
from sluice.formats.log.batch import encode_log_batch, iter_batches
from sluice.formats.types.descriptors import descriptor_to_json
from sluice.formats.types.types import arrow_schema
from sluice.model import Column, Schema, TableDescriptor, TablePath
from sluice.model.types import BIGINT, STRING
from sluice.server.cluster import EmbeddedCluster
from sluice.server.tablet.buckets.files import LogFiles
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import Api, Role
from sluice.wire.error_codes import raise_in_body
from sluice.wire.grpc.transport import GrpcTransport

SCHEMA = Schema((Column("id", BIGINT, 0), Column("text", STRING, 1)), highest_field_id=1)
LOG_TABLE = TableDescriptor(SCHEMA)
PATH = TablePath("db", "t")


def config(data_dir: Path, **settings: Any) -> ServerConfig:
    return replace(
        ServerConfig(data_dir=str(data_dir), listen="grpc://127.0.0.1:0", max_workers=8), **settings
    )


class OwnedClock:
    """Wall time that the test owns; monotonic time goes on, and further with each move."""

    def __init__(self) -> None:
        self.ms = 1_000
        self._jumped_ms = 0

    def jump(self, ms: int) -> None:
        """Sets the wall clock forward or back: no time passes."""
        self.ms += ms
        self._jumped_ms += ms

    def now_ms(self) -> int:
        return self.ms

    def monotonic_s(self) -> float:
        return time.monotonic() + (self.ms - self._jumped_ms) / 1000

    def sleep(self, seconds: float) -> None:
        raise AssertionError("nobody sleeps here")


class Node:
    """A server in this process with a connection to it. ``restart`` is a clean stop and a start."""

    def __init__(
        self,
        data_dir: Path,
        clock: Clock | None = None,
        files: LogFiles | None = None,
        datalake: DatalakeConfig | None = None,
        **settings: Any,
    ) -> None:
        self.data_dir = data_dir
        self.datalake = datalake
        self._make = lambda: EmbeddedCluster(
            config(data_dir, **settings), clock, datalake=self.datalake, files=files
        )
        self.cluster = self._make()
        self.caller = Caller(self.cluster.start())

    def restart(self) -> None:
        self.stop()
        self.start()

    def start(self) -> None:
        """Starts it again after a stop."""
        self.cluster = self._make()
        self.caller = Caller(self.cluster.start())

    def stop(self) -> None:
        self.caller.transport.close()
        self.cluster.stop()


def give_up(address: str) -> list[str]:
    """Gives up all damage that a server knows of; why the buckets refused calls."""
    with connect(address) as client:
        found = client.damage.list()
        for one in found:
            client.damage.skip(one)
    return [one.refused for one in found]


class Caller:
    """Calls over real gRPC; errors in bodies are raised too."""

    def __init__(
        self, address: str, max_message_bytes: int = 64 << 20, *, timeout_ms: int = 120_000
    ) -> None:
        self.address = address
        self.timeout_ms = timeout_ms
        host, port = address.removeprefix("grpc://").rsplit(":", 1)
        self.transport = GrpcTransport(address, host, int(port), max_message_bytes)

    def call(self, api: Api, request: Any, role: Role | None = None) -> Any:
        role = role or (Role.COORDINATOR if Role.COORDINATOR in api.roles else Role.TABLET)
        return self.transport.call(role, api, request, self.timeout_ms)

    def create_database(self, name: str = "db") -> None:
        request = pb.CreateDatabaseRequest(database_name=name, ignore_if_exists=True)
        self.call(apis.CREATE_DATABASE, request)

    def create_table(
        self, path: TablePath = PATH, descriptor: TableDescriptor = LOG_TABLE, **changes: Any
    ) -> int:
        """Creates database and table; answers the table id."""
        self.create_database(path.database)
        content = descriptor_to_json(replace(descriptor, **changes))
        self.call(
            apis.CREATE_TABLE,
            pb.CreateTableRequest(
                table_path=to_pb(path), table_json=content, ignore_if_exists=False
            ),
        )
        return self.table_info(path).table_id

    def table_info(self, path: TablePath = PATH) -> Any:
        return self.call(apis.GET_TABLE_INFO, pb.GetTableInfoRequest(table_path=to_pb(path)))

    def drop_table(self, path: TablePath = PATH) -> None:
        request = pb.DropTableRequest(table_path=to_pb(path), ignore_if_not_exists=False)
        self.call(apis.DROP_TABLE, request)

    def init_writer(self) -> int:
        return int(self.call(apis.INIT_WRITER, pb.InitWriterRequest()).writer_id)

    def produce(
        self, table_id: int, records: bytes, bucket: int = 0, partition_id: int | None = None
    ) -> int:
        """Appends one batch; answers its base offset, or raises the bucket's error."""
        request = pb.ProduceLogRequest(acks=-1, table_id=table_id, timeout_ms=10_000)
        request.buckets_req.add(bucket_id=bucket, partition_id=partition_id, records=records)
        (answer,) = self.call(apis.PRODUCE_LOG, request).buckets_resp
        raise_in_body(answer)
        return int(answer.base_offset)

    def fetch(
        self,
        table_id: int,
        offset: int,
        bucket: int = 0,
        partition_id: int | None = None,
        *,
        max_bytes: int = 16 << 20,
        max_fetch_bytes: int = 2 << 20,
        **more: int,
    ) -> Any:
        """One bucket's answer, or its error raised."""
        request = pb.FetchLogRequest(follower_server_id=-1, max_bytes=max_bytes, **more)
        table = request.tables_req.add(table_id=table_id, projection_pushdown_enabled=False)
        table.buckets_req.add(
            bucket_id=bucket,
            partition_id=partition_id,
            fetch_offset=offset,
            max_fetch_bytes=max_fetch_bytes,
        )
        (table_answer,) = self.call(apis.FETCH_LOG, request).tables_resp
        (answer,) = table_answer.buckets_resp
        raise_in_body(answer)
        return answer

    def read_all(self, table_id: int, bucket: int = 0) -> list[tuple[int, bytes]]:
        """Every batch of a bucket: (base offset, what its checksum covers)."""
        found: list[tuple[int, bytes]] = []
        offset = -2
        while records := self.fetch(table_id, offset, bucket).records:
            for header, view in iter_batches(records):
                found.append((header.base_offset, bytes(view[25:])))
                offset = header.next_offset
        return found

    def offsets(
        self, table_id: int, kind: int = 1, buckets: Sequence[int] = (0,), **more: int
    ) -> list[int]:
        request = pb.ListOffsetsRequest(
            follower_server_id=-1, offset_type=kind, table_id=table_id, bucket_id=buckets, **more
        )
        answers = self.call(apis.LIST_OFFSETS, request).buckets_resp
        for answer in answers:
            raise_in_body(answer)
        return [answer.offset for answer in answers]


def to_pb(path: TablePath) -> pb.PbTablePath:
    return pb.PbTablePath(database_name=path.database, table_name=path.table)


def batch(
    *texts: str, writer_id: int = -1, sequence: int = -1, schema_id: int = 1, first: int = 0
) -> bytes:
    """An encoded log batch of the columns of SCHEMA."""
    data = pa.RecordBatch.from_pydict(
        {"id": list(range(first, first + len(texts))), "text": list(texts)},
        schema=arrow_schema(SCHEMA),
    )
    return encode_log_batch(data, schema_id, writer_id=writer_id, batch_sequence=sequence)
