"""One loader: file < environment < argument, and a wrong value names its key."""

from pathlib import Path

import pytest

from sluice.config import Config, load_config
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


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"client.request_timeout_ms": "soon"}, ["client.request_timeout_ms", "'soon'"]),
        ({"client.request_timeout_ms": "-1"}, ["client.request_timeout_ms", "negative"]),
        ({"server.insecure": "maybe"}, ["server.insecure", "true nor false"]),
        ({"client.speed": "1"}, ["client.speed", "request_timeout_ms"]),
        ({"lake.format": "1"}, ["lake.format", "datalake"]),
        ({"datalake.iceberg": "x"}, ["datalake.iceberg.NAME"]),
    ],
)
def test_a_wrong_setting_is_named(overrides: dict[str, str], words: list[str]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_config(overrides=overrides)
    assert all(word in str(caught.value) for word in words), str(caught.value)


@pytest.mark.parametrize("text", ["[client", "client = 1", "[nowhere]\na = 1"])
def test_an_unusable_file_is_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "sluice.toml"
    file.write_text(text)
    with pytest.raises(ConfigurationError, match="sluice.toml"):
        load_config(file)
    with pytest.raises(ConfigurationError, match="missing.toml"):
        load_config(tmp_path / "missing.toml")


def test_foreign_variables_are_left_alone() -> None:
    assert load_config(environment={"SLUICE_FAILPOINTS": "a=kill", "PATH": "/bin"}) == Config()


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
