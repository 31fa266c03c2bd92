"""Which fetches may wait for data: who waits much keeps no other user or host from waiting."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from sluice.server.cluster import EmbeddedCluster
from sluice.server.tablet.logs import fetch
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import Role
from sluice.wire.grpc.transport import GrpcTransport
from tests.support.network.http2_peer import Http2Peer
from tests.support.network.native_listener import Peer
from tests.support.network.users import TOKENS, write_users
from tests.support.programs.processes import wait_for
from tests.unit.server.support import Caller, Node, batch, config

WORKERS = 8
PLACES = WORKERS // 2
"""Fetches that wait at once."""
HELLO = pb.ApiVersionsRequest(client_software_name="test", client_software_version="1")


class UserCaller(Caller):
    def __init__(self, address: str, user: str) -> None:
        super().__init__(address)
        self.transport.close()
        host, port = address.removeprefix("grpc://").rsplit(":", 1)
        token = TOKENS[user][1]
        self.transport = GrpcTransport(address, host, int(port), 64 << 20, token=token)


class Users:
    """A server with three users, whose fetches wait for the data of one empty table."""

    def __init__(self, cluster: EmbeddedCluster, pool: ThreadPoolExecutor) -> None:
        callers = [UserCaller(cluster.address, user) for user in ("ada", "ria", "wim")]
        self.admin, self.greedy, self.small = callers
        self.table = self.admin.create_table()
        assert cluster._parts is not None
        self.waits = cluster._parts._fetcher._waiters
        self._pool = pool

    def waiting(self, caller: UserCaller) -> Future[bytes]:
        """The records of a fetch that has begun."""
        return self._pool.submit(
            lambda: caller.fetch(self.table, 0, min_bytes=1, max_wait_ms=200_000).records
        )

    def close(self) -> None:
        for caller in (self.admin, self.greedy, self.small):
            caller.transport.close()


@contextmanager
def users_of(tmp_path: Path, places: int) -> Iterator[Users]:
    settings = config(
        tmp_path / "data", users_file=str(write_users(tmp_path / "users")), max_workers=2 * places
    )
    with (
        ThreadPoolExecutor(20) as pool,
        EmbeddedCluster(settings) as cluster,
        closing(Users(cluster, pool)) as users,
    ):
        yield users


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has to be quick."""
    monkeypatch.setattr(fetch, "WAIT_MAX_MS", 200_000)


def test_a_user_with_all_waits_gives_one_to_another(tmp_path: Path) -> None:
    with users_of(tmp_path, PLACES) as users:
        many = [users.waiting(users.greedy) for _ in range(PLACES)]
        wait_for("all places", lambda: len(users.waits) == PLACES)
        one_more = users.waiting(users.greedy)
        assert one_more.result(60) == b"", "one more of the same user does not wait"
        assert not any(one.done() for one in many)

        own = [users.waiting(users.small)]
        early, _ = wait(many, 60, FIRST_COMPLETED)
        assert [one.result() for one in early] == [b""], "one has made room"
        own.append(users.waiting(users.small))
        wait_for("the next", lambda: sum(one.done() for one in many) == 2)
        wait_for("both", lambda: list(users.waits.values()).count("wim@127.0.0.1") == 2)
        assert users.waiting(users.small).result(60) == b"", "both users have half"
        assert not any(one.done() for one in own)

        users.admin.produce(users.table, batch("a"))
        assert all(one.result(60) for one in own)
        assert [bool(one.result(60)) for one in many].count(True) == PLACES - 2
        wait_for("no wait", lambda: not users.waits)


def test_the_odd_place_stays_whose_it_is(tmp_path: Path) -> None:
    """Else each takes it from the other with its next fetch, for ever."""
    with users_of(tmp_path, 3) as users:
        many = [users.waiting(users.greedy) for _ in range(3)]
        wait_for("all places", lambda: len(users.waits) == 3)
        own = users.waiting(users.small)
        early, late = wait(many, 60, FIRST_COMPLETED)
        assert [one.result() for one in early] == [b""], "one has made room"
        for caller in (users.small, users.greedy, users.small):
            again = users.waiting(caller)
            ended, _ = wait([again, own, *late], 60, FIRST_COMPLETED)
            assert ended == {again}
        users.admin.produce(users.table, batch("a"))
        assert all(one.result(60) for one in (own, *late))


def fetch_that_waits(table_id: int) -> pb.FetchLogRequest:
    request = pb.FetchLogRequest(
        follower_server_id=-1, max_bytes=1 << 20, min_bytes=1, max_wait_ms=200_000
    )
    table = request.tables_req.add(table_id=table_id, projection_pushdown_enabled=False)
    table.buckets_req.add(bucket_id=0, fetch_offset=0, max_fetch_bytes=1 << 20)
    return request


def native_port(node: Node) -> int:
    """That of the tablet server."""
    coordinator = Peer(int(node.cluster.addresses[1].rpartition(":")[2]))
    coordinator.send(apis.API_VERSIONS, HELLO)
    coordinator.receive()
    coordinator.send(apis.GET_METADATA, pb.MetadataRequest())
    _, body = coordinator.receive()
    coordinator.socket.close()
    return int(pb.MetadataResponse.FromString(body).tablet_servers[0].port)


@pytest.mark.parametrize("protocol", ["grpc", "fluss"])
def test_a_host_with_all_waits_gives_one_to_another(
    start: Callable[..., Node], protocol: str
) -> None:
    """Nobody logs in, so all callers are the same nobody."""
    node = start(listen="grpc://127.0.0.1:0,fluss://127.0.0.1:0", max_workers=WORKERS)
    message = fetch_that_waits(node.caller.create_table())
    assert node.cluster._parts is not None
    waits = node.cluster._parts._fetcher._waiters
    with ExitStack() as stack:

        def begin(host: str) -> None:
            if protocol == "fluss":
                native = Peer(native_port(node), source=host)
                stack.callback(native.socket.close)
                native.send(apis.API_VERSIONS, HELLO)
                native.receive()
                native.send(apis.FETCH_LOG, message)
            else:
                port = int(node.caller.address.rpartition(":")[2])
                peer = Http2Peer(port, source=host)
                stack.callback(peer.close)
                call = peer.begin(apis.FETCH_LOG.grpc_method(Role.TABLET))
                peer.message(call, message.SerializeToString())

        for _ in range(PLACES):
            begin("127.0.0.2")
        wait_for("all places", lambda: len(waits) == PLACES)
        first = next(iter(waits))
        begin("127.0.0.3")
        wait_for("the other host's", lambda: first not in waits and len(waits) == PLACES)
        assert list(waits.values()) == ["@127.0.0.2"] * (PLACES - 1) + ["@127.0.0.3"]
        node.caller.produce(message.tables_req[0].table_id, batch("a"))
        wait_for("no wait", lambda: not waits)
