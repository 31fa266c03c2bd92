"""`sluice maintain --work-uri` before it maintains anything."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from sluice.cli.main import cli
from sluice.config import ServerConfig
from sluice.rounds.records.maintenance import newest_runs, read_outcome, request_uri
from sluice.server.cluster import EmbeddedCluster


def test_a_work_folder_that_cannot_be_written_is_told_before_anything_is_done(
    tmp_path: Path,
) -> None:
    (tmp_path / "work").write_text("a file where the folder belongs")
    config = ServerConfig(data_dir=str(tmp_path / "data"), listen="grpc://127.0.0.1:0")
    (tmp_path / "lake").mkdir()
    with EmbeddedCluster(config) as cluster:
        words = ["--bootstrap", cluster.address, "--warehouse", str(tmp_path / "lake"), "--yes"]
        for uri in (f"file://{tmp_path}/work", "nonsense://u:hunter2-pass@x/work"):
            told = CliRunner().invoke(cli, ["maintain", "--work-uri", uri, *words])
            assert told.exit_code == 2, told.output
            assert "cannot be written, so nothing was done: " in told.output
            assert "hunter2" not in told.output


def test_why_the_command_ended_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lake's JVM cannot start: then no table has a report."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "no-java"))
    monkeypatch.setenv("PATH", str(tmp_path))
    work = f"file://{tmp_path}/work"
    config = ServerConfig(data_dir=str(tmp_path / "data"), listen="grpc://127.0.0.1:0")
    (tmp_path / "lake").mkdir()
    with EmbeddedCluster(config) as cluster:
        words = ["--bootstrap", cluster.address, "--warehouse", str(tmp_path / "lake")]
        told = CliRunner().invoke(cli, ["maintain", "--work-uri", work, *words])
    assert told.exit_code == 2, told.output
    [task] = newest_runs(work)
    [run] = task.runs
    assert (run.applied, run.ended_ms is not None) == (False, True)
    outcome = read_outcome(request_uri(work, run.folder, run.attempt))
    assert outcome.error is not None
    assert "Java 17 or newer is needed" in outcome.error.text
