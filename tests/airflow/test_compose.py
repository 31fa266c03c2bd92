"""docker-compose.yaml, its Dockerfile and the code against each other; no container is started."""

import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from sluice.artifacts.iceberg import iceberg_runtime
from sluice.cli.main import cli
from sluice.config import ClientConfig
from sluice_airflow.connection import FlussConnection
from sluice_airflow.provider_info import OPTIONS
from tests.support.processes import SLUICE

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
DOCKERFILE = (ROOT / "docker/Dockerfile").read_text()
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


def in_containers() -> list[list[str]]:
    """The page's commands after "docker compose": service first."""
    page = (ROOT / "docs/compose.md").read_text().replace("\\\n", "")
    lines = re.findall(r"^docker compose exec (.+)$", page, re.MULTILINE)
    return [shlex.split(line) for line in lines]


def test_the_page_names_what_is_there() -> None:
    commands = in_containers()
    assert {service for service, *_ in commands} <= set(SERVICES)
    [unpause] = [words for words in commands if words[1:3] == ["airflow", "dags"]]
    assert unpause[-1] in (ROOT / "plugins/sluice_airflow/dag.py").read_text()
    [read] = [words for words in commands if words[1] == "spark-sql"]
    assert read[read.index("--jars") + 1] == AIRFLOW["AIRFLOW__SLUICE__JARS"]
    assert f"spark.sql.catalog.lake.warehouse={mounts('airflow')['lake']}" in read
    page = (ROOT / "docs/compose.md").read_text()
    published = [port for service in SERVICES.values() for port in service.get("ports", [])]
    for port in published:
        assert f"`{'grpc' if '9123' in port else 'http'}://{port.rpartition(':')[0]}`" in page


def test_the_commands_of_the_page_work_on_that_server(tmp_path: Path) -> None:
    """Without containers: the same server on another port, the same commands, default address."""
    page = (ROOT / "docs/compose.md").read_text()
    [content] = re.findall(r"printf '(.*)' > orders.csv", page)
    rows = tmp_path / "orders.csv"
    rows.write_text(content.replace("\\n", "\n"))
    words = shlex.split(SERVICES["fluss"]["command"])
    changed = {
        "/srv/sluice/data": str(tmp_path / "data"),
        "grpc://0.0.0.0:9123": "grpc://0.0.0.0:0",
    }
    assert set(changed) <= set(words)
    assert ClientConfig().bootstrap == "grpc://127.0.0.1:9123"
    with subprocess.Popen(
        [SLUICE, *(changed.get(word, word) for word in words[1:])],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as server:
        assert server.stdout is not None
        port = re.findall(r"grpc://0\.0\.0\.0:(\d+)", server.stdout.readline())[0]
        there = {"SLUICE_CLIENT_BOOTSTRAP": f"grpc://127.0.0.1:{port}"}
        try:
            ours = [words[2:] for words in in_containers() if words[:2] == ["fluss", "sluice"]]
            said = [
                CliRunner().invoke(
                    cli, [str(rows) if w == "/tmp/orders.csv" else w for w in words], env=there
                )
                for words in ours
            ]
        finally:
            server.terminate()
    assert [result.exit_code for result in said] == [0, 0, 0], [r.output for r in said]
    created, appended, status = (result.output for result in said)
    assert "will be tiered as Iceberg" in created
    assert "shop.orders: 2 rows appended" in appended
    assert "shop.orders" in status
