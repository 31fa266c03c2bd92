"""The coordinator's tiering calls: heartbeats, statuses, and user actions on a table."""

from __future__ import annotations

from collections.abc import Mapping

import structlog

from sluice.errors import FlussError
from sluice.model import TablePath, TieringStatus
from sluice.model.round_record import ROUNDS_KEPT
from sluice.server.coordinator.catalog.catalog import Catalog
from sluice.server.coordinator.tiering.lake_lag import LakeLag
from sluice.server.coordinator.tiering.tiering import Tiering
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import Api
from sluice.wire.listeners.handlers import Handler
from sluice.wire.messages.status_messages import round_to_message, status_to_message
from sluice.wire.messages.table_paths import path_of

_log = structlog.get_logger("sluice.tiering")


class TieringService:
    """Handlers of the tiering calls, which only the coordinator can serve. Stateless."""

    def __init__(self, catalog: Catalog, tiering: Tiering, lag: LakeLag) -> None:
        self._catalog = catalog
        self._tiering = tiering
        self._lag = lag

    def handlers(self) -> Mapping[Api, Handler]:
        return {
            apis.LAKE_TIERING_HEARTBEAT: self._tiering.heartbeat,
            apis.LIST_TIERING_STATUSES: self.list_tiering_statuses,
            apis.LIST_TIERING_ROUNDS: self.list_tiering_rounds,
            apis.CONTROL_TIERING: self.control_tiering,
        }

    def statuses(self, path: TablePath | None = None) -> list[TieringStatus]:
        """The tiering status with lag, of all lake tables or of one.

        A table that is not tiered has no status.

        :raises TableNotExist: the table does not exist.
        """
        if path is not None:
            self._catalog.table(path)
        return [self._with_lag(status) for status in self._tiering.statuses(path)]

    def list_tiering_statuses(
        self, request: pb.ListTieringStatusesRequest
    ) -> pb.ListTieringStatusesResponse:
        path = path_of(request.table_path) if request.HasField("table_path") else None
        messages = [status_to_message(status) for status in self.statuses(path)]
        return pb.ListTieringStatusesResponse(tiering_statuses=messages)

    def list_tiering_rounds(
        self, request: pb.ListTieringRoundsRequest
    ) -> pb.ListTieringRoundsResponse:
        table_id = self._catalog.table(path_of(request.table_path)).info.table_id
        limit = request.limit if request.HasField("limit") else ROUNDS_KEPT
        found = self._tiering.rounds(table_id, limit)
        return pb.ListTieringRoundsResponse(rounds=[round_to_message(each) for each in found])

    def control_tiering(self, request: pb.ControlTieringRequest) -> pb.ControlTieringResponse:
        info = self._catalog.table(path_of(request.table_path)).info
        self._tiering.control(info, request.action)
        return pb.ControlTieringResponse()

    def _with_lag(self, status: TieringStatus) -> TieringStatus:
        table = self._catalog.find(status.table_id)
        if table is None:  # dropped in the meantime
            return status
        try:
            return self._lag.added_to(status, table)
        except FlussError as error:  # offsets unreadable: return the rest
            _log.warning(
                "cannot compute the lag of a table", table=str(status.path), error=str(error)
            )
            return status
