"""Error 74 and the field for it, against bare servers of both versions."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from sluice.client import connect
from sluice.client.admin.admin import Admin
from sluice.client.connection.connection import Connection
from sluice.config import ClientConfig
from sluice.errors import InvalidBucketRouting, UnsupportedVersion
from sluice.formats.types.descriptors import descriptor_to_json
from sluice.model import Column, Schema, TableBucket, TableDescriptor, TablePath
from sluice.model.types import STRING
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import Role
from sluice.wire.error_codes import put_error, raise_in_body
from tests.support.network.wire_server import WireServer

PATH = TablePath("shop", "orders")
BUCKET = TableBucket(1, 7, 0)
STALE = InvalidBucketRouting("INVALID_BUCKET_ROUTING for table 1, partition 7")


class Server(WireServer):
    """A server of Fluss 1.0, or before, with one partition; the first answers are error 74."""

    def __init__(
        self,
        *,
        stale: int = 0,
        in_body: bool = False,
        named: int | None = 4,
        epoch: int | None = 1,
    ) -> None:
        """:param named: the bucket count of the partition. :param epoch: of the table."""
        self.reads = 0  # of the partition's metadata
        self.stale, self.in_body, self.named, self.epoch = stale, in_body, named, epoch
        super().__init__(
            {
                (Role.TABLET, apis.LOOKUP): self._lookup,
                (Role.TABLET, apis.PRODUCE_LOG): self._produce,
                (Role.TABLET, apis.INIT_WRITER): lambda _: pb.InitWriterResponse(writer_id=1),
                (Role.COORDINATOR, apis.GET_METADATA): self._of_partition,
                (Role.COORDINATOR, apis.GET_TABLE_INFO): self._described,
                (Role.COORDINATOR, apis.LIST_PARTITION_INFOS): self._listed,
            }
        )

    def __enter__(self) -> Server:
        super().__enter__()
        return self

    def _of_partition(self, request: Any) -> Any:
        reply = self._metadata(request)
        for table in reply.table_metadata:
            del table.bucket_metadata[:]
            table.table_json = b'{"bucket_count": 2}'
            if self.epoch is not None:
                table.bucket_count_epoch = self.epoch
        self.reads += list(request.partitions_id) == [7]
        for number in request.partitions_id:
            part = reply.partition_metadata.add(
                table_id=1, partition_name="d2", partition_id=number, bucket_count=self.named
            )
            for bucket in range(4):
                part.bucket_metadata.add(bucket_id=bucket, leader_id=0)
        return reply

    def _described(self, _: Any) -> Any:
        schema = Schema((Column("day", STRING, 0),), highest_field_id=0)
        table_json = descriptor_to_json(TableDescriptor(schema, ("day",), bucket_count=2))
        times = {"created_time": 0, "modified_time": 0}
        return pb.GetTableInfoResponse(table_id=1, schema_id=1, table_json=table_json, **times)

    def _listed(self, _: Any) -> Any:
        spec = pb.PbPartitionSpec(partition_key_values=[pb.PbKeyValue(key="day", value="d2")])
        part = pb.PbPartitionInfo(partition_id=7, partition_spec=spec, bucket_count=self.named)
        return pb.ListPartitionInfosResponse(partitions_info=[part])

    def _lookup(self, _: Any) -> Any:
        return self._answered(pb.LookupResponse())

    def _produce(self, _: Any) -> Any:
        return self._answered(pb.ProduceLogResponse())

    def _answered(self, reply: Any) -> Any:
        answer = reply.buckets_resp.add(bucket_id=0, partition_id=7)
        if self.stale > 0:
            self.stale -= 1
            if not self.in_body:
                raise STALE
            put_error(answer, STALE)
        return reply

    @property
    def routed(self) -> list[int | None]:
        """What each request to a bucket named."""
        names = (apis.LOOKUP.name, apis.PRODUCE_LOG.name)
        parts = [got.buckets_req[0] for _, name, got in self.calls if name in names]
        return [
            part.routing_bucket_count if part.HasField("routing_bucket_count") else None
            for part in parts
        ]


def look_up(server: Server, routed_by: int | None, times: int = 1) -> None:
    now = [0.0]

    def sleep(_: float) -> None:
        now[0] += 0.1

    connection = Connection(
        ClientConfig(bootstrap=server.address), sleep=sleep, now=lambda: now[0], random=lambda: 1.0
    )
    for _ in range(times):
        request = pb.LookupRequest(table_id=1)
        request.buckets_req.add(partition_id=7, bucket_id=0, keys=[b"k"])
        connection.call_leader(
            PATH,
            BUCKET,
            apis.LOOKUP,
            request,
            lambda reply: raise_in_body(reply.buckets_resp[0]),
            routed_by=routed_by,
        )
    connection.close()


@pytest.mark.parametrize("in_body", [False, True])
def test_the_metadata_is_read_again_after_error_74(in_body: bool) -> None:
    with Server(stale=1, in_body=in_body) as server:
        look_up(server, 4)
        assert server.routed == [4, 4]
        assert server.reads == 2


def test_a_batch_is_sent_again_after_error_74() -> None:
    with Server(stale=1, in_body=True) as server:
        with connect(server.address) as client, client.log_writer(PATH) as writer:
            writer.write(pa.table({"day": ["d2"]}))
        assert (server.routed, server.reads) == ([4, 4], 2)
        sent = [got for _, name, got in server.calls if name == apis.PRODUCE_LOG.name]
        assert sent[0] == sent[1]  # the same writer and sequence number: stored once


def test_a_server_that_refuses_all_ends_in_words() -> None:
    with Server(stale=1_000) as server:
        with pytest.raises(InvalidBucketRouting) as refused:
            look_up(server, 4)
        assert server.routed == [4] * 5
    said = str(refused.value)
    assert said.startswith("bucket 1(p=7):0 of table shop.orders: the server refuses the number")
    assert "gave up after 5 attempts" in said
    assert said.endswith("try again later, and restart that tablet server if it stays")


def test_a_caller_that_used_another_number_is_told_and_nothing_is_sent() -> None:
    with Server() as server:
        with pytest.raises(InvalidBucketRouting, match="has 4 buckets, but .* assigned to 2"):
            look_up(server, 2)
        assert server.routed == []


@pytest.mark.parametrize(
    ("named", "epoch", "routed"),
    [
        (4, 1, 4),
        (2, 0, 2),
        (None, 0, 2),  # never altered: the table's number
        (None, 1, None),  # not known
        (None, None, None),  # before Fluss 1.0
    ],
)
def test_requests_name_what_the_metadata_names(
    named: int | None, epoch: int | None, routed: int | None
) -> None:
    with Server(named=named, epoch=epoch) as server:
        look_up(server, None)
        assert server.routed == [routed]


def test_a_server_before_fluss_1_is_not_asked_again_for_counts() -> None:
    with Server(named=None, epoch=None) as server:
        look_up(server, 2, times=3)
        assert server.routed == [None] * 3
        assert server.reads == 1


def test_a_server_before_fluss_1_is_not_sent_what_it_would_skip() -> None:
    answer = {(Role.COORDINATOR, apis.ALTER_TABLE): lambda _: pb.AlterTableResponse()}
    with WireServer(answer) as server:
        connection = Connection(ClientConfig(bootstrap=server.address))
        with pytest.raises(UnsupportedVersion, match="Fluss can since version 1.0"):
            Admin(connection).set_bucket_count(PATH, 4)
        connection.close()
        assert server.count(apis.ALTER_TABLE) == 0
