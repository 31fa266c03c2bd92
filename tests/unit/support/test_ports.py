"""Ports that are kept: for servers that come late, or come again."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from demo.airflow import Airflow
from demo.processes import Processes
from tests.support.fluss.real_fluss import RealFluss
from tests.support.network.ports import kept_port


def listening(port: int) -> socket.socket:
    """As servers do: who ended just now is no obstacle."""
    return socket.create_server(("127.0.0.1", port))


def test_a_kept_port_refuses_clients_and_is_given_to_nobody_but_a_server_on_it() -> None:
    with kept_port() as port:
        for _ in range(2):
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port), 60)
            with socket.socket() as other, pytest.raises(OSError, match="in use"):
                other.bind(("127.0.0.1", port))
            with listening(port), socket.create_connection(("127.0.0.1", port), 60):
                pass


def test_the_demos_airflow_keeps_its_port_until_its_api_server_comes(tmp_path: Path) -> None:
    airflow = Airflow(tmp_path / "home", Processes(tmp_path, dict(os.environ)), {})
    port = int(airflow.environment["AIRFLOW__API__PORT"])
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", port))
    listening(port).close()


def test_a_real_fluss_keeps_the_ports_of_servers_that_are_down(tmp_path: Path) -> None:
    fluss = RealFluss(tmp_path)
    ports = fluss._kept_ports()
    assert len(set(ports.values())) == 3
    for port in ports.values():
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
        listening(port).close()
