"""What lies between a driver and its cluster: requests and answers that are lost, late, repeated.

Above it works the client's own :class:`~sluice.client.tiering.TieringClient`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sluice.errors import FlussError, NetworkError, RequestTimeOut
from sluice.model import LakeSnapshotInfo, Partition, TableInfo, TablePath
from sluice.testing.simulation.actors import Actor
from sluice.testing.simulation.cluster import SimCluster
from sluice.testing.simulation.faults import Faults

T = TypeVar("T")

_TRIES_MAX = 4
_TIMEOUT_MS = 5_000


@dataclass
class Wires:
    """What connections need of the simulation."""

    rng: random.Random
    cluster: SimCluster
    faults: Callable[[], Faults]
    note: Callable[[str], None]
    wait: Callable[[int], None]
    """Time passes, milliseconds."""
    step: Callable[[Actor, str], None]
    send_late: Callable[[str, Callable[[], object]], None]
    """Something that will happen at some time after its sender has given up."""


class SimConnection:
    """What a TieringClient asks of its connection."""

    def __init__(self, wires: Wires, actor: Actor | None) -> None:
        """:param actor: gives others their turn at each call; None: nobody comes between."""
        self._wires = wires
        self._actor = actor

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
        handler = self._wires.cluster.handlers[api.name]

        def attempt() -> T:
            return unpack(self._exchange(api.name, lambda: handler(request), True, again))

        return self._retrying(attempt, again=again, retry=retry, on_failure=on_failure)

    def ask(self, name: str, answer: Callable[[], T]) -> T:
        """A question that changes nothing."""
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
        """As the client's own: again if nothing was sent, or if it does no harm."""
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
        :param changes: the call changes something: it matters when it arrives, and how often.
        :param again: it does no harm twice, so that it may arrive twice.
        """
        wires = self._wires
        if self._actor is not None:
            wires.step(self._actor, name)
        faults, rng = wires.faults(), wires.rng
        if rng.random() < faults.refused:
            wires.note("connection refused")
            raise NetworkError("connection refused", sent=False)
        if rng.random() < faults.request_lost:
            wires.note("request lost")
            wires.wait(_TIMEOUT_MS)
            raise RequestTimeOut(f"{name}: no answer")
        if changes and rng.random() < faults.request_late:
            wires.note("request late")
            wires.send_late("late request arrived", handle)
            wires.wait(_TIMEOUT_MS)
            raise RequestTimeOut(f"{name}: no answer")
        if again and rng.random() < faults.repeated:
            wires.note("request repeated")
            wires.send_late("late request arrived", handle)
        reply = handle()
        if changes and self._actor is not None:
            wires.step(self._actor, f"{name} answered")
        if rng.random() < wires.faults().reply_lost:
            wires.note("reply lost")
            wires.wait(_TIMEOUT_MS)
            raise RequestTimeOut(f"{name}: no answer")
        return reply


class SimAdmin:
    """What a TieringClient asks of its Admin."""

    def __init__(self, connection: SimConnection, cluster: SimCluster) -> None:
        self._connection = connection
        self._cluster = cluster

    def table_info(self, path: TablePath) -> TableInfo:
        return self._connection.ask("table_info", lambda: self._cluster.table(path).described)

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
        return self._connection.ask(
            f"{kind} offsets",
            lambda: self._cluster.offsets(path, buckets, partition_id, kind, table_id),
        )

    def lake_snapshot(
        self, path: TablePath, snapshot_id: int | None = None
    ) -> LakeSnapshotInfo | None:
        return self._connection.ask(
            "lake_snapshot", lambda: self._cluster.lake_snapshot(path, snapshot_id)
        )
