"""The connection against bare servers: leaders, offered calls, what is sent again and what not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sluice.client.connection.connection import Connection
from sluice.config import ClientConfig
from sluice.errors import (
    DatabaseNotExist,
    FlussError,
    NetworkError,
    NotLeaderOrFollower,
    RequestTimeOut,
    SchemaNotExist,
    TableNotExist,
    UnknownServerError,
    UnknownTableOrBucket,
    UnsupportedVersion,
    WrongProtocol,
)
from sluice.model import TableBucket, TablePath
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import Api, Role
from sluice.wire.error_codes import put_error, raise_in_body
from tests.support.network.ports import kept_port
from tests.support.network.wire_server import Handler, WireServer

PATH = TablePath("shop", "orders")
BUCKET = TableBucket(1, None, 0)
OFFSETS = pb.ListOffsetsRequest(follower_server_id=-1, offset_type=1, table_id=1, bucket_id=[0])


def connection_to(server: WireServer, **config: Any) -> Connection:
    """Waits take no time; three of four tries are over after the retry time-out's 20 s."""
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += 5

    given = {"retry_timeout_ms": 20_000, "request_timeout_ms": 60_000, **config}
    return Connection(
        ClientConfig(bootstrap=server.address, **given),
        sleep=sleep,
        now=lambda: now[0],
        random=lambda: 1.0,
    )


def coordinator(api: Api, handler: Handler, port: int = 0) -> WireServer:
    return WireServer({(Role.COORDINATOR, api): handler}, port=port)


def ask(connection: Connection, api: Api, request: Any, **options: Any) -> Any:
    return connection.call_coordinator(api, request, lambda reply: reply, **options)


def first_answer(reply: Any) -> int:
    raise_in_body(reply.buckets_resp[0])
    return int(reply.buckets_resp[0].offset)


def failing(times: int, error: Exception, answer: Any) -> Callable[[Any], Any]:
    left = [error] * times

    def handle(_: Any) -> Any:
        if left:
            raise left.pop()
        return answer

    return handle


def test_nothing_is_sent_before_the_first_call_and_little_afterwards() -> None:
    with coordinator(apis.LIST_DATABASES, lambda _: pb.ListDatabasesResponse()) as server:
        connection = connection_to(server)
        assert server.calls == []
        for _ in range(3):
            ask(connection, apis.LIST_DATABASES, pb.ListDatabasesRequest())
        assert [name for _, name, _ in server.calls] == [
            "GetMetadata",
            "ApiVersions",
            *["ListDatabases"] * 3,
        ]
        connection.close()


def test_a_call_that_the_server_does_not_offer_is_never_sent() -> None:
    with WireServer({}) as server:
        connection = connection_to(server)
        with pytest.raises(UnsupportedVersion, match=r"ListTieringStatuses \(api key 2001\)"):
            ask(connection, apis.LIST_TIERING_STATUSES, pb.ListTieringStatusesRequest())
        assert server.count(apis.LIST_TIERING_STATUSES) == 0
        connection.close()


def test_a_read_is_repeated_until_it_is_answered() -> None:
    answer = pb.ListDatabasesResponse(database_name=["shop"])
    handler = failing(3, NetworkError("restarting"), answer)
    with coordinator(apis.LIST_DATABASES, handler) as server:
        connection = connection_to(server)
        reply = ask(connection, apis.LIST_DATABASES, pb.ListDatabasesRequest())
        assert reply.database_name == ["shop"]
        assert server.count(apis.LIST_DATABASES) == 4
        connection.close()


def test_a_write_with_an_unknown_outcome_is_not_repeated() -> None:
    handler = failing(1, RequestTimeOut("too late"), pb.CreateDatabaseResponse())
    with coordinator(apis.CREATE_DATABASE, handler) as server:
        connection = connection_to(server)
        request = pb.CreateDatabaseRequest(database_name="shop", ignore_if_exists=False)
        with pytest.raises(RequestTimeOut, match="too late"):
            ask(connection, apis.CREATE_DATABASE, request)
        assert server.count(apis.CREATE_DATABASE) == 1
        ask(connection, apis.CREATE_DATABASE, request)
        connection.close()


def test_a_refusal_is_not_repeated() -> None:
    handler = failing(1, DatabaseNotExist("no database shop"), pb.ListTablesResponse())
    with coordinator(apis.LIST_TABLES, handler) as server:
        connection = connection_to(server)
        with pytest.raises(DatabaseNotExist, match="^no database shop$"):
            ask(connection, apis.LIST_TABLES, pb.ListTablesRequest(database_name="shop"))
        assert server.count(apis.LIST_TABLES) == 1
        connection.close()


def test_a_server_that_is_down_is_given_up_in_time_with_its_address() -> None:
    request = pb.CreateDatabaseRequest(database_name="shop", ignore_if_exists=False)
    with kept_port() as port:
        with WireServer({}, port=port) as server:
            pass
        connection = connection_to(server)
        with pytest.raises(NetworkError, match=r"gave up after \d attempts") as caught:
            ask(connection, apis.CREATE_DATABASE, request)
    assert f"nothing listens at 127.0.0.1:{port}: " in str(caught.value)
    connection.close()


def test_every_address_of_a_cluster_that_is_down_is_named_once() -> None:
    with kept_port() as one, kept_port() as two:
        config = ClientConfig(f"fluss://127.0.0.1:{one},127.0.0.1:{two}", retry_timeout_ms=0)
        connection = Connection(config)
        with pytest.raises(NetworkError) as caught:
            ask(connection, apis.LIST_DATABASES, pb.ListDatabasesRequest())
        connection.close()
    assert str(caught.value) == "; ".join(
        f"nothing listens at 127.0.0.1:{port}: connection refused" for port in (one, two)
    )


def test_a_grpc_server_of_something_else_is_no_cluster() -> None:
    def unknown(_: Any) -> Any:
        raise UnsupportedVersion("Method not found!")

    handlers: dict[tuple[Role, Api], Handler] = {
        (role, apis.GET_METADATA): unknown for role in Role
    }
    with WireServer(handlers) as server:
        connection = connection_to(server)
        with pytest.raises(WrongProtocol, match=r"is a gRPC or HTTP/2 server, but not Sluice's"):
            ask(connection, apis.LIST_DATABASES, pb.ListDatabasesRequest())
        connection.close()


def test_a_coordinator_that_is_still_starting_is_asked_again() -> None:
    """Fluss 0.9.1 says so with code -1, which alone would never be retried."""
    said = "java.lang.IllegalStateException: CoordinatorEventProcessor is not initialized yet."
    answers: list[Any] = [UnknownServerError(said), pb.ListDatabasesResponse(database_name=["a"])]

    def starting(_: Any) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    with coordinator(apis.LIST_DATABASES, starting) as server:
        connection = connection_to(server)
        reply = ask(connection, apis.LIST_DATABASES, pb.ListDatabasesRequest())
        assert list(reply.database_name) == ["a"]
        connection.close()


def test_only_a_server_that_has_answered_before_is_waited_for_at_length() -> None:
    waited = {}
    for answers_once in (False, True):
        clock = [0.0]

        def sleep(seconds: float, clock: list[float] = clock) -> None:
            clock[0] += seconds

        with kept_port() as port:
            config = ClientConfig(
                f"grpc://127.0.0.1:{port}", retry_timeout_ms=60_000, connect_timeout_ms=3_000
            )
            connection = Connection(
                config, sleep=sleep, now=lambda clock=clock: clock[0], random=lambda: 1.0
            )
            if answers_once:
                with coordinator(apis.LIST_DATABASES, lambda _: pb.ListDatabasesResponse(), port):
                    ask(connection, apis.LIST_DATABASES, pb.ListDatabasesRequest())
            with pytest.raises(NetworkError):
                ask(connection, apis.LIST_DATABASES, pb.ListDatabasesRequest())
            connection.close()
        waited[answers_once] = clock[0]
    assert waited[False] <= 3 < 50 < waited[True] <= 60


def test_a_bucket_that_moved_is_followed_to_its_new_leader() -> None:
    answer = pb.ListOffsetsResponse()
    answer.buckets_resp.add(bucket_id=0, offset=42)

    def refuse(_: Any) -> Any:
        reply = pb.ListOffsetsResponse()
        put_error(reply.buckets_resp.add(bucket_id=0), NotLeaderOrFollower("moved"))
        return reply

    with WireServer({(Role.TABLET, apis.LIST_OFFSETS): lambda _: answer}) as new:
        leader = ["old"]

        def metadata(request: Any) -> Any:
            reply = pb.MetadataResponse()
            for node_id, port in ((1, old.port), (2, new.port)):
                reply.tablet_servers.add(node_id=node_id, host="127.0.0.1", port=port)
            for path in request.table_path:
                table = reply.table_metadata.add(
                    table_path=path,
                    table_id=1,
                    schema_id=1,
                    table_json=b"",
                    created_time=0,
                    modified_time=0,
                )
                table.bucket_metadata.add(bucket_id=0, leader_id=1 if leader == ["old"] else 2)
            leader[:] = ["new"] if request.table_path else leader
            return reply

        handlers = {
            (Role.TABLET, apis.LIST_OFFSETS): refuse,
            (Role.COORDINATOR, apis.GET_METADATA): metadata,
        }
        with WireServer(handlers) as old:
            connection = connection_to(old)
            for _ in range(2):
                found = connection.call_leader(
                    PATH, BUCKET, apis.LIST_OFFSETS, OFFSETS, first_answer
                )
                assert found == 42
            assert old.count(apis.LIST_OFFSETS) == 1
            assert new.count(apis.LIST_OFFSETS) == 2
            connection.close()


def test_a_table_that_was_dropped_and_created_again_is_not_mistaken() -> None:
    with WireServer({(Role.TABLET, apis.LIST_OFFSETS): lambda _: None}) as server:
        connection = connection_to(server)
        with pytest.raises(TableNotExist, match=r"shop\.orders of id 77 was dropped"):
            connection.leader(PATH, TableBucket(77, None, 0))
        with pytest.raises(UnknownTableOrBucket, match="no bucket 1:9; it has 2 buckets"):
            connection.call_leader(
                PATH, TableBucket(1, None, 9), apis.LIST_OFFSETS, OFFSETS, first_answer
            )
        assert server.count(apis.LIST_OFFSETS) == 0
        connection.close()


@pytest.mark.parametrize("error", [UnknownTableOrBucket("x"), SchemaNotExist("x")])
def test_a_leader_that_has_not_heard_of_bucket_or_schema_is_waited_for(error: FlussError) -> None:
    unknown = pb.ListOffsetsResponse()
    put_error(unknown.buckets_resp.add(bucket_id=0), error)
    answer = pb.ListOffsetsResponse()
    answer.buckets_resp.add(bucket_id=0, offset=7)
    left = [unknown] * 20
    handlers = {(Role.TABLET, apis.LIST_OFFSETS): lambda _: left.pop() if left else answer}
    with WireServer(handlers) as server:
        connection = connection_to(server, retry_timeout_ms=600_000)
        found = connection.call_leader(PATH, BUCKET, apis.LIST_OFFSETS, OFFSETS, first_answer)
        assert found == 7
        assert server.count(apis.LIST_OFFSETS) == 21
        connection.close()


def test_a_closed_client_says_so_at_once() -> None:
    with WireServer({}) as server:
        connection = connection_to(server)
        connection.close()
        with pytest.raises(NetworkError, match="the client was closed"):
            ask(connection, apis.LIST_DATABASES, pb.ListDatabasesRequest())
        assert server.calls == []


def test_the_bootstrap_address_may_be_a_tablet_server() -> None:
    def none(_: Any) -> Any:
        raise UnsupportedVersion("not a coordinator")

    answer = pb.ListOffsetsResponse()
    answer.buckets_resp.add(bucket_id=0, offset=7)
    handlers = {
        (Role.COORDINATOR, apis.GET_METADATA): none,
        (Role.TABLET, apis.LIST_OFFSETS): lambda _: answer,
    }
    with WireServer(handlers) as server:
        connection = connection_to(server)
        assert connection.call_leader(PATH, BUCKET, apis.LIST_OFFSETS, OFFSETS, first_answer) == 7
        connection.close()


@pytest.mark.parametrize(
    ("exists", "expected"), [(False, TableNotExist), (True, UnknownServerError)]
)
def test_a_server_that_says_nothing_of_a_dropped_table(exists: bool, expected: type) -> None:
    """Fluss 0.9.1 answers a question for the leaders of a missing table with a stack trace."""

    def metadata(request: pb.MetadataRequest) -> pb.MetadataResponse:
        if request.table_path:
            raise UnknownServerError("java.lang.RuntimeException: Failed to get tables")
        node = pb.PbServerNode(node_id=0, host="127.0.0.1", port=server.port)
        return pb.MetadataResponse(coordinator_server=node, tablet_servers=[node])

    handlers: Any = {
        (Role.COORDINATOR, apis.GET_METADATA): metadata,
        (Role.COORDINATOR, apis.TABLE_EXISTS): lambda _: pb.TableExistsResponse(exists=exists),
    }
    with WireServer(handlers) as server, pytest.raises(expected):
        connection_to(server).leader(PATH, BUCKET)
