"""The released Java client 1.0.0 sends the bytes that 0.9.1 sends.

So what was made with Fluss 0.9.1 stands for 1.0.0 too. Each client writes rows of all types, keyed
rows with updates and deletes, and rows of each format, to an embedded server of its own, where ids
of tables and writers begin anew.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from sluice.config import ServerConfig
from sluice.server.cluster import EmbeddedCluster
from tests.support.clients.java_client import CLIENT, CLIENT_1_0, compiled, sent_by

SUBJECTS = ("types", "upserts", "row_formats")


@pytest.mark.long
def test_both_clients_send_the_same_batches(tmp_path: Path) -> None:
    sent = []
    for client in (CLIENT, CLIENT_1_0):
        folder = tmp_path / client.version
        folder.mkdir()
        program = compiled(folder / "classes", client)
        config = ServerConfig(data_dir=str(folder / "data"), listen="fluss://127.0.0.1:0")
        with EmbeddedCluster(config) as cluster:
            sent.append(sent_by(program, cluster.address, folder / "log", SUBJECTS))
    old, new = sent
    assert len(old["ProduceLog"]) > 5
    assert len(old["PutKv"]) > 20
    assert new == old
