"""Settings that cannot work are refused at the start, with the reason and both names of a pair."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from sluice.cli.main import cli
from sluice.config import load_config
from sluice.errors import ConfigurationError

REFUSED = {
    "server.sync_interval_ms": (0, "server.sync_interval_ms: 0 is less than 1, the least that"),
    "server.tiering_timeout_ms": (
        2_999,
        "server.tiering_timeout_ms: 2999 is less than 3000, the least that works: workers send a"
        " heartbeat every second at most",
    ),
    "server.kv_snapshot_num_retained": (0, "kv_snapshot_num_retained: 0 is less than 1"),
    "server.max_message_bytes": (100, "server.max_message_bytes: 100 is less than 65536"),
    "server.max_workers": (1, "server.max_workers: 1 is less than 2"),
    "client.max_message_bytes": (2**31, "2147483648 is more than 2147483647, the most that works"),
    "client.retry_timeout_ms": (10**13, "more than 1000000000000, the most that works"),
    "client.writer_max_inflight": (0, "client.writer_max_inflight: 0 is less than 1"),
    "tiering.parallelism": (0, "tiering.parallelism: 0 is less than 1"),
}
PAIRS = {
    ("server.tiering_check_interval_ms", 30_001, "server.tiering_timeout_ms", 30_000),
    ("server.kv_scanner_expiration_interval_ms", 600_001, "server.kv_scanner_ttl_ms", 600_000),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_value_that_cannot_work_is_refused(name: str) -> None:
    value, why = REFUSED[name]
    with pytest.raises(ConfigurationError, match=re.escape(why)):
        load_config(overrides={name: value})


@pytest.mark.parametrize("pair", PAIRS)
def test_a_pair_that_cannot_work_is_refused_by_both_names(pair: tuple[str, int, str, int]) -> None:
    small, value, large, other = pair
    settings: dict[str, str | int | bool] = {large: other, small: value}
    told = f"{small}: {value} is more than {large}, {other}: "
    with pytest.raises(ConfigurationError, match=re.escape(told)):
        load_config(overrides=settings)
    settings[small] = value - 1
    load_config(overrides=settings)


def test_a_short_timeout_works_if_it_is_checked_as_often() -> None:
    settings: dict[str, str | int | bool] = {
        "server.tiering_timeout_ms": 5_000,
        "server.tiering_check_interval_ms": 1_000,
    }
    assert load_config(overrides=settings).server.tiering_timeout_ms == 5_000


@pytest.mark.parametrize(
    ("large", "value", "small", "otherwise"),
    [
        ("tiering_timeout_ms", 3_000, "tiering_check_interval_ms", 15_000),
        ("kv_scanner_ttl_ms", 1, "kv_scanner_expiration_interval_ms", 30_000),
    ],
)
def test_a_default_is_lowered_with_the_setting_that_limits_it(
    large: str, value: int, small: str, otherwise: int
) -> None:
    server = load_config(overrides={f"server.{large}": value}).server
    assert (getattr(server, large), getattr(server, small)) == (value, value)
    server = load_config(overrides={f"server.{large}": 10**6}).server
    assert getattr(server, small) == otherwise
    with pytest.raises(ConfigurationError, match=f"server.{large}: 0 is less than"):
        load_config(overrides={f"server.{large}": 0})


def test_the_server_does_not_start_with_them(tmp_path: Path) -> None:
    file = tmp_path / "sluice.toml"
    file.write_text("[server]\ntiering_timeout_ms = 5000\ntiering_check_interval_ms = 15000\n")
    command = ["serve", "--data-dir", str(tmp_path / "data"), "--config", str(file)]
    result = CliRunner().invoke(cli, command)
    assert result.exit_code == 2
    assert result.stderr.splitlines() == [
        "sluice: server.tiering_check_interval_ms: 15000 is more than server.tiering_timeout_ms,"
        " 5000: a lost worker would be noticed later than this timeout says; lower"
        " tiering_check_interval_ms or raise tiering_timeout_ms"
    ]
    assert not (tmp_path / "data").exists()
