"""Leases that rounds in progress may hold, for clusters that list no leases.

Fluss 0.9.1 has no call that lists them. Sluice knows the ids of its own: a run of the DAG claims
its tables under the id of its lease, and `sluice tier` locks a file that has the id as its name.
What a run has leased for a table is in the plan of its round, below the run's work folder.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol, TypeVar

from sluice.client.admin.admin import Admin
from sluice.client.connection.daemon_pool import DaemonPool
from sluice.client.leases.calls import LeaseClient
from sluice.client.leases.ids import holder_of
from sluice.client.leases.tier_lease import stored_tier_leases
from sluice.clock import Clock, SystemClock
from sluice.errors import SluiceError
from sluice.masking import mask, secrets_of
from sluice.model import (
    BucketSnapshot,
    Claim,
    LeasedTable,
    TableBucket,
    TablePath,
    TieringStatus,
)
from sluice.model.leases import sum_if_known
from sluice.quantities import counted
from sluice.rounds.records.dropped_leases import Version, dropped_plans, note_drop, stored_versions
from sluice.rounds.records.plan_file import StoredPlan, plan_uri, stored_plan
from sluice.statuses import State

PLANS_MAX = 5_000
"""Most plans that one look reads."""
PLAN_BYTES_MAX = 16 << 20
"""Most bytes of one plan. That of 100,000 buckets has about 3 MB."""
PLANS_WAIT_S = 5.0
SIZES_WAIT_S = 3.0
SIZES_AGAIN_S = 600.0
"""After this time sizes are asked for again, if no size could be read, as without the storage."""
AGAIN_S = 5.0
"""Looks within this time have the same answer, or the same error."""
_AT_ONCE = 8
_SIZES_AT_ONCE = 128
_LISTS_NONE = "this cluster lists no leases"
_T = TypeVar("_T")


class _Statuses(Protocol):
    def list(
        self, path: TablePath | None = None, *, lags: bool = True
    ) -> Sequence[TieringStatus]: ...


class LeasedCluster(Protocol):
    """What is asked about leases of rounds: a :class:`~sluice.client.client.Client`."""

    @property
    def admin(self) -> Admin: ...

    @property
    def leases(self) -> LeaseClient: ...

    @property
    def statuses(self) -> _Statuses: ...

    def kv_snapshot_sizes(
        self, snapshots: Sequence[BucketSnapshot], wait_s: float
    ) -> Mapping[TableBucket, int]: ...


@dataclass(frozen=True, slots=True)
class RoundLease:
    """A lease that a round in progress may hold: it has one only if it reads KV snapshots."""

    lease_id: str
    tables: tuple[LeasedTable, ...]
    """The tables with a primary key that its rounds tier. Of a run whose plans are known, only
    those whose snapshots it holds; their buckets are known then."""
    created_ms: int | None = None
    """When the first of these plans was written, epoch milliseconds; None: not known."""
    table_count: int = 0
    """All its tables."""
    buckets: int | None = None
    """Of all its tables; None: not known."""
    held_bytes: int | None = None
    """Stored bytes of its snapshots; None: not known."""

    @classmethod
    def of(cls, lease_id: str, tables: Sequence[LeasedTable], created_ms: int | None) -> RoundLease:
        """With the sums of its tables."""
        return cls(
            lease_id,
            tuple(tables),
            created_ms,
            len(tables),
            sum_if_known(table.buckets for table in tables),
            sum_if_known(table.held_bytes for table in tables),
        )

    def of_table(self, path: TablePath) -> RoundLease:
        """The same with this one of its tables."""
        return replace(self, tables=tuple(one for one in self.tables if one.path == path))


@dataclass(frozen=True, slots=True)
class KnownLeases:
    """The leases of rounds in progress, ordered by id, and what of them is not known."""

    leases: Sequence[RoundLease] = ()
    unread: int = 0
    """Plans that could not be read, or not in time. Their tables are in ``leases``."""
    error: str | None = None
    """Why the first of them could not be read, without secrets."""

    def of_table(self, path: TablePath) -> KnownLeases:
        """Those that may hold snapshots of a table, without their other tables."""
        of_table = (one.of_table(path) for one in self.leases)
        return replace(self, leases=[one for one in of_table if one.tables])


@dataclass(slots=True)
class _Plans:
    """Plans by lease and table id. A plan that is missing is None."""

    found: dict[tuple[str, int], StoredPlan | None] = field(default_factory=dict)
    dropped: dict[str, Mapping[str, Version]] = field(default_factory=dict)
    """By lease: the plans whose snapshots somebody has dropped."""
    unread: int = 0
    error: str | None = None

    def holds(self, lease_id: str, status: TieringStatus) -> bool:
        """Whether a round may hold snapshots, as far as its plan tells."""
        stored = self.found.get((lease_id, status.table_id))
        if stored is None:
            return True
        if stored.has_result or not stored.plan.snapshots:
            return False  # released, or it reads the log alone
        of_round = f"{status.table_id}-{status.tiering_epoch}"
        dropped = self.dropped.get(lease_id, {}).get(of_round)
        return dropped != (stored.written_ms, stored.size_bytes)


class RoundLeases:
    """Looks for the leases of rounds in progress. Safe for use by many threads."""

    def __init__(self, work_uri: str | None = None, clock: Clock | None = None) -> None:
        """:param work_uri: the work folder of the runs; without it, their snapshots are unknown."""
        self._work_uri = work_uri
        self._clock = clock or SystemClock()
        self._pool = DaemonPool(_AT_ONCE, "sluice-plan")
        self._lock = threading.Lock()  # guards the rest; held while the cluster is read
        self._late: set[Future[Any]] = set()  # reads that the last look left
        self._last: tuple[float, KnownLeases | SluiceError] | None = None
        self._has_key: dict[int, bool] = {}
        self._stored: dict[str, StoredPlan | None] = {}  # by URI, of the last look
        self._sizes: dict[tuple[TableBucket, int], int | None] = {}  # they never change
        self._sizes_from_s = 0.0

    def known(
        self, client: LeasedCluster, statuses: Iterable[TieringStatus] | None = None
    ) -> KnownLeases:
        """The leases of rounds in progress.

        Those of `sluice tier` are found only on the machine and for the user that run it.

        :param client: of the same cluster in each call.
        :param statuses: of all lake tables; read from the cluster by default.
        :raises SluiceError: the cluster cannot be read, or could not some seconds ago: those who
            wait here at the same time do not wait for it one after the other.
        """
        with self._lock:
            now_s = self._clock.monotonic_s()
            if self._last is None or now_s - self._last[0] >= AGAIN_S:
                known: KnownLeases | SluiceError
                try:
                    found = client.statuses.list(lags=False) if statuses is None else statuses
                    rounds = [one for one in found if one.status == State.TIERING.value]
                    known = self._look(client, rounds)
                except SluiceError as error:
                    known = error
                self._last = self._clock.monotonic_s(), known
            told = self._last[1]
        if isinstance(told, SluiceError):
            raise told.with_traceback(None)
        return told

    def drop(self, client: LeasedCluster, lease_id: str) -> str:
        """Drops a lease, and notes it beside the plans of its run, so that no list shows it.

        A note that cannot be written is no error: lists show the lease until its rounds end.

        :returns: what was done, without secrets.
        :raises FlussError: the lease is not dropped.
        """
        plans, before, why = self._plans_to_drop(lease_id)
        client.leases.drop(lease_id)
        if plans and plans == before:
            told = f"lease {lease_id} was dropped before"
            return f"{told}. This cluster does not tell whether it existed"
        if plans:
            _, why = self._within_time(note_drop, self._work_uri, lease_id, plans)
        with self._lock:
            self._last = None
        told = f"lease {lease_id} is dropped, if it existed: {_LISTS_NONE}"
        if not why:
            return told
        return (
            f"{told}. It stays in lists until its rounds end, because the work folder does not"
            f" take a note of it: {why}"
        )

    def _plans_to_drop(
        self, lease_id: str
    ) -> tuple[Mapping[str, Version], Mapping[str, Version], str]:
        """The plans of a run, those that were dropped before, and why they cannot be read."""
        if not self._work_uri or holder_of(lease_id).kind != "run":
            return {}, {}, ""
        plans, why = self._within_time(stored_versions, self._work_uri, lease_id)
        before, why_not = self._within_time(dropped_plans, self._work_uri, lease_id)
        return plans or {}, before or {}, why or ("" if plans else why_not)

    def _within_time(self, call: Callable[..., _T], *arguments: Any) -> tuple[_T | None, str]:
        """What a call of the storage returns, or why it did not, without secrets."""
        reading = self._pool.submit(partial(call, *arguments))
        wait([reading], PLANS_WAIT_S)
        if not reading.done():
            if not reading.cancel():
                with self._lock:
                    self._late.add(reading)
            return None, f"it did not answer within {PLANS_WAIT_S:g} s"
        try:
            return reading.result(), ""
        except Exception as error:  # file systems raise errors of many kinds
            return None, mask(f"{type(error).__name__}: {error}", secrets_of(self._work_uri or ""))

    def _look(self, client: LeasedCluster, rounds: Sequence[TieringStatus]) -> KnownLeases:
        of_leases = list(self._of_leases(client, rounds))
        plans = self._plans(of_leases)
        held: dict[str, list[tuple[TieringStatus, StoredPlan | None]]] = {}
        snapshots: list[BucketSnapshot] = []
        for lease_id, status in of_leases:
            if not plans.holds(lease_id, status):
                continue
            stored = plans.found.get((lease_id, status.table_id))
            if stored is not None:
                snapshots += stored.plan.snapshots
            held.setdefault(lease_id, []).append((status, stored))
        self._read_sizes(client, snapshots)
        leases = []
        for lease_id in sorted(held):
            tables = (self._table(*one) for one in held[lease_id])
            times = [stored.written_ms for _, stored in held[lease_id] if stored]
            ordered = sorted(tables, key=lambda one: (-(one.held_bytes or 0), str(one.path)))
            leases.append(RoundLease.of(lease_id, ordered, min(filter(None, times), default=None)))
        return KnownLeases(leases, plans.unread, plans.error)

    def _of_leases(
        self, client: LeasedCluster, rounds: Sequence[TieringStatus]
    ) -> Iterator[tuple[str, TieringStatus]]:
        """The ids of the leases that rounds of tables with a primary key may hold."""
        missing = [one for one in rounds if one.table_id not in self._has_key]
        infos = client.admin.known_infos([one.path for one in missing], must_answer=True)
        for status in missing:
            if (info := infos.get(status.path)) and info.table_id == status.table_id:
                self._has_key[status.table_id] = info.has_primary_key
        tiered = {one.table_id for one in rounds}
        self._has_key = {key: value for key, value in self._has_key.items() if key in tiered}
        own = stored_tier_leases()
        for status in rounds:
            if not self._has_key.get(status.table_id):
                continue  # dropped, or it has no KV snapshots
            by = status.claimed_by or ""
            for lease_id in [by] if holder_of(by).kind == "run" else own.get(status.table_id, []):
                yield lease_id, status

    def _plans(self, of_leases: Sequence[tuple[str, TieringStatus]]) -> _Plans:
        """Reads the plans of runs, within a time limit."""
        plans = _Plans()
        if not self._work_uri:
            return plans
        of_runs = [one for one in of_leases if holder_of(one[0]).kind == "run"]
        self._late = {one for one in self._late if not one.done()}
        if self._late:  # more reads would hang beside them
            plans.unread = len(of_runs)
            plans.error = "earlier reads of them still wait for the storage"
            return plans
        noted = {
            lease_id: self._pool.submit(partial(dropped_plans, self._work_uri, lease_id))
            for lease_id in {lease_id for lease_id, _ in of_runs[:PLANS_MAX]}
        }
        asked: dict[Future[StoredPlan | None], tuple[str, int, str]] = {}
        for lease_id, status in of_runs[:PLANS_MAX]:
            claim = Claim(status.table_id, status.path, status.tiering_epoch, 0)
            uri = plan_uri(self._work_uri, lease_id, claim)
            read = partial(stored_plan, uri, PLAN_BYTES_MAX, self._stored.get(uri))
            reading = self._pool.submit(read)
            asked[reading] = lease_id, status.table_id, uri
        reads: list[Future[Any]] = [*asked, *noted.values()]
        done, late = wait(reads, PLANS_WAIT_S)
        self._late = {one for one in late if not one.cancel()}
        plans.unread = len(of_runs) - len(done & asked.keys())
        if late:
            plans.error = f"they were not read within {PLANS_WAIT_S:g} s"
        for lease_id, note in noted.items():
            if note in done and not note.exception():  # else it is told as held
                plans.dropped[lease_id] = note.result()
        self._stored = {}
        for future in done & asked.keys():
            lease_id, table_id, uri = asked[future]
            try:
                plans.found[lease_id, table_id] = self._stored[uri] = future.result()
            except Exception as error:  # of a file system or a damaged plan
                plans.unread += 1
                plans.error = plans.error or mask(
                    f"{type(error).__name__}: {error}", secrets_of(self._work_uri)
                )
        return plans

    def _read_sizes(self, client: LeasedCluster, snapshots: Sequence[BucketSnapshot]) -> None:
        """Reads the sizes that are not known yet, within a time limit."""
        wanted = {(one.bucket, one.snapshot_id): one for one in snapshots}
        self._sizes = {key: self._sizes[key] for key in wanted if key in self._sizes}
        missing = [one for key, one in wanted.items() if key not in self._sizes]
        until_s = self._clock.monotonic_s() + SIZES_WAIT_S
        for at in range(0, len(missing), _SIZES_AT_ONCE):
            left_s = until_s - self._clock.monotonic_s()
            if left_s <= 0 or self._clock.monotonic_s() < self._sizes_from_s:
                return
            asked = missing[at : at + _SIZES_AT_ONCE]
            sizes = client.kv_snapshot_sizes(asked, left_s)
            is_late = self._clock.monotonic_s() >= until_s
            for one in asked:
                if one.bucket in sizes or not is_late:
                    self._sizes[one.bucket, one.snapshot_id] = sizes.get(one.bucket)
            if not sizes:
                self._sizes_from_s = self._clock.monotonic_s() + SIZES_AGAIN_S

    def _table(self, status: TieringStatus, stored: StoredPlan | None) -> LeasedTable:
        if stored is None:
            return LeasedTable(status.table_id, status.path)
        snapshots = stored.plan.snapshots
        return LeasedTable(
            status.table_id,
            status.path,
            len(snapshots),
            min(one.snapshot_id for one in snapshots),
            sum_if_known(self._sizes.get((one.bucket, one.snapshot_id)) for one in snapshots),
        )


def what_is_unknown(known: KnownLeases, work_uri: str | None) -> str:
    """Where the list comes from and what it lacks, in sentences."""
    texts = [
        "This cluster lists no leases. Shown are those that rounds of Sluice in progress may hold"
        + (", from their plan files." if work_uri else ".")
    ]
    if not work_uri:
        texts.append("Their buckets and sizes are in the work folder of the runs (work_uri).")
    if known.unread:
        why = f": {known.error}" if known.error else ""
        texts.append(f"Plan files of {counted(known.unread, 'table')} are not read{why}.")
    texts.append(
        "Of `sluice tier`, only rounds of this user on this machine are known. Leases of other"
        " readers, renewal and expiry are not: a lease that is not renewed expires."
    )
    return " ".join(texts)
