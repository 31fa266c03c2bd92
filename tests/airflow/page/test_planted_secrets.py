"""Secrets are planted wherever a run has them; then everything written is searched for them."""

from __future__ import annotations

import json
import socket
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from click.testing import CliRunner

from sluice.cli.main import cli
from sluice.client import connect
from sluice.config import SETTINGS_VARIABLE, ServerConfig
from sluice.model.reason import WITHHELD
from sluice.page.app import API
from sluice.server.cluster import EmbeddedCluster
from tests.airflow.driver import SIGNATURE
from tests.airflow.place import AirflowProcess, Place, failures_of, only
from tests.airflow.runs.test_spark_run import CONF, SPARK
from tests.support.clusters.s3_server import REGION, S3Server
from tests.support.harness.contents import contents
from tests.support.harness.findings import finding
from tests.support.harness.leaks import leaks as leaks_of
from tests.support.network.repeating_server import RepeatingServer
from tests.support.page.local_page import local_page
from tests.support.programs.processes import SLUICE, environment

pytestmark = [pytest.mark.airflow, pytest.mark.slow]

PLANTED = {
    "client.fs.s3.secret-key": "Planted/Remote+4711",
    "datalake.iceberg.s3.secret-access-key": "Planted/Lake+4712",
    "datalake.iceberg.s3.access-key-id": "PLANTEDKEYID4713",
    "datalake.iceberg.jdbc.password": "Planted-4714-jdbc",
    "datalake.iceberg.s3.session-token": "planted-4717/session=",
    "datalake.iceberg.token": "planted-4718-catalog",
    "datalake.iceberg.credential": "lake:Planted/4719+credential",
    "datalake.iceberg.header.X-Auth": 'planted "4720" header',
}
IN_ADDRESS = "Planted-4715-address"
PASSWORD = "Planted&4721-password"
"""Of the connection: the bearer token."""
IN_SETTINGS = {PASSWORD, *PLANTED.values()} - {PLANTED["datalake.iceberg.s3.access-key-id"]}
ALL = (*PLANTED.values(), "Planted/4719+credential", IN_ADDRESS, PASSWORD)


@pytest.fixture
def place(airflow: AirflowProcess, tmp_path: Path) -> Iterator[Place]:
    config = ServerConfig(
        data_dir=str(tmp_path / "data"),
        listen="grpc://127.0.0.1:0",
        tiering_backoff_ms=3_600_000,  # what fails stays Failed, however late it is looked at
    )
    with EmbeddedCluster(config) as cluster, connect(cluster.address) as client:
        client.admin.create_database("shop")
        yield Place(airflow, client, cluster.address, tmp_path / "work")


@pytest.fixture
def storage() -> Iterator[S3Server]:
    with S3Server() as server:
        server.bucket("bucket")
        yield server


@pytest.fixture
def catalog() -> Iterator[int]:
    """The port of a database that says nothing to anybody."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def connection(
    place: Place, storage: S3Server, catalog: int, kind: str = "jdbc", uri: str = ""
) -> dict[str, str]:
    """A lake behind a catalog that nobody can read, with secrets in options and address."""
    address = f"jdbc:postgresql://bob:{IN_ADDRESS}@127.0.0.1:{catalog}/lake"
    options = {
        "iceberg.type": kind,
        "iceberg.uri": uri or address,
        "iceberg.old.uri": address,
        "iceberg.warehouse": "s3://bucket/lake",
        "iceberg.s3.endpoint": storage.endpoint,
        "iceberg.client.region": REGION,
    }
    fs = {}
    for name, value in PLANTED.items():
        section, _, key = name.partition(".")
        if section == "datalake":
            options[key] = value
        else:
            fs[key.removeprefix("fs.")] = value
    [(name, found)] = place.connection(datalake=options, fs=fs).items()
    return {name: json.dumps(json.loads(found) | {"password": PASSWORD})}


def written(place: Place, run: Any) -> dict[str, str]:
    """Everything that the run has left: files, answers, what the coordinator stores and says."""
    home = Path(place.airflow.environment["AIRFLOW_HOME"])
    data = place.work.parent / "data"
    found = {
        str(path): held.decode("utf-8", "replace")
        for path, held in contents(home, place.work, data)
    }
    with closing(sqlite3.connect(data / "metadata.sqlite")) as database:
        found["metadata"] = "\n".join(database.iterdump())
    found["run"] = json.dumps(run, ensure_ascii=False)
    for form in ("table", "json"):
        arguments = ["status", "--format", form, "--bootstrap", place.address]
        found[f"status {form}"] = CliRunner().invoke(cli, arguments).output
    return found | observed(place)


def observed(place: Place) -> dict[str, str]:
    """What the page of `sluice ui` and `sluice exporter` answer. They know no secret of the run."""
    found = {}
    tables = [str(status.path).replace(".", "/") for status in place.client.statuses.list()]
    parts = ["", "/rounds", "/splits", "/snapshots", "/leases"]
    with local_page(place.address) as page, closing(page.logged_in()) as browser:
        page.place.reader.read_soon()
        names = ["overview", "tables", "leases", "maintenance"]
        for name in [*names, *(f"tables/{table}{part}" for table in tables for part in parts)]:
            answer = browser.get(f"{API}/{name}")
            assert answer.status_code < 500, answer.text
            found[f"page: {name}"] = answer.text
    words = [SLUICE, "exporter", "--bootstrap", place.address, "--listen", "127.0.0.1:0"]
    with subprocess.Popen(words, env=environment(), stdout=subprocess.PIPE, text=True) as exporter:
        try:
            assert exporter.stdout is not None
            url = exporter.stdout.readline().split()[-1]
            with urlopen(url, timeout=60) as answer:
                found["metrics"] = answer.read().decode()
        finally:
            exporter.kill()
    assert all(table.partition("/")[2] in found["metrics"] for table in tables)
    return found


def leaks(texts: dict[str, str]) -> list[tuple[str, str]]:
    return leaks_of(texts, (*ALL, SIGNATURE))


def search(place: Place, run: Any) -> None:
    texts = written(place, run)
    with finding():
        assert leaks(texts) == []
    assert any("airflow" in name for name in texts), "the logs are among them"
    place.work.mkdir(exist_ok=True)
    proof = place.work / "proof"
    proof.write_text(f"as it would be seen: {IN_ADDRESS}")
    assert leaks(written(place, run)) == [(str(proof), IN_ADDRESS)]


def test_a_run_that_is_not_begun(place: Place, storage: S3Server, catalog: int) -> None:
    """The lake refuses the keys: its own words, and the address of the catalog, are looked at.

    Only a catalog of type hadoop has all of its tables below the warehouse.
    """
    path = place.table("ok")
    place.wait(path)
    storage.allowed = {}
    settings = connection(place, storage, catalog, kind="hadoop")
    run = place.run({}, **settings)
    assert (run["state"], run["tasks"]["acquire_lease"]) == ("failed", "failed")
    assert "write to the lake, s3://bucket/lake: " in place.airflow.log.read_text(errors="replace")
    assert place.status(path).status == "Pending"
    answer = place.airflow.ask("connection", environment=settings)
    assert not answer["ok"]
    search(place, [run, answer])


def test_a_driver_that_blurts_everything_out(place: Place, storage: S3Server, catalog: int) -> None:
    """It prints secrets with and without a name, a signed address, and dies without a reason."""
    path = place.table("leaky")
    place.wait(path)
    settings = connection(place, storage, catalog)
    run = place.run({}, **settings, AIRFLOW__SLUICE__TIER_RETRIES="0")
    assert run["state"] == "failed"
    [failure] = failures_of(run).values()
    assert failure["kind"] == "DriverLost"
    status = place.status(path)
    assert status.last_error is not None
    assert "cannot log in as ***, nor read https://bucket.s3/lake/f?***" in status.last_error
    assert (status.status, status.failures) == ("Failed", 1)
    search(place, run)


def test_a_driver_that_masks_nothing(place: Place, storage: S3Server, catalog: int) -> None:
    """Its reason is withheld on every way out of the tier task and of settle."""
    path = place.table("unmasked")
    place.wait(path)
    run = place.run({}, **connection(place, storage, catalog))
    assert only(failures_of(run))["reason"] == WITHHELD
    assert place.status(path).last_error == WITHHELD
    [file] = place.work.rglob("failure-*.json")
    assert SIGNATURE in file.read_text()
    file.unlink()
    search(place, run)


@pytest.mark.spark
def test_a_catalog_that_quotes_its_address(place: Place, storage: S3Server, catalog: int) -> None:
    """The real driver: Java's own words name the address, password and all."""
    path = place.table("events")
    place.wait(path)
    run = place.run({"spark_conf": CONF}, **{**connection(place, storage, catalog), **SPARK})
    assert run["state"] == "failed", run["tasks"]
    error = place.status(path).last_error
    assert error is not None
    assert "***" in error
    search(place, run)


@pytest.mark.spark
@pytest.mark.long
def test_a_catalog_that_repeats_what_it_got(place: Place, storage: S3Server, catalog: int) -> None:
    """In each encoding, with control characters.

    No command line of the machine has a secret, and no environment but that of spark-submit.
    """
    path = place.table("events")
    place.wait(path)
    with RepeatingServer(*ALL) as server:
        settings = connection(place, storage, catalog, "rest", server.address)
        run = place.run({"spark_conf": CONF}, **{**settings, **SPARK})
        commands = {one: one for one in server.commands}
        variables = {name: "\n".join(values) for name, values in server.variables.items()}
    assert run["state"] == "failed", run["tasks"]
    assert server.requests
    error = place.status(path).last_error
    assert error is not None
    assert "***" in error
    assert not any(char in error for char in "\x1b\x07\r\u202e")
    assert leaks(commands) == []
    given = {"AIRFLOW_CONN_FLUSS_DEFAULT", SETTINGS_VARIABLE}  # Airflow's own is inherited
    assert {name for name, _ in leaks(variables)} == given
    assert {one for name, one in leaks(variables) if name == SETTINGS_VARIABLE} >= IN_SETTINGS
    search(place, run)
