"""One loader: file < environment < argument, and a wrong value names its key."""

from pathlib import Path

import pytest

from sluice.config import Config, DatalakeConfig, load_config
from sluice.errors import ConfigurationError


def test_defaults() -> None:
    assert load_config() == Config()


def test_argument_wins_over_environment_wins_over_file(tmp_path: Path) -> None:
    file = tmp_path / "sluice.toml"
    file.write_text(
        "[client]\nrequest_timeout_ms = 1\nfetch_max_bytes = 1\nwriter_batch_bytes = 1\n"
    )
    config = load_config(
        file,
        {"SLUICE_CLIENT_FETCH_MAX_BYTES": "2", "SLUICE_CLIENT_WRITER_BATCH_BYTES": "2"},
        {"client.writer_batch_bytes": "3"},
    ).client
    assert (config.request_timeout_ms, config.fetch_max_bytes, config.writer_batch_bytes) == (
        1,
        2,
        3,
    )


def test_catalog_properties_keep_icebergs_own_names(tmp_path: Path) -> None:
    file = tmp_path / "sluice.toml"
    file.write_text('[datalake]\niceberg = { type = "hadoop", "io-impl" = "a" }\n')
    environment = {
        "SLUICE_DATALAKE_ICEBERG_WAREHOUSE": "/lake",
        "SLUICE_DATALAKE_ICEBERG_IO_IMPL": "b",
    }
    config = load_config(file, environment, {"datalake.iceberg.s3.endpoint": "http://s3"})
    assert config.datalake.iceberg == {
        "type": "hadoop",
        "io-impl": "b",
        "warehouse": "/lake",
        "s3.endpoint": "http://s3",
    }


def test_options_of_the_remote_storage_keep_their_own_names() -> None:
    environment = {
        "SLUICE_CLIENT_FS_S3__ENDPOINT": "http://s3",
        "SLUICE_CLIENT_FS_S3__ACCESS_KEY": "a",
        "SLUICE_DATALAKE_ICEBERG_S3__SECRET_ACCESS_KEY": "b",
    }
    config = load_config(environment=environment, overrides={"client.fs.s3.region": "west"})
    assert config.client.fs == {
        "s3.endpoint": "http://s3",
        "s3.access-key": "a",
        "s3.region": "west",
    }
    assert config.datalake.iceberg == {"s3.secret-access-key": "b"}


FILES = {
    "[client]\nbootstrp = 'x'\n": (
        "sluice.toml:2: client.bootstrp: no such setting; did you mean 'client.bootstrap'?"
    ),
    "[server]\n# where\nbootstrap = 'x'\n": (
        "sluice.toml:3: server.bootstrap: no such setting; did you mean 'client.bootstrap'?"
    ),
    "[clinet]\nbootstrap = 'x'\n": (
        "sluice.toml:2: clinet.bootstrap: no such setting; did you mean 'client.bootstrap'?"
    ),
    "[nowhere]\na = 1\n": (
        "sluice.toml:2: nowhere.a: no section 'nowhere';"
        " the sections are client, datalake, server, tiering"
    ),
    "[client]\nspeed = 1\n": (
        "sluice.toml:2: client.speed: no such setting;"
        " docs/configuration.md lists those of section 'client'"
    ),
    "bootstrap = 'x'\n": (
        "sluice.toml:1: 'bootstrap' is outside of a section; write it below [client]"
    ),
    "[client]\n\nrequest_timeout_ms = 'soon'\n": (
        "sluice.toml:3: client.request_timeout_ms: expected a whole number of milliseconds,"
        " 0 or more, found 'soon'"
    ),
    "[client]\nfetch_max_bytes = -1\n": (
        "sluice.toml:2: client.fetch_max_bytes: expected a whole number of bytes, 0 or more,"
        " found -1"
    ),
    "[client]\nwriter_max_inflight = 1.5\n": (
        "sluice.toml:2: client.writer_max_inflight: expected a whole number, 0 or more, found 1.5"
    ),
    "[client]\nbootstrap = ['a', 'b']\n": (
        "sluice.toml:2: client.bootstrap: expected a text, found a list"
    ),
    "[client.bootstrap]\nhost = 'a'\n": (
        "sluice.toml:1: client.bootstrap.host: client.bootstrap is a single value,"
        " not a group of options"
    ),
    "[datalake]\niceberg = 'x'\n": (
        "sluice.toml:2: datalake.iceberg: a group of options has no value of its own;"
        " set datalake.iceberg.NAME"
    ),
    "[client": "sluice.toml: this is not TOML: ",
}


@pytest.mark.parametrize("text", FILES)
def test_a_mistake_in_the_file_has_its_line_and_a_repair(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sluice.toml").write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        load_config("sluice.toml")
    said = str(caught.value)
    assert said == FILES[text] or (FILES[text].endswith(": ") and said.startswith(FILES[text]))


VARIABLES = {
    "SLUICE_CLIENT_REQEST_TIMEOUT_MS": (
        "SLUICE_CLIENT_REQEST_TIMEOUT_MS: no such setting;"
        " did you mean 'SLUICE_CLIENT_REQUEST_TIMEOUT_MS'?"
    ),
    "SLUICE_SERVER_BOOTSTRAP": (
        "SLUICE_SERVER_BOOTSTRAP: no such setting; did you mean 'SLUICE_CLIENT_BOOTSTRAP'?"
    ),
    "SLUICE_CLENT_BOOTSTRAP": (
        "SLUICE_CLENT_BOOTSTRAP: no such setting; did you mean 'SLUICE_CLIENT_BOOTSTRAP'?"
    ),
    "SLUICE_SERVR_X": (
        "SLUICE_SERVR_X: no such setting; did you mean a setting of section 'server'?"
        " docs/configuration.md lists them"
    ),
    "SLUICE_CLIENT_FS": (
        "SLUICE_CLIENT_FS: a group of options has no value of its own;"
        " set SLUICE_CLIENT_FS_NAME (client.fs.NAME)"
    ),
    "SLUICE_DATALAKE_ICEBERG_": (
        "SLUICE_DATALAKE_ICEBERG_: a group of options has no value of its own;"
        " set SLUICE_DATALAKE_ICEBERG_NAME (datalake.iceberg.NAME)"
    ),
    "SLUICE_DATALAKE_ICEBREG": (
        "SLUICE_DATALAKE_ICEBREG: no such setting; did you mean 'SLUICE_DATALAKE_ICEBERG_NAME'?"
    ),
    "SLUICE_CLIENT_TLS": "SLUICE_CLIENT_TLS: expected true or false, found 'soon'",
    "SLUICE_TIERING_PARALLELISM": (
        "SLUICE_TIERING_PARALLELISM: expected a whole number, 0 or more, found 'soon'"
    ),
}


@pytest.mark.parametrize("name", VARIABLES)
def test_a_mistake_in_a_variable_names_it_with_a_repair(name: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_config(environment={name: "soon"})
    assert str(caught.value) == VARIABLES[name]


def test_a_mistake_in_an_override_is_named_as_its_user_wrote_it() -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_config(overrides={"tiering.paralelism": "1"}, overrides_prefix="spark.sluice.")
    assert str(caught.value) == (
        "spark.sluice.tiering.paralelism: no such setting;"
        " did you mean 'spark.sluice.tiering.parallelism'?"
    )


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    missing, other = tmp_path / "missing.toml", tmp_path / "latin.toml"
    with pytest.raises(ConfigurationError, match=r"missing.toml: No such file"):
        load_config(missing)
    other.write_bytes("[client]\nusername = 'Jürgen'\n".encode("latin-1"))
    with pytest.raises(ConfigurationError, match=r"latin.toml: the file is not UTF-8; save it"):
        load_config(other)


def test_foreign_variables_are_left_alone() -> None:
    assert load_config(environment={"SLUICE_FAILPOINTS": "a=kill", "PATH": "/bin"}) == Config()


SERVICES = {
    "SLUICE_SERVICE_HOST": "10.0.0.1",
    "SLUICE_SERVICE_PORT": "9123",
    "SLUICE_SERVICE_PORT_METRICS": "9249",
    "SLUICE_PORT": "tcp://10.0.0.1:9123",
    "SLUICE_PORT_9123_TCP": "tcp://10.0.0.1:9123",
    "SLUICE_PORT_9123_TCP_ADDR": "10.0.0.1",
    "SLUICE_PORT_9123_TCP_PORT": "9123",
    "SLUICE_PORT_9123_TCP_PROTO": "tcp",
    "SLUICE_SERVER_SERVICE_HOST": "10.0.0.1",
    "SLUICE_SERVER_PORT": "tcp://10.0.0.1:9123",
    "SLUICE_SERVER_PORT_9123_TCP": "tcp://10.0.0.1:9123",
    "SLUICE_CLIENT_FS_SERVICE_PORT": "80",
    "SLUICE_CLIENT_FS_PORT": "tcp://10.0.0.1:80",
}
"""What Kubernetes sets in pods for Services named sluice, sluice-server and sluice-client-fs."""


@pytest.mark.parametrize("name", SERVICES)
def test_variables_of_kubernetes_for_a_service_are_left_alone(name: str) -> None:
    assert load_config(environment={name: SERVICES[name]}) == Config()


@pytest.mark.parametrize(
    "name", ["SLUICE_SERVICE_METRICS", "SLUICE_REQUEST_TIMEOUT_MS", "SLUICE_SERVR"]
)
def test_outside_of_the_sections_only_a_near_miss_is_refused(name: str) -> None:
    assert load_config(environment={name: "1"}) == Config()


def test_a_port_that_is_no_setting_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="SLUICE_SERVER_PORT: no such setting"):
        load_config(environment={"SLUICE_SERVER_PORT": "9123"})


def test_settings_in_one_variable_count_over_others_and_below_arguments() -> None:
    environment = {
        "SLUICE_CLIENT_PASSWORD": "a",
        "SLUICE_SETTINGS": '{"client.password": "b", "datalake.iceberg.s3.secret-access-key": "c"}',
    }
    config = load_config(environment=environment)
    assert config.client.password == "b"
    assert config.datalake.iceberg == {"s3.secret-access-key": "c"}
    assert load_config(None, environment, {"client.password": "d"}).client.password == "d"


@pytest.mark.parametrize("text", ['["geheim"]', '{"client.password": "geheim"', '{"geheim": "x"}'])
def test_unusable_settings_are_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="SLUICE_SETTINGS|no section"):
        load_config(environment={"SLUICE_SETTINGS": text})


def test_settings_in_a_file_count_over_variables_and_below_the_one_variable(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    file.write_text('{"client.password": "from the file", "client.username": "ann"}')
    environment = {"SLUICE_SETTINGS_FILE": str(file), "SLUICE_CLIENT_USERNAME": "bob"}
    client = load_config(environment=environment).client
    assert (client.username, client.password) == ("ann", "from the file")
    environment["SLUICE_SETTINGS"] = '{"client.password": "from the variable"}'
    client = load_config(environment=environment).client
    assert (client.username, client.password) == ("ann", "from the variable")


@pytest.mark.parametrize("text", ['["geheim"]', '{"client.password": "geheim"', '{"geheim.x": 1}'])
def test_an_unusable_settings_file_is_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "settings.json"
    file.write_text(text)
    with pytest.raises(ConfigurationError, match="SLUICE_SETTINGS_FILE: ") as refused:
        load_config(environment={"SLUICE_SETTINGS_FILE": str(file)})
    assert str(file) in str(refused.value)
    assert "geheim" not in str(refused.value) or "geheim.x" in text
    with pytest.raises(ConfigurationError, match=r"SLUICE_SETTINGS_FILE: .*/nowhere: No such file"):
        load_config(environment={"SLUICE_SETTINGS_FILE": str(tmp_path / "nowhere")})


def test_the_values_of_secret_settings_are_known() -> None:
    config = load_config(
        overrides={
            "client.password": "a-password",
            "client.fs.s3.secret-key": "a-key",
            "datalake.iceberg.s3.secret-access-key": "another-key",
            "datalake.iceberg.warehouse": "s3://bucket",
        }
    )
    assert set(config.secrets()) == {"a-password", "a-key", "another-key"}
    assert load_config().secrets() == ()


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"warehouse": "/lake"}, "hadoop"),
        ({"warehouse": "hdfs://n/w", "io-impl": "x.Y", "s3.endpoint": "http://s3"}, "hadoop"),
        ({"warehouse": "s3://lake/w", "s3.endpoint": "http://s3"}, None),  # no rename there
        ({"warehouse": "/lake", "type": "rest"}, "rest"),
        ({"warehouse": "s3://lake", "uri": "thrift://metastore"}, None),  # Iceberg's default, hive
        ({"warehouse": "/w", "hadoop.hive.metastore.uris": "thrift://metastore"}, None),
        ({"warehouse": "s3://w", "glue.id": "1"}, None),
        ({"warehouse": "lake"}, None),  # a name
        ({"warehouse": "s3://lake", "typ": "rest"}, None),  # misspelt: the check says so
        ({"warehouse": "s3://lake", "catalog_impl": "x.Y"}, None),
        ({}, None),
    ],
)
def test_a_warehouse_path_alone_is_a_catalog_of_folders(
    options: dict[str, str], kind: str | None
) -> None:
    assert DatalakeConfig("iceberg", options).iceberg.get("type") == kind
