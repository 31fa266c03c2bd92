"""Who may call the cluster: roles and logins over both protocols, TLS and health over gRPC."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import grpc
import pyarrow as pa
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

from sluice.client import Client, connect
from sluice.config import ClientConfig, ServerConfig
from sluice.errors import (
    AuthenticateError,
    AuthorizationError,
    ConfigurationError,
    FlussError,
    NetworkError,
)
from sluice.model import TableDescriptor
from sluice.server.cluster import EmbeddedCluster
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import Role
from sluice.wire.error_codes import ERROR_KEY
from sluice.wire.listeners.access import NEEDS, Access
from sluice.wire.messages import frames
from sluice.wire.native.connection import LOGIN_BYTES_MAX
from sluice.wire.native.sasl import AUTHENTICATE
from tests.support.clients.official_client import OfficialClient
from tests.support.fluss.native_call import NativeCall
from tests.support.harness.needs import needs_pyfluss
from tests.support.network.certificates import authority
from tests.support.network.users import ANY_TOKEN, TOKENS, write_users
from tests.unit.server.support import LOG_TABLE, PATH, config

ROWS = pa.table({"id": range(10), "text": [f"t{i}" for i in range(10)]})
LIST = pb.ListDatabasesRequest()


@pytest.fixture
def guarded(tmp_path: Path) -> ServerConfig:
    files = authority().sign(tmp_path / "tls")
    return config(
        tmp_path / "data",
        listen="grpc://127.0.0.1:0,fluss://127.0.0.1:0",
        tls_certificate=str(files.certificate),
        tls_key=str(files.key),
        users_file=str(write_users(tmp_path / "users")),
    )


@pytest.fixture
def cluster(guarded: ServerConfig) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(guarded) as cluster:
        yield cluster


def over_grpc(cluster: EmbeddedCluster, role: str = "") -> Client:
    token = ANY_TOKEN.get(role, "")
    return connect(ClientConfig(cluster.addresses[0], token=token, tls_ca=authority().pem))


def over_fluss(cluster: EmbeddedCluster, name: str = "", password: str | None = None) -> Client:
    password = TOKENS[name][1] if name and password is None else password
    address = cluster.addresses[1]
    return connect(ClientConfig(address, username=name, password=password or ""))


@pytest.fixture
def channel(cluster: EmbeddedCluster) -> Iterator[Any]:
    credentials = grpc.ssl_channel_credentials(authority().pem.encode())
    target = cluster.addresses[0].removeprefix("grpc://")
    with grpc.secure_channel(target, credentials) as channel:
        yield channel


def native_ports(cluster: EmbeddedCluster) -> dict[Role, int]:
    with over_fluss(cluster, "ria") as client:
        [tablet] = client._connection._servers().tablets.values()
    coordinator = urlsplit(cluster.addresses[1]).port
    assert coordinator is not None
    return {Role.COORDINATOR: coordinator, Role.TABLET: tablet.port}


def test_the_way_of_the_data_by_roles(cluster: EmbeddedCluster) -> None:
    for reach, names in (
        (over_grpc, ("admin", "write", "read")),
        (over_fluss, ("ada", "wim", "ria")),
    ):
        admin, writer, reader = names
        with reach(cluster, admin) as client:
            client.admin.create_database("db")
            client.admin.create_table(PATH, TableDescriptor(LOG_TABLE.schema))
        with reach(cluster, writer) as client, client.log_writer(PATH) as log:
            log.write(ROWS)
        with reach(cluster, writer) as client, pytest.raises(AuthorizationError, match="admin"):
            client.admin.drop_table(PATH)
        with reach(cluster, reader) as client:
            assert list(client.admin.list_offsets(PATH, [0]).values()) == [10]
            with (
                pytest.raises(AuthorizationError, match="InitWriter needs the role write"),
                client.log_writer(PATH) as log,
            ):
                log.write(ROWS)
        with reach(cluster, admin) as client:
            client.admin.drop_table(PATH)
            client.admin.drop_database("db")


@pytest.mark.parametrize("token", ["", *TOKENS])
def test_each_call_over_grpc_asks_for_its_role(channel: Any, token: str) -> None:
    access = Access[TOKENS[token][0].upper()] if token else 0
    metadata = [("authorization", f"Bearer {TOKENS[token][1]}")] if token else None
    seen = set()
    for api, need in NEEDS.items():
        for role in api.roles:
            method = channel.unary_unary(api.grpc_method(role))
            try:
                method(b"\xff\xff", timeout=60, metadata=metadata)
            except grpc.RpcError as error:
                code = _code(error)
            else:
                pytest.fail(f"{api.name} took bytes that are no message")
            refused = 46 if not token else 48 if access < need else None
            assert code == refused if refused else code not in (46, 48), (api.name, code)
            seen.add(code)
    assert seen >= ({46} if not token else {3} if token == "ada" else {3, 48})


def _code(error: Any) -> int | None:
    found = dict(error.trailing_metadata() or ()).get(ERROR_KEY)
    code = pb.ErrorResponse.FromString(found).error_code if found else None
    status = {46: grpc.StatusCode.UNAUTHENTICATED, 48: grpc.StatusCode.PERMISSION_DENIED}
    assert code not in status or error.code() is status[code]
    return code


@pytest.mark.parametrize("name", ["", *TOKENS])
def test_each_call_over_fluss_asks_for_its_role(cluster: EmbeddedCluster, name: str) -> None:
    access = Access[TOKENS[name][0].upper()] if name else 0
    seen = set()
    for role, port in native_ports(cluster).items():
        with NativeCall(port, timeout_s=60) as call:
            offered = {v.api_key for v in call.call(apis.API_VERSIONS, _hello()).api_versions}
        calls = [api for api in NEEDS if api.key in offered and role in api.roles]
        calls.remove(apis.API_VERSIONS)
        with ExitStack() as opened:
            for number, api in enumerate(calls):
                if not name or not number:  # a refused stranger must connect again
                    call = opened.enter_context(NativeCall(port, timeout_s=60))
                if name and not number:
                    call.call(AUTHENTICATE, _plain(name, TOKENS[name][1]))
                code = _code_over_fluss(call, api)
                refused = 46 if not name else 48 if access < NEEDS[api] else None
                assert code == refused if refused else code not in (46, 48), (api.name, code)
                seen.add(code)
    assert 46 in seen if not name else (48 in seen) == (name != "ada")


def _code_over_fluss(call: NativeCall, api: apis.Api) -> int:
    try:
        call.call(api, pb.ErrorResponse(error_code=1, error_message="\0" * 3))
    except FlussError as error:
        return error.code
    return 0


def _hello() -> pb.ApiVersionsRequest:
    return pb.ApiVersionsRequest(client_software_name="t", client_software_version="1")


def _plain(name: str, password: str, protocol: str = "PLAIN") -> pb.AuthenticateRequest:
    return pb.AuthenticateRequest(protocol=protocol, token=f"\0{name}\0{password}".encode())


def test_a_login_that_fails_is_answered_and_ends_the_connection(cluster: EmbeddedCluster) -> None:
    port = native_ports(cluster)[Role.COORDINATOR]
    for wrong, why in (
        (_plain("ria", "guessed"), "user or password is wrong"),
        (_plain("ria", TOKENS["ria"][1], "SCRAM-SHA-256"), "only PLAIN"),
        (_plain("ria", "", "PLAINTEXT"), "only PLAIN"),
        (pb.AuthenticateRequest(protocol="PLAIN", token=b"ria"), "with NUL between"),
        (pb.AuthenticateRequest(protocol="PLAIN", token=b"\0\xff\0x"), "with NUL between"),
        (pb.AuthenticateRequest(protocol="PLAIN", token=b"ada\0ria\0x"), "cannot act as"),
    ):
        with NativeCall(port, timeout_s=60) as call:
            with pytest.raises(AuthenticateError, match=why) as caught:
                call.call(AUTHENTICATE, wrong)
            assert "guessed" not in str(caught.value)
            with pytest.raises(NetworkError):
                call.call(apis.API_VERSIONS, _hello())
    with NativeCall(port, timeout_s=60) as call:
        with pytest.raises(AuthenticateError, match="ListDatabases: log in first by SASL PLAIN"):
            call.call(apis.LIST_DATABASES, LIST)
        with pytest.raises(NetworkError):
            call.call(AUTHENTICATE, _plain("ria", TOKENS["ria"][1]))
    with NativeCall(port, timeout_s=60) as call:
        answer = call.call(AUTHENTICATE, _plain("ria", TOKENS["ria"][1], "plain"))
        assert (answer.HasField("challenge"), answer.challenge) == (True, b"")
        assert call.call(apis.LIST_DATABASES, LIST).database_name == ["fluss"]


def test_a_look_up_that_inserts_rows_is_for_writers(cluster: EmbeddedCluster) -> None:
    request = pb.LookupRequest(table_id=4711, insert_if_not_exists=True, acks=-1)
    request.buckets_req.add(bucket_id=0, keys=[b"key"])
    readers = (over_grpc(cluster, "read"), over_fluss(cluster, "ria"))
    for client in readers:
        with client, pytest.raises(AuthorizationError, match="needs the role write; 'ria' may"):
            client._connection.call_tablet(apis.LOOKUP, request, lambda answer: answer)
    for client in (over_grpc(cluster, "write"), over_fluss(cluster, "wim")):
        with client:
            answer = client._connection.call_tablet(apis.LOOKUP, request, lambda answer: answer)
            assert "4711" in answer.buckets_resp[0].error_message


def test_a_second_login_changes_nothing(cluster: EmbeddedCluster) -> None:
    create = pb.CreateDatabaseRequest(database_name="x", ignore_if_exists=False)
    with NativeCall(native_ports(cluster)[Role.COORDINATOR], timeout_s=60) as call:
        assert call.call(AUTHENTICATE, _plain("ria", TOKENS["ria"][1])).HasField("challenge")
        for more in (_plain("ada", TOKENS["ada"][1]), _plain("", "")):
            assert not call.call(AUTHENTICATE, more).HasField("challenge")
        with pytest.raises(AuthorizationError, match="'ria' has the role read"):
            call.call(apis.CREATE_DATABASE, create)


def test_a_stranger_gets_no_memory(cluster: EmbeddedCluster) -> None:
    port = native_ports(cluster)[Role.COORDINATOR]
    with NativeCall(port, timeout_s=60) as call:
        call._socket.sendall(frames.request_prefix(apis.LIST_DATABASES.key, 0, 1, LOGIN_BYTES_MAX))
        with pytest.raises(AuthenticateError, match=r"before the login, where the limit is 65,536"):
            call.call(apis.LIST_DATABASES, LIST)


def test_a_withdrawn_user_is_out_at_once_on_a_standing_connection(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    with over_fluss(cluster, "ria") as native, over_grpc(cluster, "read") as client:
        assert native.admin.list_databases() == client.admin.list_databases() == ["fluss"]
        write_users(tmp_path / "users", {"ada": TOKENS["ada"]})
        with pytest.raises(AuthenticateError, match="'ria' was withdrawn"):
            native.admin.list_databases()
        with pytest.raises(AuthenticateError, match="withdrawn"):
            client.admin.list_databases()


def test_a_client_without_or_with_a_wrong_login(cluster: EmbeddedCluster) -> None:
    with over_grpc(cluster) as client, pytest.raises(AuthenticateError, match=r"set client\.token"):
        client.admin.list_databases()
    with over_fluss(cluster) as client, pytest.raises(AuthenticateError, match="log in first"):
        client.admin.list_databases()
    with (
        over_fluss(cluster, "ria", "guessed") as client,
        pytest.raises(AuthenticateError, match="user or password is wrong"),
    ):
        client.admin.list_databases()


def test_health_is_for_everybody_reflection_is_not(channel: Any) -> None:
    stub = health_pb2_grpc.HealthStub(channel)
    answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=60)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING
    with pytest.raises(grpc.RpcError) as caught:
        ProtoReflectionDescriptorDatabase(channel).get_services()
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    with_token = grpc.intercept_channel(channel, _WithToken())
    services = ProtoReflectionDescriptorDatabase(with_token).get_services()
    assert "fluss.TabletService" in services


class _WithToken(grpc.StreamStreamClientInterceptor):
    def intercept_stream_stream(self, continuation: Any, details: Any, requests: Any) -> Any:
        metadata = [("authorization", f"Bearer {ANY_TOKEN['read']}")]
        return continuation(details._replace(metadata=metadata), requests)


@needs_pyfluss
def test_the_official_client_logs_in(cluster: EmbeddedCluster) -> None:
    with over_grpc(cluster, "admin") as client:
        client.admin.create_database("db")
        client.admin.create_table(PATH, TableDescriptor(LOG_TABLE.schema))
    login = {
        "security.protocol": "sasl",
        "security.sasl.mechanism": "PLAIN",
        "security.sasl.username": "wim",
        "security.sasl.password": TOKENS["wim"][1],
    }
    OfficialClient(cluster.addresses[1], login).append(str(PATH), ROWS)
    with over_fluss(cluster, "ria") as client:
        assert client.admin.list_offsets(PATH, [0]) == {0: 10}


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"tls_certificate": "a"}, r"server\.tls_key is not set"),
        ({"tls_key": "a"}, r"server\.tls_certificate is not set"),
        ({"tls_certificate": "a", "tls_key": "b"}, r"server\.tls_certificate: a: No such file"),
        ({"users_file": "a"}, r"server\.users_file: a: No such file"),
    ],
)
def test_settings_that_cannot_be_used(tmp_path: Path, settings: Any, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        EmbeddedCluster(config(tmp_path / "data", **settings))
    assert not (tmp_path / "data").exists()


def test_an_open_address_is_guarded(
    guarded: ServerConfig, start: Callable[..., Any], tmp_path: Path
) -> None:
    """0.0.0.0 without --insecure, because both listeners ask who is there."""
    node = start(
        listen="grpc://0.0.0.0:0,fluss://0.0.0.0:0",
        tls_certificate=guarded.tls_certificate,
        tls_key=guarded.tls_key,
        users_file=guarded.users_file,
    )
    port = urlsplit(node.cluster.addresses[0]).port
    address = f"grpc://127.0.0.1:{port}"
    token = ANY_TOKEN["read"]
    with connect(ClientConfig(address, token=token, tls_ca=authority().pem)) as client:
        assert client.admin.list_databases() == ["fluss"]
    assert hashlib.sha256(token.encode()).hexdigest() in (tmp_path / "users").read_text()
