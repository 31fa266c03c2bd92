"""A round waits once for a server that cannot be reached, not once for each of its buckets."""

from __future__ import annotations

import gc
import pickle
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from sluice.client.tiering.log_source import ClientLogSource
from sluice.config import ClientConfig
from sluice.errors import LeaderNotAvailable, NetworkError
from sluice.model import TableBucket
from sluice.rounds.copy.split import copy_split
from sluice.rounds.values.types import Split, SplitFailure, SplitResult
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from tests.support.models.memory_lake import MemoryLakeTable
from tests.support.network.fetch_server import INFO, batch
from tests.support.network.native_peer import PeerServer, serving
from tests.unit.client.connection.test_native_leaders import metadata

NOT_LEADER = 12


Leaders = dict[int, int | None]
"""Leaders of buckets: 1 is a healthy server, 2 a server that was stopped, None is no leader."""


@contextmanager
def cluster(leaders: Leaders, moved_to: Leaders | None = None) -> Iterator[ClientConfig]:
    """:param moved_to: the new leaders of buckets that move while they are read."""

    def fetched(request: Any) -> pb.FetchLogResponse:
        reply = pb.FetchLogResponse()
        [wanted] = request.tables_req[0].buckets_req
        bucket = reply.tables_resp.add(table_id=1).buckets_resp.add(bucket_id=wanted.bucket_id)
        leaders.update(moved_to or {})
        if leaders[wanted.bucket_id] != 1:
            bucket.error_code = NOT_LEADER
        elif wanted.fetch_offset == 0:
            bucket.records = batch(0, 10)
        return reply

    with PeerServer(lambda peer: None) as stopped:
        port = stopped.port
    with PeerServer(serving({apis.FETCH_LOG: fetched})) as healthy:

        def answer(_: Any) -> pb.MetadataResponse:
            reply = metadata(coordinator.port, {1: healthy.port, 2: port}, 1)
            del reply.table_metadata[0].bucket_metadata[:]
            for number, leader in leaders.items():
                entry = reply.table_metadata[0].bucket_metadata.add(bucket_id=number)
                if leader is not None:
                    entry.leader_id = leader
            return reply

        with PeerServer(serving({apis.GET_METADATA: answer}, server_type=1)) as coordinator:
            yield ClientConfig(
                bootstrap=f"fluss://127.0.0.1:{coordinator.port}",
                retry_timeout_ms=400,
            )


def bucket(number: int) -> Split:
    return Split(TableBucket(1, None, number), (), 0, 10)


def failure(source: ClientLogSource, number: int) -> str:
    """Why the bucket cannot be read."""
    with pytest.raises(NetworkError) as failed:
        list(source.read(bucket(number)))
    return str(failed.value)


def copied(source: ClientLogSource) -> list[SplitResult | SplitFailure]:
    """Each bucket by a task of its own, one after another."""
    splits = [bucket(number) for number in range(6)]
    table = MemoryLakeTable("mem:/t")
    writers = table.writer_factory("w", splits)
    return [copy_split(one, pickle.loads(pickle.dumps(source)), writers) for one in splits]


@pytest.mark.parametrize("dead", [2, None], ids=["stopped", "no leader"])
def test_a_round_waits_for_it_once(dead: int | None) -> None:
    with cluster({number: 1 if number % 2 else dead for number in range(6)}) as config:
        source = ClientLogSource(config, INFO.path, INFO)
        found = copied(source)
        assert [isinstance(one, SplitResult) for one in found] == [False, True] * 3
        first, *others = [one.reason for one in found if isinstance(one, SplitFailure)]
        kind = NetworkError if dead else LeaderNotAvailable
        assert {one.kind for one in (first, *others)} == {kind.__name__}
        assert all(one.retryable == first.retryable for one in others)
        assert all("this round waited for" in one.text for one in others)
        assert "gave up after" in first.text


def test_a_round_waits_once_for_a_cluster_that_stopped() -> None:
    with cluster({0: 1, 1: 1}) as config:
        source = ClientLogSource(config, INFO.path, INFO)
        assert list(source.read(bucket(0)))
    assert "gave up after" in failure(source, 0)
    assert "this round waited for" in failure(source, 1)


def test_the_next_round_waits_again() -> None:
    with cluster({0: 2}) as config:
        for _ in range(2):
            found = failure(ClientLogSource(config, INFO.path, INFO), 0)
            assert "this round waited" not in found
            assert "gave up after" in found


def test_a_leader_that_moves_during_the_wait_is_not_blamed() -> None:
    """The read of bucket 0 begins at the healthy server; the new leader is dead."""
    with cluster({0: 1, 1: 1, 2: 2}, moved_to={0: 2}) as config:
        source = ClientLogSource(config, INFO.path, INFO)
        assert "gave up after" in failure(source, 0)
        assert list(source.read(bucket(1)))
        assert "this round waited for" in failure(source, 2)


def test_a_bucket_that_left_the_dead_server_is_read() -> None:
    leaders: Leaders = {0: 2, 1: 2, 2: 2}
    with cluster(leaders) as config:
        source = ClientLogSource(config, INFO.path, INFO)
        assert "gave up after" in failure(source, 0)
        leaders[1] = 1  # the source has its earlier leader in memory
        assert list(source.read(bucket(1)))
        assert "this round waited for" in failure(source, 2)


def test_a_dead_server_keeps_no_connection_open() -> None:
    with cluster({0: 2}) as config:
        source = ClientLogSource(config, INFO.path, INFO)
        failure(source, 0)
        connection = weakref.ref(source._open().connection)
        del source
        gc.collect()
        assert connection() is None


def test_a_bucket_without_data_does_not_count() -> None:
    """Its server answers."""
    with cluster({1: 1, 3: 1}) as config:
        short = replace(config, request_timeout_ms=200)
        source = ClientLogSource(short, INFO.path, INFO)
        with pytest.raises(Exception, match="no data from offset 10"):
            list(source.read(Split(TableBucket(1, None, 1), (), 0, 20)))
        assert list(source.read(bucket(3)))
