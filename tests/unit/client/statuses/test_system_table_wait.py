"""How long a query of ``sys.lake_tiering_status`` waits for a cluster that refuses connections."""

from __future__ import annotations

import threading
from contextlib import ExitStack

import pytest
from pyspark.sql.datasource import InputPartition

from pyspark_sluice import LakeTieringStatus
from pyspark_sluice.system_table import SystemTableReader
from sluice.client.connection.reachability import OF_COMMAND, WAIT_S
from sluice.errors import NetworkError
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import Role
from tests.support.network.ports import kept_port
from tests.support.network.wire_server import WireServer


def rows() -> int:
    reader = SystemTableReader(LakeTieringStatus, ["table_name"])
    return sum(batch.num_rows for batch in reader.read(InputPartition(0)))


@pytest.mark.slow
def test_a_session_waits_out_a_fail_over_and_a_command_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def answer(_: object) -> pb.ListTieringStatusesResponse:
        return pb.ListTieringStatusesResponse()

    handlers = {(Role.COORDINATOR, apis.LIST_TIERING_STATUSES): answer}
    with kept_port() as port, ExitStack() as stack:
        monkeypatch.setenv("SLUICE_CLIENT_BOOTSTRAP", f"grpc://127.0.0.1:{port}")
        with monkeypatch.context() as command:
            command.setenv(OF_COMMAND, "1")
            with pytest.raises(NetworkError, match="nothing listens at"):
                rows()
        late = threading.Timer(
            2 * WAIT_S, lambda: stack.enter_context(WireServer(handlers, port=port))
        )
        late.start()
        assert rows() == 0
        late.join()
