"""`sluice serve` with settings of a lake that cannot work: one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from sluice.cli.main import cli

KINDS = "hadoop, hive, rest, glue, nessie, jdbc, bigquery"


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (
            'format = "paimon"',
            "datalake.format='paimon' is not supported by this server: use iceberg, or none for a"
            " server without a lake",
        ),
        (
            'format = "icebreg"',
            "datalake.format='icebreg' is not supported by this server: use iceberg, or none for a"
            " server without a lake; did you mean 'iceberg'?",
        ),
        (
            'iceberg.type = "hadop"',
            "datalake.iceberg.type='hadop' is not a catalog type of Iceberg; use one of"
            f" {KINDS}; did you mean 'hadoop'?",
        ),
        (
            'iceberg.type = "rest"\niceberg.url = "http://catalog:8181"',
            "datalake.iceberg.type=rest needs datalake.iceberg.uri, which is not set: set it where"
            " the type is set (in Airflow: iceberg.uri in the field Lake of the Fluss connection);"
            " datalake.iceberg.url: did you mean datalake.iceberg.uri?",
        ),
    ],
)
def test_a_lake_that_cannot_work_is_refused(tmp_path: Path, lines: str, told: str) -> None:
    (tmp_path / "sluice.toml").write_text(f"[datalake]\n{lines}\n")
    (tmp_path / "data").write_text("no folder, so that no server runs here")
    words = ["serve", "--data-dir", str(tmp_path / "data"), "--listen", "grpc://127.0.0.1:0"]
    done = CliRunner().invoke(cli, [*words, "--config", str(tmp_path / "sluice.toml")])
    assert (done.exit_code, done.stderr) == (2, f"sluice: {told}\n")


@pytest.mark.parametrize("is_variable", [False, True])
def test_a_lake_of_a_server_without_one_is_refused(tmp_path: Path, *, is_variable: bool) -> None:
    (tmp_path / "sluice.toml").write_text('[datalake]\nformat = "none"\n')
    (tmp_path / "data").write_text("no folder, so that no server runs here")
    words = ["serve", "--data-dir", str(tmp_path / "data"), "--listen", "grpc://127.0.0.1:0"]
    words += ["--warehouse", str(tmp_path / "lake")]
    env = {"SLUICE_DATALAKE_FORMAT": "none"} if is_variable else {}
    words += [] if is_variable else ["--config", str(tmp_path / "sluice.toml")]
    done = CliRunner().invoke(cli, words, env=env)
    assert done.exit_code == 2
    assert "--warehouse names a lake, and datalake.format=none is a server without one" in " ".join(
        done.stderr.split()
    )
