"""Finds how many rows of claimed tables wait to be tiered, without the lake and without a lease.

A table is idle if a round would copy nothing: in every bucket of every partition that exists, the
registered lake offset is the end of the log. The rule is that of a round's plan. Registered offsets
are read first, as in a round, so a table that is called idle has lost no row in between.
docs/design/rounds.md#idle-tables
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Literal

from sluice.client.admin.admin import Admin
from sluice.client.connection.connection import Connection
from sluice.client.statuses.recorded import RecordedStatuses
from sluice.client.statuses.statuses import StatusClient
from sluice.clock import Clock, SystemClock
from sluice.config import ClientConfig
from sluice.errors import (
    LeaderNotAvailable,
    LogBehindLake,
    NetworkError,
    RequestTimeOut,
    TableNotExist,
)
from sluice.masking import mask
from sluice.model import (
    Claim,
    KeptStatus,
    LakeSnapshotInfo,
    Partition,
    TableBucket,
    TableInfo,
    bucket_count_in,
)
from sluice.rounds.plan.plan import check_options, offsets_to_copy
from sluice.statuses.full_rounds import needs_full_round
from sluice.wire import apis

_LOG = logging.getLogger(__name__)

THREADS = 8
CALL_MS = 5_000
"""The check must stay cheap: a table about which a server does not answer soon gets a round."""
PATIENCE_S = 30.0
"""After this time, the tables of a check that were not read yet count as unknown."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """What waits of a claimed table."""

    rows: int | None = None
    """Log offsets that a round would copy: about the number of rows. None: not known."""
    is_idle: bool = False
    """Whether the round may be reported without being run."""
    info: TableInfo | None = None
    lake_snapshot_id: int | None = None
    is_never_tiered: bool = True
    """Whether a bucket has no registered offset, so that a KV snapshot may be needed."""
    buckets: int = 0
    """Buckets of which a round would copy something."""
    ends: Mapping[str, int] = field(default_factory=dict)
    """The end of each bucket's log, by the bucket's name."""

    @property
    def needs_kv_snapshots(self) -> bool:
        """Whether a round may begin with KV snapshots; True if that is not known."""
        return self.info is None or (self.info.has_primary_key and self.is_never_tiered)


UNKNOWN = Waiting()


class IdleCheck:
    """Checks claimed tables in batches; a context manager, for one thread.

    It never raises: a table that cannot be read is not idle, and its round finds the error.
    """

    def __init__(
        self,
        config: ClientConfig,
        recorded: RecordedStatuses,
        clock: Clock | None = None,
    ) -> None:
        """:param recorded: knows the statuses before the claims, if the coordinator keeps none."""
        short = replace(
            config,
            request_timeout_ms=min(config.request_timeout_ms, CALL_MS),
            retry_timeout_ms=min(config.retry_timeout_ms, CALL_MS),
            connect_timeout_ms=min(config.connect_timeout_ms, CALL_MS),
        )
        self._connection = Connection(short)
        self._admin = Admin(self._connection)
        self._statuses = StatusClient(self._connection, self._admin, recorded)
        self._recorded = recorded
        self._keeps_statuses: bool | None = None
        self._clock = clock or SystemClock()
        self._unreached: set[str] = set()  # servers that are not asked again

    def __enter__(self) -> IdleCheck:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._connection.close()

    def check(self, claims: Sequence[Claim]) -> dict[Claim, Waiting]:
        """Returns what waits of each table; one of them may be claimed once only."""
        until_s = time.monotonic() + PATIENCE_S
        infos = self._admin.known_infos([claim.path for claim in claims])

        def one(claim: Claim) -> Waiting:
            info = infos.get(claim.path)
            if info is None or time.monotonic() > until_s:
                return UNKNOWN
            try:
                waiting = self._waiting(claim, info, until_s)
                is_idle = waiting.rows == 0 and info.datalake_enabled
                return replace(waiting, is_idle=is_idle and self._may_skip(claim, info))
            except Exception as error:  # whatever it is, a round finds it and reports it
                self._note(error)
                _LOG.info("%s: not known whether it is idle: %s", claim.path, mask(str(error)))
                return UNKNOWN

        if len(claims) < 2:
            return {claim: one(claim) for claim in claims}
        with ThreadPoolExecutor(THREADS, thread_name_prefix="sluice-idle") as pool:
            return dict(zip(claims, pool.map(one, claims), strict=True))

    def _waiting(self, claim: Claim, info: TableInfo, until_s: float) -> Waiting:
        if info.table_id != claim.table_id:
            raise TableNotExist(f"table {claim.path} (id {claim.table_id}) was dropped")
        check_options(info)
        registered = self._admin.lake_snapshot(info.path)
        if registered is not None and registered.table_id != claim.table_id:
            raise TableNotExist(f"table {claim.path} (id {claim.table_id}) was dropped")
        counts, is_never_tiered, ends = self._rows_waiting(info, registered, until_s)
        snapshot_id = None if registered is None else registered.snapshot_id
        buckets = sum(count > 0 for count in counts)
        return Waiting(sum(counts), False, info, snapshot_id, is_never_tiered, buckets, ends)

    def _may_skip(self, claim: Claim, info: TableInfo) -> bool:
        """Whether the round of an idle table need not look at its lake."""
        if self._keeps_statuses is None:  # the same answer, whichever thread asks
            self._keeps_statuses = self._connection.coordinator_offers(apis.LIST_TIERING_STATUSES)
        status: KeptStatus | None = self._recorded.before_round(claim)
        if self._keeps_statuses:
            found = self._statuses.of_coordinator(claim.path)
            status = next((each for each in found if each.table_id == claim.table_id), None)
        return not needs_full_round(status, info, self._clock.now_ms())

    def _rows_waiting(
        self, info: TableInfo, registered: LakeSnapshotInfo | None, until_s: float
    ) -> tuple[list[int], bool, dict[str, int]]:
        """The rows of each bucket, whether one was never tiered, and the ends of the logs."""
        known: Mapping[TableBucket, int] = {} if registered is None else registered.offsets
        partitions: list[Partition | None] = [None]
        if info.is_partitioned:
            partitions = [*self._admin.partitions_of(info)]
            if ids := [one.partition_id for one in partitions if one is not None]:
                self._connection.describe_tables([info.path], ids)  # learns the leaders
        counts: list[int] = []
        ends: dict[str, int] = {}
        is_never_tiered = False
        for partition in partitions:
            if time.monotonic() > until_s:
                raise RequestTimeOut(f"the check took longer than {PATIENCE_S:.0f} s")
            partition_id = None if partition is None else partition.partition_id
            buckets = {
                number: TableBucket(info.table_id, partition_id, number)
                for number in range(bucket_count_in(info, partition))
            }
            latest = self._offsets(info, buckets, "latest")
            fresh = {n: b for n, b in buckets.items() if b not in known and latest[n] > 0}
            is_log = not info.has_primary_key
            earliest = self._offsets(info, fresh, "earliest") if fresh and is_log else {}
            is_never_tiered = is_never_tiered or any(b not in known for b in buckets.values())
            for number, bucket in buckets.items():
                end, begin = latest[number], earliest.get(number, 0)
                count = offsets_to_copy(info, known.get(bucket), begin, end)
                if count < 0:
                    raise LogBehindLake(f"bucket {bucket}: its log ends before the lake")
                counts.append(count)
                ends[bucket.name] = end
        return counts, is_never_tiered, ends

    def _offsets(
        self, info: TableInfo, buckets: Mapping[int, TableBucket], at: Literal["earliest", "latest"]
    ) -> dict[int, int]:
        """Offsets of buckets of one partition, if all their leaders are known and answer."""
        for bucket in buckets.values():
            leader = self._connection.known_leader(bucket)
            if leader is None or str(leader) in self._unreached:
                raise LeaderNotAvailable(f"the leader of bucket {bucket} is {leader or 'unknown'}")
        partition_id = next(iter(buckets.values())).partition_id
        return self._admin.list_offsets(
            info.path, [*buckets], partition_id, at, table_id=info.table_id
        )

    def _note(self, error: Exception) -> None:
        """Keeps the server that did not answer: other tables would wait for it again."""
        if isinstance(error, (NetworkError, RequestTimeOut)):
            self._unreached.add(str(error.details.get("server", "")))
