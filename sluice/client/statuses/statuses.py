"""Tiering statuses of a cluster, and a user's requests for the tiering of a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial

from sluice.client.admin.admin import Admin
from sluice.client.admin.missing_leaders import is_elected, unknown
from sluice.client.connection.connection import Connection
from sluice.client.statuses.coordinator import rounds_of_coordinator, statuses_of_coordinator
from sluice.client.statuses.force_due import make_due
from sluice.client.statuses.recorded import RecordedStatuses
from sluice.clock import SystemClock
from sluice.errors import DatabaseNotExist, TableNotDue, TableNotExist, UnsupportedVersion
from sluice.model import Claim, TableInfo, TablePath, TieringRound, TieringStatus
from sluice.model.round_record import ROUNDS_KEPT
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.messages import values
from sluice.wire.messages.table_paths import table_path


class StatusClient:
    """Reads tiering statuses; pauses, resumes, retries and requests the tiering of a table.

    Safe for use by many threads. An Apache Fluss coordinator supports none of these calls. There,
    this class uses the statuses that Sluice's rounds record in the table ``sluice.tiering_status``.
    """

    def __init__(self, connection: Connection, admin: Admin, recorded: RecordedStatuses) -> None:
        """:param recorded: statuses recorded by rounds, for a cluster that keeps none."""
        self._connection = connection
        self._admin = admin
        self._recorded = recorded

    def of_coordinator(self, path: TablePath | None = None) -> list[TieringStatus]:
        """Returns the tiering statuses that the coordinator itself reports, of one table or all.

        :raises UnsupportedVersion: the coordinator does not support the call.
        """
        return statuses_of_coordinator(self._connection, path)

    def lake_tables(self) -> list[TablePath]:
        """Returns the paths of all tables with tiering enabled, sorted."""
        try:
            return sorted(status.path for status in self.of_coordinator())
        except UnsupportedVersion:  # read the options of every table
            return sorted(info.path for info in self._infos() if info.datalake_enabled)

    def history(self, path: TablePath, limit: int = 20) -> list[TieringRound]:
        """Returns the newest ended rounds of a table, the newest first.

        :param limit: the most rounds to return; at most ``ROUNDS_KEPT`` are kept.
        :raises TableNotExist: the table does not exist.
        """
        with suppress(UnsupportedVersion):
            return rounds_of_coordinator(self._connection, path, limit)
        return [*self._recorded.listing.rounds(self._admin.table_info(path).table_id, limit)]

    def histories(self, limit: int = ROUNDS_KEPT) -> list[tuple[TablePath, TieringRound]]:
        """Returns the newest ended rounds of all lake tables, the newest of a table first."""
        found: list[tuple[TablePath, TieringRound]] = []
        for path in self.lake_tables():  # one request for each, because all may be too many bytes
            with suppress(TableNotExist):  # dropped in the meantime
                found += [(path, each) for each in self.history(path, limit)]
        return found

    def are_estimates(self) -> bool:
        """Whether states and due times are estimates, because the coordinator reports none."""
        return not self._connection.coordinator_offers(apis.LIST_TIERING_STATUSES)

    # In annotations below this method, ``list`` would name it and not the type.
    def list(self, path: TablePath | None = None, *, lags: bool = True) -> list[TieringStatus]:
        """Returns the tiering status of one lake table, or of all.

        :param lags: False leaves lags and lake snapshots out where they must be read one by one.
        :raises TableNotExist: the table does not exist.
        """
        with suppress(UnsupportedVersion):
            return self.of_coordinator(path)
        infos = self._infos() if path is None else [self._admin.table_info(path)]
        return self._recorded.listing.list(infos, lags=lags)

    def paused(self, claims: Sequence[Claim]) -> set[Claim]:
        """Returns the claims whose tables are paused.

        :raises FlussError: the statuses cannot be read.
        """
        if not claims:
            return set()
        with suppress(UnsupportedVersion):
            statuses = self.of_coordinator(claims[0].path if len(claims) == 1 else None)
            found = {status.table_id for status in statuses if status.paused}
            return {claim for claim in claims if claim.table_id in found}
        return self._recorded.paused(claims)

    def pause(self, path: TablePath) -> None:
        """Pauses tiering of a table, also across restarts.

        A tier task of Airflow ends the table's round without a failure; other rounds continue.

        The coordinator assigns a paused table to no worker. If the coordinator does not support
        the call, the pause is recorded, and Sluice's rounds honour it.

        :raises TableNotExist: the table does not exist.
        :raises InvalidTable: the table is not tiered.
        """
        if not self._control(path, values.TIERING_PAUSE):
            self._recorded.pause(self._admin.table_info(path), True)

    def resume(self, path: TablePath) -> None:
        """Resumes tiering of a paused table. Raises the errors of :meth:`pause`."""
        if not self._control(path, values.TIERING_RESUME):
            self._recorded.pause(self._admin.table_info(path), False)

    def retry(self, path: TablePath) -> None:
        """Clears a table's failures; a table that waits for its next attempt is due now.

        Raises the errors of :meth:`pause`.
        """
        if not self._control(path, values.TIERING_RETRY):
            self._recorded.retry(self._admin.table_info(path))

    def request_round(self, path: TablePath, lost_by: str | None = None) -> None:
        """Requests one more round of a table now, before its freshness has passed.

        The round starts after the current one. An Apache Fluss coordinator does not support the
        call; there, the table is made due by a forced finish, which needs that no round is running.

        :param lost_by: on Apache Fluss, the name of a run whose claim was lost: the record of that
            claim does not count as a running round. The coordinator is asked, but not repeatedly.
        :raises TableNotExist: the table does not exist.
        :raises InvalidTable: the table is not tiered.
        :raises TableNotDue: on Apache Fluss: a round is running, or may be: then the text says when
            the claim of a dead worker has ended. Or the table cannot be made due.
        """
        if not self._control(path, values.TIERING_AGAIN):
            info = self._admin.table_info(path)
            try:
                self._recorded.make_due(
                    info, partial(make_due, self._connection, path, info.table_id), lost_by
                )
            except TableNotExist as error:
                if self._admin.table_info(path).table_id != info.table_id:
                    raise
                # Tiering that was just turned on is as new to the coordinator as a new table.
                changed_ms = max(info.created_ms, info.modified_ms)
                is_missed = (
                    is_elected(changed_ms, SystemClock().now_ms())
                    and self._admin.lake_snapshot(path) is None
                )
                raise TableNotDue(
                    f"table {path} was not made due: {unknown(path, is_missed)}",
                    waits=True,
                    has_no_leader=True,
                ) from error

    def request_compaction(self, path: TablePath) -> None:
        """Requests that the table's next round compacts it, whatever options the table has.

        The request stays until a round has completed it. Raises the errors of :meth:`pause`, and
        UnknownServerError if the coordinator is older than this call.
        """
        if not self._control(path, values.TIERING_COMPACT):
            self._recorded.request_compaction(self._admin.table_info(path))

    def _control(self, path: TablePath, action: int) -> bool:
        """Sends a tiering command; returns False if the coordinator does not support the call."""
        request = pb.ControlTieringRequest(table_path=table_path(path), action=action)
        with suppress(UnsupportedVersion):
            self._connection.ask_coordinator(apis.CONTROL_TIERING, request)
            return True
        return False

    def _infos(self) -> Iterator[TableInfo]:
        for path in self._admin.all_tables():
            with suppress(TableNotExist, DatabaseNotExist):  # dropped since it was listed
                yield self._admin.table_info(path)
