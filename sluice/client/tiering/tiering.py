"""Client calls of tiering: claims, heartbeats and reports. See docs/fluss/tiering.md#heartbeat

A claim keeps the coordinator epoch of the response that assigned it, and the coordinator fences it
by that epoch. After a fail-over, tiering epochs start from the beginning, so a newer coordinator
epoch with an old tiering epoch could name another worker's round.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from sluice.client.admin.admin import Admin
from sluice.client.connection.connection import Connection
from sluice.client.connection.heartbeat_entries import LIVENESS_TIMEOUT_S, entry_of, error_of
from sluice.client.statuses.coordinator import statuses_of_coordinator
from sluice.client.statuses.recorded import RecordedStatuses, this_process
from sluice.client.tiering.claim_session import ClaimSession
from sluice.client.tiering.heartbeats import CLAIM_LOST
from sluice.client.tiering.lake_snapshots import LakeSnapshots
from sluice.errors import (
    CorruptMessage,
    FencedTieringEpoch,
    FlussError,
    UnsupportedVersion,
)
from sluice.iceberg_rules.layout import Layout
from sluice.model import (
    Claim,
    Partition,
    Reason,
    TableInfo,
    TablePath,
    TieringRound,
)
from sluice.statuses.recorded import NOT_REQUESTED
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.messages.status_messages import round_to_message
from sluice.wire.messages.table_paths import path_of, table_path

_LOG = logging.getLogger(__name__)

OLD_ENTRIES_MAX = 10_000
"""Maximum number of old queue entries that one claim skips."""


class TieringClient(LakeSnapshots):
    """Claims tables for rounds, reports their results and registers lake snapshots.

    It implements a round's Cluster port. Safe for use by many threads.
    """

    def __init__(
        self,
        connection: Connection,
        admin: Admin,
        statuses: RecordedStatuses | None = None,
    ) -> None:
        """:param statuses: records claims and ends of rounds, for a cluster that keeps none."""
        super().__init__(connection, admin)
        self._statuses = statuses
        self._keeps_none: bool | None = None  # set once, by any thread
        self.claim_timeout_s: float | None = None
        """After how many seconds without a heartbeat the coordinator ends a claim, as its newest
        answer says, or as in Apache Fluss, which does not say. None: it has not answered yet."""

    # ---- claims ----

    def claim(
        self, requested: Sequence[TablePath] | None = None, by: str | None = None
    ) -> Claim | None:
        """Claims the next table that is due; None if no table is due.

        The request is never sent twice: if the response is lost, the coordinator revokes the claim
        itself.

        :param requested: claim only one of these tables; unknown tables are skipped.
        :param by: the name of this run in the statuses.
        """
        with self.claim_session(requested, by) as tables:
            return tables.next()

    def claim_session(
        self, requested: Sequence[TablePath] | None = None, by: str | None = None
    ) -> ClaimSession:
        """Returns a session that claims several tables inside a ``with`` block, with ``next``.

        An Apache Fluss coordinator ignores ``requested_tables`` and assigns the table that waits
        longest, even if it is paused or has just failed. The session holds such claims and releases
        them at the end of the block.

        :raises StatusUnreadable: on such a cluster: whether tables are paused cannot be read.
        """
        recorder = self._recorder()
        if recorder is not None and (requested is None or requested):
            requested = recorder.eligible(requested)
        nothing = requested is not None and not requested

        wanted = None if requested is None else frozenset(requested)

        def why_not(claims: Sequence[Claim]) -> list[str | None]:
            if recorder is not None:
                return recorder.claimed_many(claims, by, wanted)
            return [None if wanted is None or c.path in wanted else NOT_REQUESTED for c in claims]

        def give_back(claim: Claim, reason: str) -> None:
            self._give_back(claim, Reason.from_text(f"released: {reason}"))

        def take() -> Claim | None:
            return None if nothing else self._next_claim(requested or (), by)

        return ClaimSession(take, why_not, give_back, _HeldClaimHeartbeats(self))

    def _next_claim(self, requested: Sequence[TablePath], by: str | None = None) -> Claim | None:
        request = pb.LakeTieringHeartbeatRequest(
            request_table=True,
            requested_tables=[table_path(path) for path in requested],
            worker=by or this_process(),
        )
        for _ in range(OLD_ENTRIES_MAX):
            reply = self._heartbeat(request, idempotent=False)
            if not reply.HasField("tiering_table"):
                return None
            claim = _claim(reply.tiering_table, reply.coordinator_epoch)
            if claim.tiering_epoch > 0:
                return claim
            # A queue entry from before tiering was disabled and enabled: the table is not in
            # Tiering, so each heartbeat would fail. See docs/fluss/tiering.md#restarted-epochs
            _LOG.info("table %s: its old queue entry was skipped, it is not due yet", claim.path)
        return None

    def claims_of(self, by: str) -> list[Claim]:
        """Returns the open claims of a run by its name: those of its killed processes, too.

        A claim whose response was lost is among them, except on an Apache Fluss cluster. There the
        names are in the recorded statuses, so a claim that is not recorded yet is missing.

        :raises FlussError: the statuses cannot be read.
        """
        recorder = self._recorder()
        if recorder is not None:
            return recorder.claims_of(by)
        request = pb.LakeTieringHeartbeatRequest(worker=by, list_held=True)
        reply = self._heartbeat(request, idempotent=True)
        return [_claim(table, reply.coordinator_epoch) for table in reply.held_tables]

    def heartbeat(
        self, claims: Iterable[Claim], *, retry: bool = True
    ) -> dict[int, FlussError | None]:
        """Sends a heartbeat for claims; returns the coordinator's error, if any, by table id."""
        claims = list(claims)
        answers = self.beat(claims, retry=retry)
        with self._writing_down() as recorder:
            if recorder is not None:
                recorder.heartbeat(claim for claim in claims if answers[claim.table_id] is None)
        return answers

    def beat(self, claims: Sequence[Claim], *, retry: bool = True) -> dict[int, FlussError | None]:
        """Sends a heartbeat like :meth:`heartbeat`, but does not record it in the statuses."""
        request = pb.LakeTieringHeartbeatRequest(tiering_tables=[entry_of(c) for c in claims])
        reply = self._heartbeat(request, idempotent=True, retry=retry)
        answers = {entry.table_id: error_of(entry) for entry in reply.tiering_table_resp}
        unanswered = [claim for claim in claims if claim.table_id not in answers]
        if unanswered:
            raise CorruptMessage(f"heartbeat: the response lacks table {unanswered[0].path}")
        return answers

    def finished(
        self,
        claim: Claim,
        *,
        forced: bool = False,
        file_size: int | None = None,
        record_count: int | None = None,
        details: TieringRound | None = None,
    ) -> None:
        """Reports a round as finished.

        :param forced: more rows are waiting: the coordinator queues the table again at once.
        :param file_size: bytes of the lake table after the round; the coordinator keeps its old
            value without it.
        :param record_count: rows of the lake table after the round; kept in the same way.
        :param details: what the round did, for its history.
        :raises FencedTieringEpoch, InvalidCoordinator, TableNotExist: the claim is lost.
        """
        entry = entry_of(claim)
        if file_size is not None:
            entry.lake_tiering_stats.file_size = file_size
        if record_count is not None:
            entry.lake_tiering_stats.record_count = record_count
        if details is not None:
            entry.round.CopyFrom(_round_message(details))
        request = pb.LakeTieringHeartbeatRequest(finished_tables=[entry])
        if forced:
            request.force_finished_tables.append(claim.table_id)
        ends = [(claim, details)]
        with self._ending(
            lambda r, is_refused: r.finished_many(
                ends, forced=forced, refused=[claim] if is_refused else ()
            )
        ):
            self._report(request, [claim], lambda reply: reply.finished_table_resp)

    def finished_many(
        self, ends: Sequence[tuple[Claim, TieringRound]]
    ) -> dict[Claim, FlussError | None]:
        """Reports rounds of several tables as finished, by one call; at most one of each table.

        :returns: why a claim is lost; None if its report was accepted.
        """
        request = pb.LakeTieringHeartbeatRequest()
        for claim, details in ends:
            entry = entry_of(claim)
            entry.round.CopyFrom(_round_message(details))
            request.finished_tables.append(entry)
        answers = self._report(request, [c for c, _ in ends], lambda r: r.finished_table_resp)
        errors = {claim: answers[claim.table_id] for claim, _ in ends}
        with self._writing_down() as recorder:
            if recorder is not None:
                refused = [claim for claim, error in errors.items() if error is not None]
                recorder.finished_many(ends, refused=refused)
        return errors

    def failed(self, claim: Claim, reason: Reason, details: TieringRound | None = None) -> None:
        """Reports a round as failed. A reason that contains a secret is withheld.

        :param details: what the round did, for its history.
        :raises FencedTieringEpoch, InvalidCoordinator, TableNotExist: the claim is lost.
        """
        reason = reason.checked()
        with self._ending(lambda r, refused: r.failed(claim, reason, details, refused=refused)):
            self._report_failure(claim, reason, details)

    def release(self, claim: Claim, reason: Reason, *, stopped: bool = False) -> None:
        """Releases a claim without a failure: the table is due again.

        :param reason: the failure to report if the coordinator cannot release claims otherwise.
        :param stopped: whether a user stopped the round: the table's status shows the reason.
        :raises FencedTieringEpoch, InvalidCoordinator, TableNotExist: the claim is lost.
        """
        text = str(reason.checked()) if stopped else None
        self._give_back(claim, reason, text)
        with self._writing_down() as recorder:
            if recorder is not None:
                recorder.released(claim, text)

    def _give_back(self, claim: Claim, reason: Reason, stopped: str | None = None) -> None:
        """Releases a claim at once; without this, it would expire after its last heartbeat."""
        entry = entry_of(claim)
        if stopped is not None:
            entry.error_message = stopped
        request = pb.LakeTieringHeartbeatRequest(released_tables=[entry])
        known = True

        def answers(reply: Any) -> Any:
            nonlocal known
            known = bool(reply.released_table_resp)
            # An older server ignores the field and returns no entry.
            return reply.released_table_resp or [
                pb.PbHeartbeatRespForTable(table_id=claim.table_id)
            ]

        self._report(request, [claim], answers)
        if not known:
            self._report_failure(claim, reason.checked())

    def _report_failure(
        self, claim: Claim, reason: Reason, details: TieringRound | None = None
    ) -> None:
        entry = entry_of(claim)
        entry.error_message = str(reason)
        if details is not None:
            entry.round.CopyFrom(_round_message(details))
        request = pb.LakeTieringHeartbeatRequest(failed_tables=[entry])
        self._report(request, [claim], lambda reply: reply.failed_table_resp)

    # ---- statuses of a cluster that keeps none ----

    def _recorder(self) -> RecordedStatuses | None:
        """Returns the recorded statuses; None if the coordinator keeps statuses itself.

        :raises FlussError: the coordinator cannot be reached for the first time.
        """
        if self._statuses is not None and self._keeps_none is None:
            offers = self._connection.coordinator_offers(apis.LIST_TIERING_STATUSES)
            self._keeps_none = not offers
        return self._statuses if self._keeps_none else None

    @contextmanager
    def _writing_down(self) -> Iterator[RecordedStatuses | None]:
        """Logs errors of recording, since the report to the coordinator already succeeded."""
        try:
            yield self._recorder()
        except FlussError as error:
            _LOG.warning("the tiering status was not recorded: %s", error)

    @contextmanager
    def _ending(self, write: Callable[[RecordedStatuses, bool], None]) -> Iterator[None]:
        """Records the end of a round after its report, also if the claim is lost."""
        gone: FlussError | None = None
        try:
            yield
        except CLAIM_LOST as error:
            gone = error
        with self._writing_down() as recorder:
            if recorder is not None:
                write(recorder, gone is not None)
        if gone is not None:
            raise gone

    def still_claimed(self, claim: Claim) -> bool:
        """Sends a heartbeat and returns whether the claim is still valid.

        It does not record the heartbeat, because a commit follows at once.

        :raises FlussError: the coordinator is down or reports another error.
        """
        error = self.beat([claim])[claim.table_id]
        if isinstance(error, CLAIM_LOST):
            return False
        if error is not None:
            raise error
        return True

    # ---- queries of a round ----

    def lake_layout(self) -> Layout:
        """The layout of the lake tables that the cluster's version makes.

        :raises FlussError: the coordinator does not answer.
        """
        return self._admin.lake_layout()

    def compaction_requested_ms(self, claim: Claim) -> int | None:
        """Returns when a compaction of the table was requested; None: it was not.

        :raises FlussError: the statuses cannot be read.
        """
        recorder = self._recorder()
        if recorder is not None:
            return recorder.compaction_requested_ms(claim)
        try:
            found = statuses_of_coordinator(self._connection, claim.path)
        except UnsupportedVersion:  # and nobody records statuses
            return None
        of_table = [one for one in found if one.table_id == claim.table_id]
        return of_table[0].compaction_requested_ms if of_table else None

    def table_info(self, path: TablePath) -> TableInfo:
        return self._admin.table_info(path)

    def partitions(self, path: TablePath) -> list[Partition]:
        """Returns the current partitions; empty for a table without partition keys."""
        info = self._admin.table_info(path)
        return self._admin.partitions_of(info) if info.is_partitioned else []

    def latest_offsets(
        self, path: TablePath, table_id: int, partition_id: int | None, buckets: Sequence[int]
    ) -> dict[int, int]:
        return self._admin.list_offsets(path, buckets, partition_id, "latest", table_id=table_id)

    def earliest_offsets(
        self, path: TablePath, table_id: int, partition_id: int | None, buckets: Sequence[int]
    ) -> dict[int, int]:
        return self._admin.list_offsets(path, buckets, partition_id, "earliest", table_id=table_id)

    # ---- calls ----

    def _heartbeat(
        self,
        request: pb.LakeTieringHeartbeatRequest,
        *,
        idempotent: bool,
        retry: bool = True,
    ) -> Any:
        reply = self._connection.ask_coordinator(
            apis.LAKE_TIERING_HEARTBEAT, request, idempotent=idempotent, retry=retry
        )
        told_ms = reply.claim_timeout_ms
        self.claim_timeout_s = told_ms / 1000 if told_ms > 0 else LIVENESS_TIMEOUT_S
        return reply

    def _report(
        self,
        request: pb.LakeTieringHeartbeatRequest,
        claims: Sequence[Claim],
        answers: Callable[[Any], Any],
    ) -> dict[int, FlussError | None]:
        """Sends a report until a response arrives; returns the final errors by table id.

        If a response is lost, the report may already have taken effect and increased the epoch. The
        coordinator then refuses the repeated report by that epoch, which counts as success.

        :raises FlussError: the error of the only claim, or one that may pass.
        """
        unknown = False

        def attempt_failed(error: FlussError) -> None:
            nonlocal unknown
            unknown = unknown or error.details.get("sent") is not False

        def unpack(reply: Any) -> dict[int, FlussError | None]:
            found = {entry.table_id: error_of(entry) for entry in answers(reply)}
            for claim in claims:
                if claim.table_id not in found:
                    raise CorruptMessage(
                        f"report of {claim.path}, tiering epoch {claim.tiering_epoch}: the"
                        f" response has {len(found)} results and none for this table"
                    )
                error = found[claim.table_id]
                if unknown and isinstance(error, FencedTieringEpoch):
                    found[claim.table_id] = None
                elif error is not None and (len(claims) == 1 or error.retryable):
                    raise error
            return found

        return self._connection.call_coordinator(
            apis.LAKE_TIERING_HEARTBEAT,
            request,
            unpack,
            idempotent=True,
            on_failure=attempt_failed,
        )


class _HeldClaimHeartbeats:
    """Sends the heartbeats of held claims, without recording them."""

    def __init__(self, tiering: TieringClient) -> None:
        self._tiering = tiering

    @property
    def claim_timeout_s(self) -> float | None:
        return self._tiering.claim_timeout_s

    def heartbeat(self, claims: list[Claim], *, retry: bool = True) -> dict[int, FlussError | None]:
        return self._tiering.beat(claims, retry=retry)


def _claim(table: pb.PbLakeTieringTableInfo, coordinator_epoch: int) -> Claim:
    path = path_of(table.table_path)
    return Claim(table.table_id, path, table.tiering_epoch, coordinator_epoch)


def _round_message(details: TieringRound) -> pb.PbTieringRound:
    return round_to_message(replace(details, worker=details.worker or this_process()))
