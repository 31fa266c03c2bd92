"""The options of the lake that clients get with a tiered table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sluice.client import Client, connect
from sluice.config import ClientConfig, DatalakeConfig
from sluice.errors import InvalidAlterTable, InvalidConfig
from sluice.formats.types.descriptors import descriptor_from_json
from sluice.model import TablePath
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import Role
from tests.unit.server.support import LOG_TABLE, PATH, Caller, Node, to_pb

ENABLED = "table.datalake.enabled"
LAKE = DatalakeConfig(iceberg={"type": "hadoop", "warehouse": "/lake"})
OPTIONS = {
    "table.datalake.iceberg.type": "hadoop",
    "table.datalake.iceberg.warehouse": "/lake",
}
DELEGATION = "header.X-Iceberg-Access-Delegation"
OWN = {"table.replication.factor": "1", "table.datalake.format": "iceberg"}


@pytest.fixture
def node(start: Callable[..., Node]) -> Node:
    return start(datalake=LAKE)


@pytest.fixture
def client(node: Node) -> Iterator[Client]:
    with connect(ClientConfig(node.caller.address)) as client:
        yield client


def properties(answer: Any) -> dict[str, str]:
    return dict(descriptor_from_json(answer.table_json).properties)


def in_metadata(caller: Caller) -> dict[str, str]:
    request = pb.MetadataRequest(table_path=[to_pb(PATH)])
    return properties(caller.call(apis.GET_METADATA, request).table_metadata[0])


def test_a_tiered_table_has_them_from_both_servers(node: Node) -> None:
    node.caller.create_table(properties={ENABLED: "true"})
    request = pb.GetTableInfoRequest(table_path=to_pb(PATH))
    for role in Role:
        found = properties(node.caller.call(apis.GET_TABLE_INFO, request, role))
        assert found == {**OWN, ENABLED: "true", **OPTIONS}
    assert in_metadata(node.caller) == found


def test_other_tables_do_not(node: Node) -> None:
    node.caller.create_table()
    assert properties(node.caller.table_info()) == in_metadata(node.caller) == OWN


def test_they_are_not_stored(node: Node, client: Client) -> None:
    """They follow the table's switch and the server's configuration."""
    node.caller.create_table(properties={ENABLED: "true"})
    client.admin.set_options(PATH, {"owner": "shop"})
    client.admin.set_options(PATH, {ENABLED: "false"})
    info = client.admin.table_info(PATH)
    assert dict(info.descriptor.properties) == {**OWN, ENABLED: "false"}
    client.admin.set_options(PATH, {ENABLED: "true"})
    assert properties(node.caller.table_info()) == {**OWN, ENABLED: "true", **OPTIONS}

    node.datalake = DatalakeConfig(iceberg={"type": "rest"})
    node.restart()
    found = properties(node.caller.table_info())
    assert found == {**OWN, ENABLED: "true", "table.datalake.iceberg.type": "rest"}


def test_a_table_like_another_has_to_leave_them_out(node: Node, client: Client) -> None:
    """As on an Apache Fluss cluster."""
    node.caller.create_table(properties={ENABLED: "true"})
    seen, copy = client.admin.table_info(PATH).descriptor, TablePath("db", "copy")
    with pytest.raises(InvalidConfig, match=r"unknown table option 'table\.datalake\.iceberg\."):
        client.admin.create_table(copy, seen)
    with pytest.raises(InvalidAlterTable, match=r"table\.datalake\.iceberg\.type cannot be"):
        client.admin.set_options(PATH, {"table.datalake.iceberg.type": "rest"})
    client.admin.create_table(copy, LOG_TABLE)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("s3.secret-access-key", "x"),
        ("s3.access-key-id", "x"),
        ("jdbc.PASSWORD", "x"),
        ("ssl.keystore", "x"),
        ("token", "x"),
        ("header.Authorization", "Basic b3Bz"),
        ("header.X-Auth", "x"),
        ("header.X-Session", "x"),
        ("header.Api", "x"),
        ("HEADER.X-Tenant", "x"),
        ("rest.oauth2.jwt", "x"),
        ("header.Cookie", "session=1"),
        ("rest.auth.basic.pass", "x"),
        ("credential", "id:x"),
        ("uri", "jdbc:postgresql://lake:hidden@db/lake"),
        ("uri", "https://db/lake?token=hidden"),
    ],
)
def test_secrets_are_left_out(start: Callable[..., Node], name: str, value: str) -> None:
    options = {
        "type": "jdbc",
        name: value,
        "s3.region": "here",
        "cache-enabled": "false",
        DELEGATION: "vended-credentials",
    }
    caller = start(datalake=DatalakeConfig(iceberg=options)).caller
    caller.create_table(properties={ENABLED: "true"})
    assert properties(caller.table_info()) == {
        **OWN,
        ENABLED: "true",
        "table.datalake.iceberg.type": "jdbc",
        "table.datalake.iceberg.s3.region": "here",
        "table.datalake.iceberg.cache-enabled": "false",
        f"table.datalake.iceberg.{DELEGATION}": "vended-credentials",
    }
