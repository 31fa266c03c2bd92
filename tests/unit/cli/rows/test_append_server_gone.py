"""`sluice append` whose server goes away before anything is sent: no row is blamed for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sluice.cli.rows.csv_rows import CsvRows
from sluice.client import connect
from sluice.client.batches.bucket_writer import BucketWriter
from sluice.config import ServerConfig
from sluice.server.cluster import EmbeddedCluster
from tests.support.tables.append_shop import Shop

SHORT = {"SLUICE_CLIENT_RETRY_TIMEOUT_MS": "300"}


@pytest.fixture
def ends(tmp_path: Path) -> tuple[Shop, Path, Callable[[], None]]:
    """A table with partitions, a file for it, and what ends the server."""
    cluster = EmbeddedCluster(ServerConfig(str(tmp_path / "data"), listen="grpc://127.0.0.1:0"))
    cluster.__enter__()
    shop = Shop(cluster.address, tmp_path)
    with connect(cluster.address) as client:
        client.admin.create_database("shop")
    shop.create("region STRING, n INT", "--partition-by", "region")
    path = tmp_path / "rows.csv"
    path.write_text("region,n\n" + "".join(f"r{i % 3},{i}\n" for i in range(20_000)))
    return shop, path, lambda: cluster.__exit__(None, None, None)


def test_while_partitions_are_checked(
    ends: tuple[Shop, Path, Callable[[], None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    shop, path, end = ends
    ask, asked = BucketWriter.missing_partitions, list[object]()

    def missing(writer: BucketWriter, wanted: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
        if not asked:
            end()
        asked.append(wanted)
        return ask(writer, wanted)

    monkeypatch.setattr(BucketWriter, "missing_partitions", missing)
    said = shop.append(path, fails=1, **SHORT)
    assert said.startswith("sluice: NetworkError: ")
    assert said.endswith(". Nothing was sent\n")
    assert "line " not in said
    assert len(asked) == 1, "rows were searched for the fault of the server"


def test_before_the_check_begins(
    ends: tuple[Shop, Path, Callable[[], None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    shop, path, end = ends
    begin = CsvRows.__init__

    def begin_and_end(rows: CsvRows, of: Path) -> None:
        begin(rows, of)
        end()

    monkeypatch.setattr(CsvRows, "__init__", begin_and_end)
    said = shop.append(path, fails=1, **SHORT)
    assert said.startswith("sluice: NetworkError: ")
    assert said.endswith(". Nothing was sent\n")
