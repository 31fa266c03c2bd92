"""docker-compose.yaml, its Dockerfile and the code against each other; no container is started."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from sluice.artifacts.iceberg import iceberg_runtime
from sluice.config import ClientConfig
from sluice_airflow.config.connection import FlussConnection
from sluice_airflow.provider_info import OPTIONS
from tests.airflow.place import airflow_home
from tests.docs.blocks import claimed, claimed_blocks
from tests.support.programs.installed import JARS
from tests.support.programs.processes import SLUICE

ROOT = Path(__file__).resolve().parents[3]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
DOCKERFILE = (ROOT / "docker/Dockerfile").read_text()
DOCKER = """#!/bin/bash
[ "$1" = compose ] || exit 64
case $2 in
    exec) shift 3; exec "$@" ;;
    cp) exec cp "$3" "${4#*:}" ;;
    *) exit 64 ;;
esac
"""
AIRFLOW: dict[str, str] = SERVICES["airflow"]["environment"]


def mounts(service: str) -> dict[str, str]:
    """Volume name -> path."""
    return dict(volume.split(":")[:2] for volume in SERVICES[service].get("volumes", []))


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_checked_and_waits_for_healthy_ones(name: str) -> None:
    service = SERVICES[name]
    check = service["healthcheck"]
    assert check["test"][0] == "CMD"
    assert {"interval", "timeout", "retries"} <= set(check)
    for other, wanted in service.get("depends_on", {}).items():
        assert other in SERVICES
        assert wanted == {"condition": "service_healthy"}
    assert (ROOT / service["build"]["dockerfile"]).is_file()


@pytest.mark.parametrize("name", SERVICES)
def test_ports_open_on_loopback_only(name: str) -> None:
    assert [p for p in SERVICES[name].get("ports", []) if not p.startswith("127.0.0.1:")] == []


@pytest.mark.parametrize("name", SERVICES)
def test_hosts_named_in_commands_and_checks_are_services(name: str) -> None:
    said = " ".join([SERVICES[name]["command"], *SERVICES[name]["healthcheck"]["test"]])
    hosts = re.findall(r"(?:://|\s)([a-z][a-z-]*):\d+", said)
    assert [host for host in hosts if SERVICES.get(host, {}).get("hostname") != host] == []


def test_inline_checks_are_python() -> None:
    for service in SERVICES.values():
        if "-c" in (test := service["healthcheck"]["test"]):
            compile(test[test.index("-c") + 1], "healthcheck", "exec")


def test_volumes_are_declared_and_used() -> None:
    assert {volume for name in SERVICES for volume in mounts(name)} == set(COMPOSE["volumes"])


def test_mounted_folders_are_made_in_the_image() -> None:
    """A named volume takes the owner of the folder that it covers."""
    made = set(next(line for line in DOCKERFILE.splitlines() if " mkdir -p /srv" in line).split())
    for name in SERVICES:
        assert set(mounts(name).values()) <= made


def test_airflow_and_spark_reach_the_same_work_folder_and_lake() -> None:
    content = json.loads(AIRFLOW["AIRFLOW_CONN_FLUSS_DEFAULT"])
    assert content.pop("conn_type") == "fluss"
    connection = FlussConnection.parse("c", content["host"], content["port"], content["extra"])
    listen = shlex.split(SERVICES["fluss"]["command"])[-2]
    assert listen == "grpc://0.0.0.0:9123"
    assert connection.bootstrap == "grpc://fluss:9123"
    assert SERVICES["fluss"]["hostname"] == "fluss"
    folders = {
        connection.work_uri.removeprefix("file://"),
        connection.datalake["iceberg.warehouse"],
    }
    for name in ("airflow", "spark-worker"):
        assert folders <= set(mounts(name).values())


def test_spark_connection_is_the_master() -> None:
    content = json.loads(AIRFLOW["AIRFLOW_CONN_SPARK_DEFAULT"])
    assert f"{content['host']}:{content['port']}" in SERVICES["spark-worker"]["command"]


def test_sluice_settings_exist() -> None:
    prefix = "AIRFLOW__SLUICE__"
    named = {key.removeprefix(prefix).lower() for key in AIRFLOW if key.startswith(prefix)}
    assert named
    assert named <= set(OPTIONS)


def test_the_image_has_what_the_services_name() -> None:
    copied = [line.split()[1:-1] for line in DOCKERFILE.splitlines() if line.startswith("COPY")]
    for source in (name for names in copied for name in names):
        assert (ROOT / source).exists(), source
    assert "sluice jars fetch /opt/sluice/jars" in DOCKERFILE
    [spark] = re.findall(r"^pyspark==(\S+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    assert AIRFLOW["AIRFLOW__SLUICE__JARS"] == f"/opt/sluice/jars/{iceberg_runtime(spark).name}"


def test_the_page_names_what_is_there() -> None:
    lines = [shlex.split(command.text) for command in claimed("docs/compose.md", __file__)]
    commands = [words[3:] for words in lines if words[:3] == ["docker", "compose", "exec"]]
    assert {service for service, *_ in commands} == {"fluss", "airflow"} <= set(SERVICES)
    [unpause] = [words for words in commands if words[1:3] == ["airflow", "dags"]]
    assert unpause[-1] in (ROOT / "plugins/sluice_airflow/dag.py").read_text()
    [read] = [words for words in commands if words[1] == "spark-sql"]
    assert read[read.index("--jars") + 1] == AIRFLOW["AIRFLOW__SLUICE__JARS"]
    assert f"spark.sql.catalog.lake.warehouse={mounts('airflow')['lake']}" in read
    page = (ROOT / "docs/compose.md").read_text()
    published = [port for service in SERVICES.values() for port in service.get("ports", [])]
    for port in published:
        assert f"`{'grpc' if '9123' in port else 'http'}://{port.rpartition(':')[0]}`" in page


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The server of the service `fluss` on another port, and its address."""
    words = shlex.split(SERVICES["fluss"]["command"])
    changed = {
        "/srv/sluice/data": str(folder / "data"),
        "grpc://0.0.0.0:9123": "grpc://0.0.0.0:0",
    }
    assert set(changed) <= set(words)
    with subprocess.Popen(
        [SLUICE, *(changed.get(word, word) for word in words[1:])],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as server:
        assert server.stdout is not None
        port = re.findall(r"grpc://0\.0\.0\.0:(\d+)", server.stdout.readline())[0]
        try:
            yield f"grpc://127.0.0.1:{port}"
        finally:
            server.terminate()


@pytest.mark.slow
@pytest.mark.airflow
@pytest.mark.spark
def test_the_commands_of_the_page_work_without_containers(tmp_path: Path) -> None:
    """The blocks as they are, with a program `docker` that runs the commands on this machine.

    `sluice tier` stands for the DAG, which other tests run.
    """
    docker = tmp_path / "bin/docker"
    docker.parent.mkdir()
    docker.write_text(DOCKER)
    docker.chmod(0o755)
    (tmp_path / "airflow").mkdir()
    (tmp_path / ".venv").symlink_to(sys.prefix)
    first, read, from_host = claimed_blocks("docs/compose.md", __file__)
    with served(tmp_path) as address:
        there = {
            "/tmp/orders.csv": f"{tmp_path}/in-container.csv",
            "/opt/sluice/jars/": f"{JARS}/",
            "/srv/sluice/lake": f"{tmp_path}/lake",
            ClientConfig().bootstrap: address,
        }
        programs = [str(docker.parent), str(Path(SLUICE).parent), os.environ["PATH"]]
        variables = {
            **airflow_home(tmp_path / "airflow", ROOT / "tests/airflow/driver.py"),
            "PATH": os.pathsep.join(programs),
            "SLUICE_CLIENT_BOOTSTRAP": address,
            "SLUICE_TIERING_JARS": JARS,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }

        def run(script: str) -> str:
            for shown, meant in there.items():
                script = script.replace(shown, meant)
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", script],
                cwd=tmp_path,
                env=variables,
                capture_output=True,
                text=True,
                timeout=240,
                check=False,
            )
            assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
            return done.stdout

        run("airflow dags reserialize")
        made = run(first.content)
        run("sluice tier shop.orders --warehouse lake --now")
        status, *rows = run(read.content).split("shop.orders", 1)
        again = run(from_host.content)
    assert "will be tiered as Iceberg" in made
    assert "shop.orders: 2 rows appended" in made
    assert "sluice_lake_tiering" in made.partition("rows appended")[2]
    assert "table" in status
    assert "1\tpen\t1.20" in rows[0]
    assert "2\tink\t7.50" in rows[0]
    assert "shop.orders: 2 rows appended" in again
