"""A claim that goes back to a server of before, which knows failures only."""

from __future__ import annotations

from typing import Any

import pytest

from sluice.client import connect
from sluice.errors import FencedTieringEpoch
from sluice.model import Claim, Reason, TablePath
from sluice.model.reason import WITHHELD
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import Role
from sluice.wire.error_codes import to_error_response
from tests.support.network.wire_server import WireServer

CLAIM = Claim(1, TablePath("shop", "orders"), 5, 3)


class OldCoordinator:
    """Passes over the fields that it does not know, as protobuf does."""

    def __init__(self) -> None:
        self.failed: list[Any] = []
        handlers = {(Role.COORDINATOR, apis.LAKE_TIERING_HEARTBEAT): self.heartbeat}
        self.server = WireServer(handlers)

    def heartbeat(self, request: Any) -> Any:
        reply = pb.LakeTieringHeartbeatResponse(coordinator_epoch=3)
        for entry in request.failed_tables:
            answer = reply.failed_table_resp.add(table_id=entry.table_id)
            if self.failed:
                answer.error.CopyFrom(to_error_response(FencedTieringEpoch("over")))
            self.failed.append(entry)
        if request.request_table:
            path = pb.PbTablePath(database_name="shop", table_name="orders")
            reply.tiering_table.CopyFrom(
                pb.PbLakeTieringTableInfo(table_id=1, table_path=path, tiering_epoch=5)
            )
        return reply


def test_an_old_server_is_told_of_a_failure_instead() -> None:
    old = OldCoordinator()
    with old.server, connect(old.server.address) as client:
        client.tiering.release(CLAIM, Reason.from_text("nobody wanted it"))
    (entry,) = old.failed
    assert (entry.table_id, entry.tiering_epoch, entry.coordinator_epoch) == (1, 5, 3)
    assert entry.error_message == "nobody wanted it"


def test_no_reason_with_a_secret_is_sent() -> None:
    """Only a reason that was made around its factory has one."""
    old, planted = OldCoordinator(), Reason("DriverLost", "login: password=planted")
    with old.server, connect(old.server.address) as client:
        client.tiering.failed(CLAIM, planted)
        with pytest.raises(FencedTieringEpoch):
            client.tiering.release(CLAIM, planted)
    assert [entry.error_message for entry in old.failed] == [WITHHELD, WITHHELD]
