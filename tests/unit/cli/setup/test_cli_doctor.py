"""`sluice doctor` on what is well, and on one thing wrong at a time."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from sluice import __version__
from sluice.artifacts.iceberg import installed_iceberg
from sluice.cli.main import cli
from sluice.client import connect
from sluice.config import DatalakeConfig, ServerConfig
from sluice.model import Column, Reason, Schema, TableDescriptor, TablePath
from sluice.model import types as t
from sluice.server.cluster import EmbeddedCluster
from tests.support.network.wire_server import WireServer

Examine = Callable[..., tuple[int, dict[str, tuple[bool | None, str]]]]


@pytest.fixture
def jars(tmp_path: Path) -> str:
    folder = tmp_path / "jars"
    folder.mkdir()
    (folder / installed_iceberg().name).touch()
    return str(folder)


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    config = ServerConfig(data_dir=str(tmp_path / "data"), listen="grpc://127.0.0.1:0")
    with EmbeddedCluster(config) as cluster:
        yield cluster.address


@pytest.fixture
def examine(jars: str, address: str) -> Examine:
    def run(*arguments: str, **more: str) -> tuple[int, dict[str, tuple[bool | None, str]]]:
        environment: dict[str, Any] = {
            "SLUICE_CLIENT_BOOTSTRAP": address,
            "SLUICE_TIERING_JARS": jars,
            **more,
        }
        done = CliRunner().invoke(cli, ["doctor", "--format", "json", *arguments], env=environment)
        found = json.loads(done.output)
        return done.exit_code, {f["what"]: (f["ok"], f["seen"]) for f in found}

    return run


def test_databases_are_counted(examine: Examine, address: str) -> None:
    with connect(address) as client:
        for words in ("answers; 1 database", "answers; 2 databases"):
            _, found = examine()
            assert found[f"cluster {address}"] == (True, words)
            client.admin.create_database("shop", ignore_if_exists=True)
        for name in client.admin.list_databases():
            client.admin.drop_database(name)
    assert examine()[1][f"cluster {address}"] == (True, "answers; 0 databases")


def test_all_is_well(examine: Examine, address: str, tmp_path: Path) -> None:
    lake, work = tmp_path / "lake", tmp_path / "work"
    work.mkdir()
    code, found = examine("--warehouse", str(lake), "--work-uri", f"file://{work}")
    assert code == 0, found
    assert all(ok for ok, _ in found.values())
    same = f"this machine: sluice {__version__}; server: sluice {__version__}; it offers every call"
    assert found[f"coordinator {address}"][1] == found[f"tablet {address}"][1] == same
    assert not lake.exists(), "what it made is gone"
    assert list(work.iterdir()) == []


def test_columns_that_a_reader_suffers_from_are_named(examine: Examine, address: str) -> None:
    columns = (Column("id", t.INT, 0), Column("ID", t.INT, 1), Column("at", t.time(3), 2))
    enabled = {"table.datalake.enabled": "true"}
    with connect(address) as client:
        path = TablePath("shop", "orders")
        client.admin.create_database("shop")
        client.admin.create_table(path, TableDescriptor(Schema(columns), properties=enabled))
    _, found = examine()
    assert found["columns of shop.orders"] == (
        True,
        "columns id and ID differ in case only (Spark: it cannot read the table); column at has the"
        " type TIME (Spark: it cannot read the table; other engines can)",
    )
    told = CliRunner().invoke(cli, ["doctor"], env={"SLUICE_CLIENT_BOOTSTRAP": address})
    assert re.search(r"^columns of shop.orders +note +columns id", told.output, re.MULTILINE)


@pytest.mark.parametrize(
    ("lake", "named", "advice"),
    [
        ({"type": "hadoop", "warehouse": "LAKE"}, "catalog hadoop at LAKE", "--warehouse LAKE"),
        (
            {"type": "hadoop", "warehouse": "LAKE", "io-impl": "x.Y"},
            "catalog hadoop at LAKE",
            "[datalake] in --config FILE",
        ),
    ],
)
def test_without_a_lake_here_it_checks_that_of_the_server(
    lake: dict[str, str], named: str, advice: str, jars: str, tmp_path: Path
) -> None:
    def filled(text: str) -> str:
        return text.replace("LAKE", str(tmp_path / "lake"))

    config = ServerConfig(data_dir=str(tmp_path / "data"), listen="grpc://127.0.0.1:0")
    datalake = DatalakeConfig("iceberg", {name: filled(value) for name, value in lake.items()})
    with EmbeddedCluster(config, datalake=datalake) as cluster:
        env = {"SLUICE_CLIENT_BOOTSTRAP": cluster.address, "SLUICE_TIERING_JARS": jars}

        def doctor() -> tuple[int, dict[str, tuple[bool | None, str]]]:
            done = CliRunner().invoke(cli, ["doctor", "--format", "json"], env=env)
            seen = {f["what"]: (f["ok"], f["seen"]) for f in json.loads(done.stdout)}
            return done.exit_code, seen

        code, found = doctor()
        assert code == 1
        assert found["lake configured"][0] is False
        assert "lake of the cluster" not in found
        words = ["create-table", "shop.orders", "--schema", "id BIGINT"]
        assert CliRunner().invoke(cli, words, env=env).exit_code == 0
        _, found = doctor()
    assert found["lake of the cluster"] == (
        True,
        f"{filled(named)}, as table shop.orders names it. None is configured on this machine: give"
        f" commands {filled(advice)}",
    )
    assert found["lake configured"] == (True, f"iceberg, {filled(named)}")
    assert found[f"write to the lake, {tmp_path / 'lake'}"][0]


def test_a_server_without_a_lake_is_well(jars: str, tmp_path: Path) -> None:
    (tmp_path / "none.toml").write_text('[datalake]\nformat = "none"\n')
    server = ServerConfig(data_dir=str(tmp_path / "data"), listen="grpc://127.0.0.1:0")
    with EmbeddedCluster(server, datalake=DatalakeConfig("none")) as cluster:
        env = {"SLUICE_CLIENT_BOOTSTRAP": cluster.address, "SLUICE_TIERING_JARS": jars}
        words = ["doctor", "--format", "json", "--config", str(tmp_path / "none.toml")]
        done = CliRunner().invoke(cli, words, env=env)
    found = {f["what"]: (f["ok"], f["seen"]) for f in json.loads(done.stdout)}
    assert (done.exit_code, found["lake configured"]) == (
        0,
        (None, "datalake.format=none: this server has no lake"),
    )
    assert not [what for what in found if "write to" in what]


@pytest.mark.parametrize("option", ["--work-uri", "--warehouse"])
def test_keys_in_an_address_are_not_shown(examine: Examine, option: str) -> None:
    code, found = examine(option, "nowhere://AKID:zQ9hunter2x@bucket/x")
    assert code == 1
    assert any("nowhere://***@bucket/x" in what for what in found)
    assert "zQ9hunter2x" not in str(found)


def test_it_reads_well_too(address: str, jars: str, tmp_path: Path) -> None:
    environment = {"SLUICE_CLIENT_BOOTSTRAP": address, "SLUICE_TIERING_JARS": jars}
    arguments = ["doctor", "--warehouse", str(tmp_path / "lake")]
    done = CliRunner().invoke(cli, arguments, env=environment)
    assert done.exit_code == 0, done.output
    assert "WRONG" not in done.output
    assert "give --work-uri URI to check it" in done.output


def test_a_cluster_that_is_not_there(examine: Examine, tmp_path: Path) -> None:
    code, found = examine(
        "--warehouse", str(tmp_path / "lake"), SLUICE_CLIENT_BOOTSTRAP="grpc://127.0.0.1:1",
        SLUICE_CLIENT_CONNECT_TIMEOUT_MS="200",
    )  # fmt: skip
    assert code == 1
    ok, seen = found["cluster grpc://127.0.0.1:1"]
    assert not ok
    assert seen == (
        "NetworkError: nothing listens at 127.0.0.1:1: connection refused; start a server with"
        " `sluice serve`, or give the cluster's address by --bootstrap or SLUICE_CLIENT_BOOTSTRAP"
    )


def test_folders_that_cannot_be_written(examine: Examine, tmp_path: Path) -> None:
    (tmp_path / "lake").write_text("a file")
    uri = f"file://{tmp_path}/lake/work"
    code, found = examine("--warehouse", str(tmp_path / "lake"), "--work-uri", uri)
    assert code == 1
    ok, seen = found[f"write to the lake, {tmp_path / 'lake'}"]
    assert (ok, seen.partition(";")[0]) == (False, f"{tmp_path}/lake is a file")
    assert found[f"work folder {uri}"][0] is False
    assert sum(ok is False for ok, _ in found.values()) == 2


def test_no_lake_and_no_jars(examine: Examine, tmp_path: Path) -> None:
    code, found = examine(SLUICE_TIERING_JARS=str(tmp_path))
    assert code == 1
    assert "no lake is configured" in found["lake configured"][1]
    assert "no iceberg-spark-runtime" in found["Iceberg's runtime"][1]
    assert "write to the lake" not in found


def test_a_server_of_before_lacks_calls(examine: Examine, tmp_path: Path) -> None:
    with WireServer({}) as old:
        _, found = examine(
            "--warehouse", str(tmp_path / "lake"), SLUICE_CLIENT_BOOTSTRAP=old.address
        )
    ok, seen = found[f"cluster {old.address}"]
    assert (ok, "does not offer ListDatabases" in seen) == (False, True)


def test_no_secret_is_shown(examine: Examine, tmp_path: Path) -> None:
    _, found = examine(
        SLUICE_DATALAKE_ICEBERG_TYPE="rest",
        SLUICE_DATALAKE_ICEBERG_URI="https://bob:planted-secret@catalog/",
        SLUICE_DATALAKE_ICEBERG_TOKEN="planted-token",
    )
    assert "https://***@catalog/" in found["lake configured"][1]
    assert "planted" not in json.dumps(found)


def test_a_table_whose_round_failed_is_wrong(examine: Examine, address: str) -> None:
    """Also if the lake was not looked at; `sluice status` says the same."""
    with connect(address) as client:
        words = ["create-table", "shop.orders", "--schema", "id BIGINT", "--bootstrap", address]
        assert CliRunner().invoke(cli, words).exit_code == 0
        claim = client.tiering.claim()
        assert claim is not None
        client.tiering.failed(claim, Reason.from_text("use `sluice repair shop.orders --skip 0:0`"))
    code, found = examine()
    said = "1 failure, last error: use `sluice repair shop.orders --skip 0:0`"
    assert (code, found["table shop.orders"]) == (1, (False, said))
