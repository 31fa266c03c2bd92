"""`sluice serve` as a real process: ready line, clean end, and what it refuses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from sluice.client import connect
from sluice.config import ClientConfig
from sluice.errors import NetworkError
from sluice.model import TablePath
from tests.support.programs.processes import SLUICE, ServerProcess, served, sluice


def test_it_prints_its_real_address_and_ends_cleanly_on_sigterm(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "data")
    address = server.start()
    assert address.startswith("grpc://127.0.0.1:")
    assert not address.endswith(":0")
    assert sluice("tables", "--bootstrap", address).stdout == "no tables\n"
    assert server.stop() == 0


def test_clients_are_told_its_warehouse(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "data")
    server.command = (*server.command, "--warehouse", str(tmp_path / "lake"))
    address = server.start()
    made = ("--schema", "id BIGINT", "--bootstrap", address)
    assert sluice("create-table", "shop.orders", *made).returncode == 0
    with connect(ClientConfig(address)) as client:
        told = client.admin.table_info(TablePath("shop", "orders")).descriptor.properties
    assert told["table.datalake.iceberg.warehouse"] == str(tmp_path / "lake")
    assert server.stop() == 0


def test_ctrl_c_ends_it_cleanly_too(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "data")
    server.start()
    assert server.process is not None
    os.kill(server.process.pid, signal.SIGINT)
    assert server.wait_until_dead() == 0
    server.kill()


def test_a_second_server_on_the_directory_is_refused(tmp_path: Path) -> None:
    with served(tmp_path / "data"):
        second = sluice("serve", "--data-dir", str(tmp_path / "data"), "--listen", FREE)
    assert second.returncode == 1
    assert one_line(second.stderr).startswith("sluice: DataDirLocked: ")
    assert str(tmp_path / "data") in second.stderr


def test_an_address_that_others_reach_needs_a_word(tmp_path: Path) -> None:
    refused = sluice("serve", "--data-dir", str(tmp_path), "--listen", "grpc://0.0.0.0:0")
    assert refused.returncode == 2
    assert "0.0.0.0" in one_line(refused.stderr)
    assert "insecure" in refused.stderr


def test_data_of_an_unknown_version_is_left_alone(tmp_path: Path) -> None:
    with served(tmp_path / "data"):
        pass
    (tmp_path / "data/FORMAT").write_text('{"format": 99}')
    refused = sluice("serve", "--data-dir", str(tmp_path / "data"), "--listen", FREE)
    assert refused.returncode == 1
    assert one_line(refused.stderr).startswith("sluice: UnknownDataDirFormat: ")
    assert "99" in refused.stderr


def test_an_address_in_use_is_one_line(tmp_path: Path) -> None:
    with served(tmp_path / "data") as server:
        arguments = ("--data-dir", str(tmp_path / "other"), "--listen", server.address)
        second = sluice("serve", *arguments)
    assert second.returncode in (1, 2)
    assert server.address.rsplit(":", 1)[1] in one_line(second.stderr)


@pytest.mark.parametrize("address", ["127.0.0.1:9123", "http://127.0.0.1:0", "grpc://127.0.0.1"])
def test_an_address_of_another_form_is_refused(tmp_path: Path, address: str) -> None:
    refused = sluice("serve", "--data-dir", str(tmp_path), "--listen", address)
    assert refused.returncode == 2
    assert address in one_line(refused.stderr)


def test_it_listens_on_several_addresses(tmp_path: Path) -> None:
    command = [SLUICE, "serve", "--data-dir", str(tmp_path / "data")]
    command += ["--listen", FREE, "--listen", "fluss://127.0.0.1:0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        grpc, native, _ = line.removeprefix("sluice: ready at ").split(", ")
        assert grpc.startswith("grpc://127.0.0.1:")
        assert native.startswith("fluss://127.0.0.1:")
        for address in (grpc, native):
            assert sluice("tables", "--bootstrap", address).stdout == "no tables\n"
        process.terminate()
        assert process.wait(120) == 0


def test_on_all_addresses_it_is_reached_by_whatever_name_a_client_has_for_it(
    tmp_path: Path,
) -> None:
    """As docker-compose.yaml has it: the containers and their host call it by different names."""
    data = str(tmp_path / "data")
    command = [SLUICE, "serve", "--data-dir", data, "--listen", "grpc://0.0.0.0:0", "--insecure"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        port = process.stdout.readline().partition("0.0.0.0:")[2].partition(",")[0]
        for host in ("127.0.0.1", "127.0.0.7", "localhost"):
            with connect(f"grpc://{host}:{port}") as client:
                assert client.admin.list_databases() == ["fluss"]
        process.terminate()
        assert process.wait(120) == 0


def test_clients_go_to_the_advertised_address(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    command = [SLUICE, "serve", "--data-dir", data, "--listen", FREE]
    command += ["--advertised-listeners", "grpc://127.0.0.1:1"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        address = process.stdout.readline().partition("ready at ")[2].partition(",")[0]
        config = ClientConfig(address, retry_timeout_ms=5_000, connect_timeout_ms=5_000)
        with connect(config) as client, pytest.raises(NetworkError, match=r"127\.0\.0\.1:1\b"):
            client.admin.list_databases()
        process.terminate()
        assert process.wait(120) == 0


def test_logs_for_machines_are_json_lines(tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = [SLUICE, "serve", "--data-dir", str(tmp_path / "data"), "--listen", FREE]
    with (
        log.open("w") as stderr,
        subprocess.Popen(
            [*command, "--log-format", "json"], stdout=subprocess.PIPE, stderr=stderr, text=True
        ) as process,
    ):
        assert process.stdout is not None
        assert process.stdout.readline().startswith("sluice: ready at grpc://127.0.0.1:")
        process.terminate()
        assert process.wait(120) == 0
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert lines
    assert all({"event", "level", "timestamp"} <= line.keys() for line in lines)


FREE = "grpc://127.0.0.1:0"


def one_line(text: str) -> str:
    """The last line, if it is the only thing that was said beside the log."""
    assert "Traceback" not in text
    return text.strip().splitlines()[-1]
