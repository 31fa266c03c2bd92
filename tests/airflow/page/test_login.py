"""A cluster that demands a login: the password reaches every task and the driver, and no file."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sluice.client import connect
from sluice.config import ClientConfig, ServerConfig
from sluice.errors import AuthenticateError
from sluice.server.cluster import EmbeddedCluster
from tests.airflow.place import AirflowProcess, Place, only, results_of
from tests.support.harness.contents import contents
from tests.support.network.sasl_listener import SaslListener

pytestmark = pytest.mark.airflow
PASSWORD = "gehéim-4711-pässwort"


def holding(text: str, *folders: Path) -> list[Path]:
    """Files that hold a text, raw or as JSON escapes it."""
    wanted = [text.encode(), json.dumps(text).strip('"').encode()]
    return [path for path, held in contents(*folders) if any(each in held for each in wanted)]


@pytest.fixture
def guarded(airflow: AirflowProcess, tmp_path: Path) -> Iterator[Place]:
    """A place whose cluster is reached through a listener that demands a login."""
    config = ServerConfig(data_dir=str(tmp_path / "data"), listen="fluss://127.0.0.1:0")
    with EmbeddedCluster(config) as cluster, connect(cluster.address) as insider:
        insider.admin.create_database("shop")
        port = int(cluster.address.rpartition(":")[2])
        [tablet] = insider._connection._servers().tablets.values()
        with SaslListener([port, tablet.port], "ann", PASSWORD) as listener:
            address = f"fluss://127.0.0.1:{listener.ports[port]}"
            with pytest.raises(AuthenticateError), connect(address) as stranger:
                stranger.admin.list_databases()
            login = ClientConfig(address, username="ann", password=PASSWORD)
            with connect(login) as client:
                yield Place(airflow, client, address, tmp_path / "work")


def connection(place: Place, **fields: Any) -> dict[str, str]:
    host, port = place.address.removeprefix("fluss://").split(":")
    content = {
        "conn_type": "fluss",
        "host": host,
        "port": int(port),
        "login": "ann",
        "password": PASSWORD,
        "extra": {
            "transport": "fluss",
            "work_uri": place.work.as_uri(),
            "datalake": {
                "iceberg.type": "hadoop",
                "iceberg.warehouse": str(place.lake),
                "iceberg.s3.secret-access-key": f"{PASSWORD}-of-the-lake",
            },
        },
        **fields,
    }
    return {"AIRFLOW_CONN_FLUSS_DEFAULT": json.dumps(content)}


def test_a_run_logs_in_everywhere_and_leaves_no_password(guarded: Place) -> None:
    path = guarded.table("orders")
    guarded.wait(path)
    run = guarded.airflow.ask(
        "run",
        conf={"spark_conf": {"spark.sluice.client.password": "of somebody else"}},
        environment=connection(guarded),
    )
    assert run["state"] == "success", guarded.airflow.log.read_text()[-6000:]
    assert only(results_of(run))["outcome"] == "committed"
    assert guarded.status(path).last_error is None
    [command] = guarded.work.glob("*/*/command-*")
    assert f"spark.sluice.datalake.iceberg.warehouse={guarded.lake}" in command.read_text()
    assert "somebody else" not in command.read_text()
    home = Path(guarded.airflow.environment["AIRFLOW_HOME"])
    assert holding(PASSWORD, guarded.work, home) == []
    assert PASSWORD not in json.dumps(run, ensure_ascii=False)


def test_a_wrong_password_is_the_reason_of_the_run(guarded: Place) -> None:
    path = guarded.table("orders")
    guarded.wait(path)
    wrong = connection(guarded, password=f"{PASSWORD}?")
    run = guarded.airflow.ask("run", environment=wrong)
    assert run["state"] == "failed"
    assert "AuthenticateError" in guarded.airflow.log.read_text(errors="replace")
    home = Path(guarded.airflow.environment["AIRFLOW_HOME"])
    assert holding(PASSWORD, home) == []


def test_the_test_button_logs_in(guarded: Place) -> None:
    answer = guarded.airflow.ask("connection", environment=connection(guarded))
    assert answer["ok"], answer
    listed = f"cluster {guarded.address}: answers; 2 databases. Checked on "
    assert answer["said"].startswith(listed)
    wrong = connection(guarded, password="guessed")
    answer = guarded.airflow.ask("connection", environment=wrong)
    assert (answer["ok"], "AuthenticateError" in answer["said"]) == (False, True)
    assert "guessed" not in answer["said"]
    assert os.environ.get("SLUICE_SETTINGS") is None
