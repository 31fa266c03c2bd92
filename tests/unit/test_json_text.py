"""JSON and TOML that others wrote: what cannot be read is a typed error of one line."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from sluice.config import SETTINGS_VARIABLE, load_config
from sluice.errors import ConfigurationError, CorruptMessage
from sluice.formats.kv.snapshot_metadata import kv_snapshot_from_json
from sluice.formats.types.descriptors import descriptor_from_json, schema_from_json
from sluice.json_text import json_of
from sluice.rounds.records.json_files import read_json

DEPTHS = [50, 500, *range(900, 1_000), 100_000]
"""Python's own limit is among them: a value that can be parsed there can perhaps not be shown."""


def nested(depth: int, around: str = "") -> bytes:
    return f'{{"version": 1, "schema": {"[" * depth}{around}{"]" * depth}}}'.encode()


def test_deep_json_is_an_error_of_its_file() -> None:
    reads = (descriptor_from_json, schema_from_json, kv_snapshot_from_json)
    for read, depth in product(reads, DEPTHS):
        with pytest.raises(CorruptMessage) as caught:
            read(nested(depth))
        assert "\n" not in str(caught.value)


def test_deep_json_of_a_round_is_no_json(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_bytes(nested(100_000))
    with pytest.raises(ValueError, match="^it is nested too deep$"):
        read_json(str(file))


def test_json_that_is_not_utf8() -> None:
    with pytest.raises(ValueError, match="decode"):
        json_of(b'{"a": "\xff"}')


DEEP_TOML = {
    "inline tables": "[client]\nfs = " + "{a = " * 3_000 + "1" + "}" * 3_000,
    "lists": "[client]\nbootstrap = " + "[" * 5_000 + "]" * 5_000,
    "dotted keys": "[client]\n" + ".".join(["a"] * 5_000) + " = 1",
}


@pytest.mark.parametrize("kind", DEEP_TOML)
def test_deep_toml_is_an_error_of_its_file(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "sluice.toml"
    file.write_text(DEEP_TOML[kind])
    with pytest.raises(ConfigurationError, match=r"sluice\.toml: the tables are nested too deep$"):
        load_config(file)


def test_deep_settings_are_an_error_of_their_variable() -> None:
    with pytest.raises(ConfigurationError, match="SLUICE_SETTINGS is not JSON: it is nested too"):
        load_config(environment={SETTINGS_VARIABLE: '{"client.bootstrap": ' + "[" * 100_000})


@pytest.mark.parametrize(
    "line", ['[server]\ndata_dir = "a\\u0000b"', '[client.fs]\n"s3.endpoint" = "a\\u0000"']
)
def test_a_nul_is_refused_before_it_reaches_a_path(tmp_path: Path, line: str) -> None:
    file = tmp_path / "sluice.toml"
    file.write_text(line)
    with pytest.raises(ConfigurationError, match=r"sluice\.toml:\d: .* NUL character; remove it$"):
        load_config(file)
