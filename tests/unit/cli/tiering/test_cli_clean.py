"""`sluice clean`: what it prints, what it refuses, its exit codes, and folders of runs for real."""

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result
from fsspec.implementations.local import LocalFileSystem

from sluice.cli.main import cli
from sluice.cli.tiering.clean import print_reports
from sluice.client import connect
from sluice.config import ClientConfig, Config, ServerConfig
from sluice.driver import cleaning
from sluice.driver.cleaning import clean_runs
from sluice.model import Column, Schema, TableDescriptor, TablePath
from sluice.model.types import BIGINT
from sluice.rounds.records.finished_runs import RunFolder
from sluice.rounds.records.json_files import write_json
from sluice.rounds.records.plan_file import PlanFile, plan_uri
from sluice.rounds.upkeep.orphans import CleanReport, OrphanFile
from sluice.server.cluster import EmbeddedCluster

DEAD = "its round was planned from commit 1, and commit 2 (snapshot 7) has followed"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["clean", *arguments])


@pytest.fixture
def report() -> CleanReport:
    made = CleanReport("shop.orders", 7, foreign_files=2, foreign_bytes=99)
    made.dead = [OrphanFile(f"/lake/data/{n}.parquet", 1000, 0, "1-x", 1, DEAD) for n in range(2)]
    made.kept = [OrphanFile("/lake/data/9.parquet", 5, None, "2-x", 2, "it may still commit")]
    return made


def test_a_dry_run_says_what_would_go_and_why(
    report: CleanReport, capsys: pytest.CaptureFixture[str]
) -> None:
    print_reports([report], None, applied=False, as_json=False)
    said = capsys.readouterr().out
    assert "shop.orders: 2 orphan files, 2.0 kB; --yes deletes them" in said
    assert f"would be deleted: {DEAD}:" in said
    assert "1,000 1970-01-01 00:00:00Z /lake/data/0.parquet" in " ".join(said.split())
    assert "kept: it may still commit:" in said
    assert "note: 2 unreferenced data files of other writers, 99 bytes: Iceberg's" in said


def test_a_lake_without_any_table_of_the_cluster_is_noted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Most often the warehouse is another one."""
    print_reports([], None, applied=False, as_json=False)
    assert "this lake has no table of the cluster: check --warehouse" in capsys.readouterr().err
    print_reports(None, [], applied=False, as_json=False)
    assert capsys.readouterr().err == ""


def test_what_could_not_be_removed_is_exit_code_1(
    report: CleanReport, capsys: pytest.CaptureFixture[str]
) -> None:
    report.removed = ["/lake/data/0.parquet"]
    report.failed = {"/lake/data/1.parquet": "PermissionError: no"}
    with pytest.raises(click.exceptions.Exit) as ended:
        print_reports([report], None, applied=True, as_json=False)
    assert ended.value.exit_code == 1
    said = capsys.readouterr().out
    assert "1 deleted, 1 could not be deleted" in said
    assert f"deleted: {DEAD}:" in said
    assert "not deleted: PermissionError: no:" in said


def test_a_table_that_could_not_be_read_is_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(click.exceptions.Exit):
        print_reports(
            [CleanReport("shop.x", None, error="gone")], None, applied=False, as_json=False
        )
    assert capsys.readouterr().out == "shop.x: cannot be read: gone\n"


def test_json_for_machines(report: CleanReport, capsys: pytest.CaptureFixture[str]) -> None:
    print_reports([report], [RunFolder("file:///w/sluice-a")], applied=False, as_json=True)
    content = json.loads(capsys.readouterr().out)
    [table] = content["tables"]
    assert table["dead"][0]["path"] == "/lake/data/0.parquet"
    assert (table["newest_snapshot_id"], table["foreign_files"]) == (7, 2)
    assert content["runs"][0]["uri"] == "file:///w/sluice-a"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("shop.orders",), "give --warehouse PATH"),
        (("orders", "--warehouse", "x"), "write DATABASE.TABLE"),
        (("--warehouse", "x", "--older-than", "soon"), "--older-than: 'soon' is not a duration"),
        (("--warehouse", "x", "--runs-older-than", "1 week"), "is not a duration"),
    ],
)
def test_wrong_arguments_end_with_code_2(arguments: tuple[str, ...], told: str) -> None:
    done = run(*arguments)
    assert done.exit_code == 2
    assert told in " ".join(done.output.split())


def test_runs_are_removed_once_the_coordinator_holds_nothing_for_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A real server: one run's claim is held, the other's is over."""
    work = f"file://{tmp_path}/work"
    config = ServerConfig(data_dir=str(tmp_path / "data"), listen="grpc://127.0.0.1:0")
    properties = {"table.datalake.enabled": "true", "table.datalake.freshness": "0s"}
    schema = Schema((Column("n", BIGINT, 0),), highest_field_id=0)
    with EmbeddedCluster(config) as cluster, connect(cluster.address) as client:
        client.admin.create_database("shop")
        for name in ("held", "over"):
            path = TablePath("shop", name)
            client.admin.create_table(path, TableDescriptor(schema, properties=properties))
            while (claim := client.tiering.claim([path])) is None:
                time.sleep(0.05)
            uri = plan_uri(work, f"sluice-{name}", claim)
            write_json(uri, PlanFile(claim, f"sluice-{name}", cluster.address).to_json())
            os.utime(uri.removeprefix("file://"), (1, 1))
            if name == "over":
                client.tiering.finished(claim)
        runs = clean_runs(Config(ClientConfig(cluster.address)), work, 1_000, apply=True)
    print_reports([], runs, applied=True, as_json=False)
    said = capsys.readouterr().out
    assert "the coordinator still holds its claim of table shop.held" in said
    assert "deleted" in said
    assert [path.name for path in (tmp_path / "work").iterdir()] == ["sluice-held"]


def test_what_cannot_be_removed_is_told_after_all_that_was_done(
    tmp_path: Path,
    report: CleanReport,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two ended runs; the file system refuses to remove the first one's file."""
    work = tmp_path / "work"
    for name in ("sluice-a", "sluice-b"):
        (work / name / "1-1").mkdir(parents=True)
        file = work / name / "1-1" / "result-x.json"
        file.write_text("{}")
        os.utime(file, (1, 1))
    remove = LocalFileSystem.rm_file

    def refuse(fs: LocalFileSystem, path: str) -> None:
        if "sluice-a" in path:
            raise PermissionError(13, "Permission denied", path)
        remove(fs, path)

    monkeypatch.setattr(LocalFileSystem, "rm_file", refuse)
    config = ServerConfig(data_dir=str(tmp_path / "data"), listen="grpc://127.0.0.1:0")
    with EmbeddedCluster(config) as cluster:
        runs = clean_runs(Config(ClientConfig(cluster.address)), f"file://{work}", 1, apply=True)
    assert [path.name for path in work.iterdir()] == ["sluice-a"]
    report.removed = [left.path for left in report.dead]
    with pytest.raises(click.exceptions.Exit) as ended:
        print_reports([report], runs, applied=True, as_json=False)
    assert ended.value.exit_code == 1
    said = capsys.readouterr().out
    assert "shop.orders: 2 orphan files, 2.0 kB: 2 deleted" in said
    assert "not deleted" in said
    assert {run.uri[-1]: run.error[:15] for run in runs} == {"a": "PermissionError", "b": ""}


def test_a_work_folder_that_cannot_be_listed_hides_nothing_that_was_done(
    report: CleanReport, monkeypatch: pytest.MonkeyPatch
) -> None:
    report.removed = [left.path for left in report.dead]
    monkeypatch.setattr(cleaning, "clean_tables", lambda *_, **__: iter([report]))

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", "/w")

    monkeypatch.setattr(LocalFileSystem, "find", refuse)
    with socket.create_server(("127.0.0.1", 0)) as there:
        address = f"grpc://127.0.0.1:{there.getsockname()[1]}"
        words = ("--warehouse", ".", "--bootstrap", address, "--work-uri", "file:///w")
        done = run("shop.orders", "--yes", *words)
    assert done.exit_code == 1
    assert "2 deleted" in done.output
    assert "the runs cannot be read: file:///w: PermissionError" in done.output


def test_folders_of_runs_alone_need_no_lake(tmp_path: Path) -> None:
    """As docs/airflow.md has it: the coordinator and a work folder, nothing else."""
    file = tmp_path / "work/sluice-a/1-1/result-x.json"
    file.parent.mkdir(parents=True)
    file.write_text("{}")
    os.utime(file, (1, 1))
    words = ("--work-uri", f"file://{tmp_path}/work", "--runs-older-than", "7d", "--yes")
    config = ServerConfig(data_dir=str(tmp_path / "data"), listen="grpc://127.0.0.1:0")
    with EmbeddedCluster(config) as cluster:
        done = run(*words, "--bootstrap", cluster.address)
    assert done.exit_code == 0, done.output
    assert "deleted" in done.output
    assert list((tmp_path / "work").iterdir()) == []
    refused = run("shop.orders", *words, "--bootstrap", cluster.address)
    assert "give --warehouse PATH" in refused.output
