"""Clients of version 0 of PutKv and the look-ups, which know one way only to encode keys."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import pytest

from sluice.errors import UnsupportedVersion
from sluice.model import Column, Schema, TablePath
from sluice.model.types import BIGINT, STRING
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import Api
from sluice.wire.error_codes import raise_in_body
from tests.support.fluss.native_call import NativeCall
from tests.unit.server.kv_support import KvCaller
from tests.unit.server.support import Node

SCHEMA = Schema(
    (
        Column("a", replace(BIGINT, nullable=False), 0),
        Column("b", replace(BIGINT, nullable=False), 1),
        Column("text", STRING, 2),
    ),
    ("a", "b"),
    2,
)
ROW = (1, 2, "x")


@pytest.mark.parametrize(
    ("primary_key", "is_refused"), [(("a",), False), (("a", "b"), True)], ids=["whole", "part"]
)
def test_one_is_refused_where_the_bucket_key_is_a_part_of_the_primary_key(
    start: Callable[..., Node], primary_key: tuple[str, ...], is_refused: bool
) -> None:
    node = start(listen="grpc://127.0.0.1:0,fluss://127.0.0.1:0")
    schema = replace(SCHEMA, primary_key=primary_key)
    kv = KvCaller(node.caller, TablePath("db", "t"), schema=schema, bucket_keys=("a",))
    (key,) = kv.keys([ROW])
    put = pb.PutKvRequest(acks=-1, table_id=kv.table_id, timeout_ms=10_000)
    put.buckets_req.add(bucket_id=0, records=kv.records([ROW]))
    lookup = pb.LookupRequest(table_id=kv.table_id)
    lookup.buckets_req.add(bucket_id=0, keys=[key])
    prefix = pb.PrefixLookupRequest(table_id=kv.table_id)
    prefix.buckets_req.add(bucket_id=0, keys=[key[:8]])
    calls = ((apis.PUT_KV, put), (apis.LOOKUP, lookup), (apis.PREFIX_LOOKUP, prefix))
    with NativeCall(_tablet_port(node), timeout_s=60) as native:

        def call(api: Api, request: Any, version: int) -> Any:
            (answer,) = native.call(api, request, version).buckets_resp
            raise_in_body(answer)
            return answer

        for api, request in calls:
            if is_refused:
                with pytest.raises(UnsupportedVersion, match=f"{api.name} version 0.*db.t"):
                    call(api, request, 0)
            else:
                call(api, request, 0)
            call(api, request, 1)
    assert kv.table() == {1: ROW}
    assert kv.end() == (1 if is_refused else 3)  # the same again is an update


def _tablet_port(node: Node) -> int:
    coordinator = urlsplit(node.cluster.addresses[1]).port
    assert coordinator is not None
    with NativeCall(coordinator, timeout_s=60) as native:
        (tablet,) = native.call(apis.GET_METADATA, pb.MetadataRequest()).tablet_servers
    return int(tablet.port)
