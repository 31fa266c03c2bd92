"""The network between a driver and its cluster, which loses, delays and repeats messages.

The client's own :class:`~sluice.client.tiering.tiering.TieringClient` runs on top of it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sluice.errors import FlussError, NetworkError, PartitionNotExists, RequestTimeOut
from sluice.iceberg_rules.layout import Layout
from sluice.model import LakeSnapshotInfo, Partition, TableInfo, TablePath
from tests.simulation.actors import Actor
from tests.simulation.faults import Faults
from tests.simulation.fluss.cluster import SimCluster

T = TypeVar("T")

_TRIES_MAX = 4
_TIMEOUT_MS = 5_000


@dataclass
class NetworkContext:
    """The parts of the simulation that connections use."""

    rng: random.Random
    cluster: SimCluster
    faults: Callable[[], Faults]
    note: Callable[[str], None]
    wait: Callable[[int], None]
    """Moves the time forward by milliseconds."""
    step: Callable[[Actor, str], None]
    send_late: Callable[[str, Callable[[], object]], None]
    """Schedules an effect that arrives after its sender has given up."""


class SimConnection:
    """The connection that a TieringClient uses."""

    def __init__(self, network: NetworkContext, actor: Actor | None) -> None:
        """:param actor: yields to others at each call; None: no other actor runs in between."""
        self._network = network
        self.actor = self._actor = actor

    def call_coordinator(
        self,
        api: Any,
        request: Any,
        unpack: Callable[[Any], T],
        *,
        idempotent: bool | None = None,
        retry: bool = True,
        on_failure: Callable[[FlussError], None] | None = None,
    ) -> T:
        again = api.idempotent if idempotent is None else idempotent
        handler = self._network.cluster.handlers[api.name]

        def attempt() -> T:
            return unpack(self._exchange(api.name, lambda: handler(request), True, again))

        return self._retrying(attempt, again=again, retry=retry, on_failure=on_failure)

    def ask_coordinator(self, api: Any, request: Any, **options: Any) -> Any:
        return self.call_coordinator(api, request, lambda reply: reply, **options)

    def ask(self, name: str, answer: Callable[[], T]) -> T:
        """Sends a request that changes nothing."""
        return self._retrying(
            lambda: self._exchange(name, answer, False, False), again=True, retry=True
        )

    def _retrying(
        self,
        attempt: Callable[[], T],
        *,
        again: bool,
        retry: bool,
        on_failure: Callable[[FlussError], None] | None = None,
    ) -> T:
        """Retries like the client: if nothing was sent, or if a repetition is harmless."""
        for tried in range(1, _TRIES_MAX + 1):
            try:
                return attempt()
            except (NetworkError, RequestTimeOut) as error:
                harmless = again or error.details.get("sent") is False
                if tried == _TRIES_MAX or not retry or not harmless:
                    raise
                if on_failure is not None:
                    on_failure(error)
        raise AssertionError

    def _exchange(self, name: str, handle: Callable[[], T], changes: bool, again: bool) -> T:
        """
        :param changes: whether the call changes something, so that its time and number matter.
        :param again: whether a second arrival is harmless, so that the request may be repeated.
        """
        network = self._network
        if self._actor is not None:
            network.step(self._actor, name)
        faults, rng = network.faults(), network.rng
        if rng.random() < faults.refused:
            self._fault("connection refused")
            raise NetworkError("connection refused", sent=False)
        if rng.random() < faults.request_lost:
            self._fault("request lost")
            network.wait(_TIMEOUT_MS)
            raise RequestTimeOut(f"{name}: no answer")
        if changes and rng.random() < faults.request_late:
            self._fault("request late")
            network.send_late("late request arrived", handle)
            network.wait(_TIMEOUT_MS)
            raise RequestTimeOut(f"{name}: no answer")
        if again and rng.random() < faults.repeated:
            network.note("request repeated")
            network.send_late("late request arrived", handle)
        reply = handle()
        if changes and self._actor is not None:
            network.step(self._actor, f"{name} answered")
        if rng.random() < network.faults().reply_lost:
            self._fault("reply lost")
            network.wait(_TIMEOUT_MS)
            raise RequestTimeOut(f"{name}: no answer")
        return reply

    def check_known(self, partition_id: int | None) -> None:
        """A tablet server checks the partition of a request.

        :raises PartitionNotExists: it does not know it, though it may exist.
        """
        network = self._network
        if partition_id is not None and network.rng.random() < network.faults().tablet_stale:
            self._fault("tablet did not know its partition")
            raise PartitionNotExists(f"this server does not know partition {partition_id}")

    def _fault(self, kind: str) -> None:
        self._network.note(kind)
        if self._actor is not None:
            self._actor.faults.add(kind)


class SimAdmin:
    """The Admin that a TieringClient uses."""

    def __init__(self, connection: SimConnection, cluster: SimCluster) -> None:
        self._connection = connection
        self._cluster = cluster

    def table_info(self, path: TablePath) -> TableInfo:
        return self._connection.ask("table_info", lambda: self._cluster.table(path).described)

    def lake_layout(self) -> Layout:
        return self._connection.ask("lake_layout", lambda: self._cluster.layout)

    def partitions_of(self, info: TableInfo) -> list[Partition]:
        return self._connection.ask("partitions", lambda: self._cluster.partitions(info.path))

    def list_offsets(
        self,
        path: TablePath,
        buckets: Sequence[int],
        partition_id: int | None,
        kind: str,
        *,
        table_id: int,
    ) -> dict[int, int]:
        def answer() -> dict[int, int]:
            self._connection.check_known(partition_id)
            return self._cluster.offsets(path, buckets, partition_id, kind, table_id)

        return self._connection.ask(f"{kind} offsets", answer)

    def lake_snapshot(
        self, path: TablePath, snapshot_id: int | None = None
    ) -> LakeSnapshotInfo | None:
        answer = self._connection.ask(
            "lake_snapshot", lambda: self._cluster.lake_snapshot(path, snapshot_id)
        )
        if snapshot_id is None and self._connection.actor is not None:
            self._connection.actor.registered[path] = answer
        return answer
