"""Coordinators and leaders of buckets that move, die or are deposed: the new one is found."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sluice.client import LogReader, connect
from sluice.config import ClientConfig, ServerConfig
from sluice.errors import NotCoordinatorLeader, UnknownTableOrBucket
from sluice.server.cluster import EmbeddedCluster
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from tests.support.network.fetch_server import INFO, batch, ids
from tests.support.network.native_peer import Peer, PeerServer, hello, serving

NOT_COORDINATOR_LEADER = 65


def metadata(coordinator: int, tablets: dict[int, int], leader: int) -> pb.MetadataResponse:
    """One table with one bucket, on servers of these ports by their ids."""
    node = pb.PbServerNode(node_id=-1, host="127.0.0.1", port=coordinator)
    reply = pb.MetadataResponse(coordinator_server=node)
    for number, port in tablets.items():
        reply.tablet_servers.add(node_id=number, host="127.0.0.1", port=port)
    table = reply.table_metadata.add(
        table_path=pb.PbTablePath(database_name="db", table_name="t"),
        table_id=1,
        schema_id=1,
        table_json=b"{}",
        created_time=0,
        modified_time=0,
    )
    table.bucket_metadata.add(bucket_id=0, leader_id=leader)
    return reply


@pytest.mark.parametrize("end", ["not leader", "dies"])
def test_a_leader_that_moves_during_a_fetch_is_followed(end: str) -> None:
    asked: list[tuple[int, int]] = []
    leader = 1

    def fetch(number: int, request: Any) -> pb.FetchLogResponse:
        nonlocal leader
        offset = request.tables_req[0].buckets_req[0].fetch_offset
        asked.append((number, offset))
        reply = pb.FetchLogResponse()
        bucket = reply.tables_resp.add(table_id=1).buckets_resp.add(bucket_id=0)
        if number != leader or (number == 1 and offset == 20):
            leader = 2
            if end == "dies":
                raise ConnectionError
            bucket.error_code = 12
        else:
            bucket.records = batch(offset, 10)
        return reply

    def tablet(number: int) -> PeerServer:
        return PeerServer(serving({apis.FETCH_LOG: lambda request: fetch(number, request)}))

    with tablet(1) as one, tablet(2) as two:
        tablets = {1: one.port, 2: two.port}

        def answer(_: Any) -> pb.MetadataResponse:
            return metadata(coordinator.port, tablets, leader)

        with (
            PeerServer(serving({apis.GET_METADATA: answer}, server_type=1)) as coordinator,
            connect(f"fluss://127.0.0.1:{coordinator.port}") as client,
        ):
            reader = LogReader(client._connection, client.admin, INFO.path, INFO)
            assert ids(reader, 0, 40) == list(range(40))
    assert asked == [(1, 0), (1, 10), (1, 20), (2, 20), (2, 30)]


def test_a_coordinator_that_dies_is_found_again_through_the_tablet_servers() -> None:
    """Its successor is elsewhere; the bootstrap address stays dead."""
    databases = {apis.LIST_DATABASES: lambda _: pb.ListDatabasesResponse(database_name=["db"])}
    successor: list[int] = []

    def answer(_: Any) -> pb.MetadataResponse:
        return metadata(successor[0], {1: tablet.port}, 1)

    with PeerServer(serving({apis.GET_METADATA: answer})) as tablet:
        script = serving({apis.GET_METADATA: answer, **databases}, server_type=1)
        with PeerServer(script) as first, PeerServer(script) as second:
            successor.append(first.port)
            with connect(f"fluss://127.0.0.1:{first.port}") as client:
                assert client.admin.list_databases() == ["db"]
                successor[0] = second.port
                first.__exit__()
                assert client.admin.list_databases() == ["db"]
                assert second.connections == 1


def test_any_of_several_bootstrap_addresses_serves(tmp_path: Path) -> None:
    config = ServerConfig(data_dir=str(tmp_path / "data"), listen="fluss://127.0.0.1:0")
    with PeerServer(lambda peer: None) as dead, EmbeddedCluster(config) as cluster:
        text = f"fluss://127.0.0.1:{dead.port},{cluster.address.removeprefix('fluss://')}"
        with connect(text) as client:
            assert client.admin.list_databases() == ["fluss"]


class Coordinator:
    """A coordinator's port; deposed, it lives on and answers error 65 to all but ApiVersions."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.asked: list[str] = []
        self.deposed = False
        self.stale = False
        """Whether it goes on answering questions for metadata even then."""
        self.leader: Callable[[], int] = lambda: 0
        self.tablets: dict[int, int] = {}

    def __call__(self, peer: Peer) -> None:
        while (got := peer.request()) is not None:
            head, _ = got
            if head.api_key == apis.API_VERSIONS.key:
                peer.answer(head, hello(server_type=1))
                continue
            self.asked.append(apis.BY_KEY[head.api_key].name)
            about_servers = head.api_key == apis.GET_METADATA.key
            if self.deposed and not (about_servers and self.stale):
                peer.error(head, NOT_COORDINATOR_LEADER, f"{self.name} is not the leader")
            elif about_servers:
                peer.answer(head, metadata(self.leader(), self.tablets, 1))
            elif head.api_key == apis.CREATE_DATABASE.key:
                peer.answer(head, pb.CreateDatabaseResponse())
            else:
                peer.answer(head, pb.ListDatabasesResponse(database_name=[self.name]))


def test_a_coordinator_that_never_led_is_asked_once() -> None:
    deposed, leading = Coordinator("deposed"), Coordinator("leading")
    deposed.deposed = True
    with PeerServer(deposed) as first, PeerServer(leading) as second:
        leading.leader = lambda: second.port
        with connect(f"fluss://127.0.0.1:{first.port},127.0.0.1:{second.port}") as client:
            assert client.admin.list_databases() == ["leading"]
            client._connection._forget_servers()
            assert client.admin.list_databases() == ["leading"]
            client.admin.create_database("new")
    assert deposed.asked == ["GetMetadata"]


@pytest.mark.parametrize("stale", [False, True])
def test_a_coordinator_that_was_deposed_is_left_for_its_successor(stale: bool) -> None:
    """A deposed one may still take itself for the leader when it is asked for metadata."""
    old, new = Coordinator("old"), Coordinator("new")
    with PeerServer(old) as first, PeerServer(new) as second:
        old.leader, new.leader = lambda: first.port, lambda: second.port
        with connect(f"fluss://127.0.0.1:{first.port},127.0.0.1:{second.port}") as client:
            assert client.admin.list_databases() == ["old"]
            old.deposed, old.stale = True, stale
            del old.asked[:]
            client.admin.create_database("new")  # a write too: 65 says that nothing was done
            assert client.admin.list_databases() == ["new"]
            client._connection._forget_servers()
            assert client.admin.list_databases() == ["new"]
    assert old.asked == ["CreateDatabase"]
    assert new.asked.count("CreateDatabase") == 1


def test_a_deposed_coordinator_is_left_through_what_a_tablet_server_knows() -> None:
    """The only bootstrap address is the deposed one's; a tablet server learns of the new one."""
    old, new = Coordinator("old"), Coordinator("new")
    knows: list[int] = []

    def answer(_: Any) -> pb.MetadataResponse:
        knows.append(second.port if len(knows) > 1 else first.port)
        return metadata(knows[-1], {1: tablet.port}, 1)

    with (
        PeerServer(serving({apis.GET_METADATA: answer})) as tablet,
        PeerServer(old) as first,
        PeerServer(new) as second,
    ):
        old.leader, new.leader = lambda: first.port, lambda: second.port
        old.tablets = new.tablets = {1: tablet.port}
        with connect(f"fluss://127.0.0.1:{first.port}") as client:
            assert client.admin.list_databases() == ["old"]
            old.deposed = old.stale = True
            assert client.admin.list_databases() == ["new"]
    assert knows == [first.port, first.port, second.port]


def test_without_any_leader_the_error_says_so_in_the_end() -> None:
    one, other = Coordinator("one"), Coordinator("other")
    one.deposed = other.deposed = True
    with PeerServer(one) as first, PeerServer(other) as second:
        text = f"fluss://127.0.0.1:{first.port},127.0.0.1:{second.port}"
        config = ClientConfig(text, connect_timeout_ms=3_000, retry_timeout_ms=3_000)
        with connect(config) as client, pytest.raises(NotCoordinatorLeader, match="gave up after"):
            client.admin.list_databases()
    assert one.asked and other.asked


@pytest.mark.parametrize("named", [4, 9])
def test_a_server_that_knows_only_the_dropped_partition_is_asked_again(named: int) -> None:
    """Fluss 0.9.1 looks a partition up by its name; ids grow."""
    asked = []

    def answer(request: Any) -> pb.MetadataResponse:
        reply = metadata(coordinator.port, {1: tablet.port}, 1)
        if request.partitions_id:
            asked.append(list(request.partitions_id))
            known = named if len(asked) < 3 else 7
            part = reply.partition_metadata.add(table_id=1, partition_name="eu", partition_id=known)
            part.bucket_metadata.add(bucket_id=0, leader_id=1)
        return reply

    def offsets(request: Any) -> pb.ListOffsetsResponse:
        reply = pb.ListOffsetsResponse()
        reply.buckets_resp.add(bucket_id=0, offset=30)
        return reply

    with (
        PeerServer(serving({apis.LIST_OFFSETS: offsets})) as tablet,
        PeerServer(serving({apis.GET_METADATA: answer}, server_type=1)) as coordinator,
        connect(f"fluss://127.0.0.1:{coordinator.port}") as client,
    ):
        ask = partial(client.admin.list_offsets, INFO.path, [0], 7, table_id=1)
        if named == 4:
            assert ask() == {0: 30}
            assert asked == [[7]] * 3
        else:  # the partition was dropped
            with pytest.raises(UnknownTableOrBucket, match=r"no bucket 1\(p=7\):0"):
                ask()
            assert asked == [[7]]
