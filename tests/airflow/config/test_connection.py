"""Fields of a connection of type fluss."""

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from sluice.artifacts.iceberg import NEWEST
from sluice.config import load_config
from sluice.errors import ConfigurationError
from sluice_airflow.config.connection import FlussConnection
from sluice_airflow.config.preflight import OF_SECTION
from sluice_airflow.provider_info import get_provider_info
from tests.airflow.place import Place


def test_defaults() -> None:
    connection = FlussConnection.parse("c", "fluss", None, {})
    assert connection.bootstrap == "grpc://fluss:9123"
    assert connection.deployment_id == ""
    again = FlussConnection.parse("c", "fluss", None, {"deployment_id": "default"})
    assert again.deployment_id == "", "Airflow's form once filled it in"
    with pytest.raises(ConfigurationError, match="no work_uri"):
        connection.require_work_uri()


@pytest.mark.parametrize(
    "datalake",
    [
        '{"format": "iceberg", "iceberg.type": "hadoop", "iceberg.warehouse": "/lake"}',
        {"format": "iceberg", "iceberg": {"type": "hadoop", "warehouse": "/lake"}},
        {
            "datalake.format": "iceberg",
            "datalake.iceberg": {"type": "hadoop", "warehouse": "/lake"},
        },
    ],
)
def test_lake_options_become_configuration_of_the_driver(datalake: object) -> None:
    extra = {"datalake": datalake, "deployment_id": "west", "transport": "fluss"}
    connection = FlussConnection.parse("c", "h", 1, extra)
    conf = connection.spark_conf()
    assert conf == {
        "spark.sluice.datalake.format": "iceberg",
        "spark.sluice.datalake.iceberg.type": "hadoop",
        "spark.sluice.datalake.iceberg.warehouse": "/lake",
    }
    config = load_config(overrides={k.removeprefix("spark.sluice."): v for k, v in conf.items()})
    assert config.datalake.iceberg == {"type": "hadoop", "warehouse": "/lake"}
    assert connection.bootstrap == "fluss://h:1"


def test_the_form_offers_only_what_is_read() -> None:
    [form] = get_provider_info()["connection-types"]
    hidden = set(form["ui-field-behaviour"]["hidden-fields"])
    assert hidden == {"schema", "extra"}
    assert set(form["ui-field-behaviour"]["relabeling"]).isdisjoint(hidden)
    plain = FlussConnection.parse("c", "h", 1, {})
    given = {
        "transport": "fluss",
        "deployment_id": "a",
        "work_uri": "/w",
        "datalake": '{"format": "iceberg"}',
        "fs": '{"s3.endpoint": "http://s3"}',
        "tls": True,
        "tls_ca": "/etc/ca.pem",
    }
    assert set(form["conn-fields"]) == set(given)
    for field, value in given.items():
        assert FlussConnection.parse("c", "h", 1, {field: value}) != plain, field


@pytest.mark.parametrize(
    ("host", "extra", "why"),
    [
        (None, {}, "'c': no host"),
        ("h", {"transport": "http"}, "transport 'http'; use grpc or fluss"),
        ("h", {"work_uri": "s3://AK:SK@b/w"}, r"work_uri s3://\*\*\*@b/w holds a password"),
        ("h", {"datalake": "{"}, "datalake is not valid JSON"),
        ("h", {"datalke": "{}"}, "extra: unknown key 'datalke'; did you mean 'datalake'?"),
        ("h", {"spark": 1}, "unknown key 'spark'; the known keys are transport, work_uri"),
        ("h", {"datalake": {"icberg.type": "x"}}, "'icberg'; did you mean 'iceberg'?"),
        ("h", {"datalake": {"paimon": "x"}}, "'paimon'; the known keys are format, iceberg"),
        ("h", {"tls": "yes"}, "tls 'yes'; use true or false"),
        ("h", {"tls_ca": ["a"]}, "tls_ca must be a string, not list"),
        ("h", {"datalake": "[1]"}, "not list"),
        (
            "h",
            {"datalake": {"iceberg": {"type": None}}},
            "iceberg.type must be a string or a number, not NoneType",
        ),
    ],
)
def test_wrong_fields(host: str | None, extra: dict, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        FlussConnection.parse("c", host, 1, extra)


@pytest.mark.parametrize(
    ("extra", "login", "password", "why"),
    [
        ({}, "ann", "geheim", "a login needs transport fluss, but the transport is grpc"),
        ({"transport": "grpc"}, "ann", "", "the password alone is the bearer token"),
        ({"transport": "fluss", "tls": True}, "ann", "geheim", "has no TLS"),
        ({"transport": "fluss", "tls_ca": "/ca"}, "ann", "geheim", "has no TLS"),
        ({"transport": "fluss"}, "", "geheim", "a password without a login"),
    ],
)
def test_a_login_that_cannot_be_used(
    extra: dict, login: str | None, password: str, why: str
) -> None:
    with pytest.raises(ConfigurationError, match=why) as caught:
        FlussConnection.parse("c", "h", 1, extra, login, password)
    assert "geheim" not in str(caught.value)


def test_secrets_go_another_way_to_the_driver_than_the_rest() -> None:
    extra: dict[str, Any] = {
        "transport": "fluss",
        "datalake": {
            "iceberg.type": "jdbc",
            "iceberg.uri": "jdbc:postgresql://db/lake?user=u&password=geheim-1",
            "iceberg.s3.endpoint": "http://s3",
            "iceberg.s3.access-key-id": "geheim-2",
            "iceberg.s3.secret-access-key": "geheim-3",
            "iceberg.credential": "geheim-4",
            "iceberg.header.X-Auth": "geheim-8",
            "iceberg.header.X-Iceberg-Access-Delegation": "vended-credentials",
            "iceberg.hadoop.fs.azure.account.key.x": "geheim-5",
        },
        "fs": {"client.fs.s3.endpoint": "http://remote", "s3.secret-key": "geheim-6"},
    }
    connection = FlussConnection.parse("c", "h", 1, extra, "ann", "geheim-7")
    assert connection.spark_conf() == {
        "spark.sluice.datalake.iceberg.type": "jdbc",
        "spark.sluice.datalake.iceberg.s3.endpoint": "http://s3",
        "spark.sluice.datalake.iceberg.header.X-Iceberg-Access-Delegation": "vended-credentials",
        "spark.sluice.client.fs.s3.endpoint": "http://remote",
    }
    assert "geheim" not in repr(connection)
    plain = {k.removeprefix("spark.sluice."): v for k, v in connection.spark_conf().items()}
    config = load_config(environment=connection.secret_environment(), overrides=plain)
    assert (config.client.username, config.client.password) == ("ann", "geheim-7")
    assert config.client.fs == {"s3.endpoint": "http://remote", "s3.secret-key": "geheim-6"}
    assert config.datalake.iceberg == {
        k.removeprefix("iceberg."): v for k, v in extra["datalake"].items()
    }
    assert FlussConnection.parse("c", "h", 1, {}).secret_environment() == {}


PEM = "-----BEGIN CERTIFICATE-----\nYWJj\n-----END CERTIFICATE-----\n"


@pytest.mark.parametrize(
    ("extra", "plain", "hidden"),
    [
        ({}, {}, {"client.token": "geheim"}),
        ({"tls": "true"}, {"spark.sluice.client.tls": "true"}, {"client.token": "geheim"}),
        (
            {"tls_ca": "/etc/ca.pem", "tls": False},
            {"spark.sluice.client.tls_ca": "/etc/ca.pem"},
            {"client.token": "geheim"},
        ),
        ({"tls_ca": PEM}, {}, {"client.token": "geheim", "client.tls_ca": PEM}),
    ],
)
def test_a_token_and_an_authority_reach_the_driver(extra: dict, plain: dict, hidden: dict) -> None:
    connection = FlussConnection.parse("c", "h", 1, extra, "", "geheim")
    assert connection.spark_conf() == plain
    assert connection.secret_settings() == hidden
    assert connection.secrets() == ["geheim"]
    assert "geheim" not in repr(connection)
    given = {k.removeprefix("spark.sluice."): v for k, v in plain.items()}
    config = load_config(environment=connection.secret_environment(), overrides=given).client
    here = connection.client_config()
    assert (config.token, config.tls, config.tls_ca) == (here.token, here.tls, here.tls_ca)
    assert (here.token, here.has_tls) == ("geheim", bool(extra))
    assert (here.username, here.password) == ("", "")


@pytest.mark.airflow
def test_the_test_button(place: Place) -> None:
    answer = place.airflow.ask("connection", environment=place.connection())
    host = socket.gethostname()
    script = Path(place.airflow.environment["AIRFLOW__SLUICE__SPARK_BINARY"])
    packages = NEWEST.coordinates  # for a spark-submit of one's own
    assert answer == {
        "ok": True,
        "said": f"cluster {place.address}: answers; 2 databases. Checked on {host}, {OF_SECTION}:"
        f" the driver's script, spark-submit, work folder file://{place.work}, lake configured,"
        f" write to the lake, {place.lake}. Not checked: Java: {script} is not Spark's own"
        " program and may have its own Java; packages: the Spark version of"
        f" {script} is unknown, so Iceberg's newest runtime is used, {packages}; or name"
        " Iceberg's runtime for your Spark in option packages of"
        " section sluice in airflow.cfg or argument packages of the DAG file",
    }
    assert not place.work.exists(), "it leaves nothing behind"
    wrong = place.connection(transport="http")
    answer = place.airflow.ask("connection", environment=wrong)
    assert not answer["ok"]
    assert "transport 'http'; use grpc or fluss" in answer["said"]
    answer = place.airflow.ask("connection", environment=place.connection(datalke="x"))
    said = "connection 'fluss_default': extra: unknown key 'datalke'; did you mean 'datalake'?"
    assert (answer["ok"], answer["said"]) == (False, f"ConfigurationError: {said}")
    wrong = {**place.connection(), "AIRFLOW__SLUICE__SPARK_BINRY": "x"}
    answer = place.airflow.ask("connection", environment=wrong)
    assert not answer["ok"]
    assert "no option 'spark_binry'; did you mean 'spark_binary'?" in answer["said"]


@pytest.mark.airflow
def test_the_test_button_without_a_server(place: Place) -> None:
    content = json.loads(place.connection()["AIRFLOW_CONN_FLUSS_DEFAULT"])
    there = {"AIRFLOW_CONN_FLUSS_DEFAULT": json.dumps({**content, "port": 1})}
    answer = place.airflow.ask("connection", environment=there)
    assert not answer["ok"]
    assert answer["said"].startswith("cluster grpc://127.0.0.1:1: NetworkError: ")


@pytest.mark.airflow
def test_the_test_button_says_the_one_thing_that_is_missing(place: Place) -> None:
    """Where tasks run beside Airflow. On another machine its absence says nothing."""
    missing = {**place.connection(), "AIRFLOW__SLUICE__SPARK_BINARY": "spark3-submit"}
    for executor in ("LocalExecutor", "airflow.executors.local_executor.LocalExecutor"):
        environment = {**missing, "AIRFLOW__CORE__EXECUTOR": executor}
        answer = place.airflow.ask("connection", environment=environment)
        assert not answer["ok"]
        assert answer["said"].startswith(
            "spark-submit: the program 'spark3-submit' does not exist: `pip"
        )
        here = f"(on {socket.gethostname()}, where this test runs, {OF_SECTION})"
        assert answer["said"].endswith(here)
    environment = {**missing, "AIRFLOW__CORE__EXECUTOR": "CeleryExecutor"}
    answer = place.airflow.ask("connection", environment=environment)
    assert answer["ok"]
    assert (
        "Not checked: the driver's script, spark-submit, Java: tasks run on other machines"
        " (CeleryExecutor); acquire_lease checks there"
    ) in answer["said"]


@pytest.mark.airflow
@pytest.mark.parametrize(
    ("spark", "said"),
    [
        ({"extra": {"spark-binary": "rm"}}, "connection 'spark_default': The spark-binary extra"),
        (
            {"host": "k8s://https://10.0.0.1", "port": 6443},
            "run `pip install apache-airflow-providers-cncf-kubernetes`",
        ),
        ({"extra": {"deploy-mode": "cluster"}, "host": "yarn"}, ""),
    ],
)
def test_what_the_spark_connection_says(place: Place, spark: dict[str, Any], said: str) -> None:
    content = {"conn_type": "spark", "host": "local[1]", **spark}
    environment = {
        **place.connection(),
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(content),
        "AIRFLOW__SLUICE__SPARK_BINARY": "",
    }
    answer = place.airflow.ask("connection", environment=environment)
    assert answer["ok"] is (not said), answer
    assert said in answer["said"]
    if not said:
        assert ", Java, " in answer["said"], "pyspark's own spark-submit, beside Python"
        assert (
            f"{place.lake}: it is a local path of the machines that Spark runs on" in answer["said"]
        )
