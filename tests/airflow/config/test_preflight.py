"""What is looked at before a run, without Airflow: real files, programs and storages."""

from __future__ import annotations

import logging
import os
import socket
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from rich.markup import render

from sluice.artifacts.iceberg import AUTO, CATALOGS, FENCE, RUNTIMES, install_spark
from sluice.checks.findings import Finding, run_checks
from sluice_airflow.config.connection import FlussConnection
from sluice_airflow.config.preflight import (
    CLUSTER_TIMEOUT_S,
    Submission,
    check_all,
    check_connection,
    find_obstacle,
)
from tests.support.clusters.s3_server import S3Server
from tests.support.harness.findings import finding
from tests.support.harness.java import jar_of, java_that
from tests.support.network.ports import kept_port

PACKAGES = RUNTIMES["4.0"].coordinates


@pytest.fixture
def submission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Submission:
    """All of Spark on this machine, and all of it well."""
    for name in ("spark-submit", "spark-class"):
        program = tmp_path / "spark/bin" / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    jar_of(tmp_path / "iceberg.jar", CATALOGS, FENCE)
    monkeypatch.setenv("PATH", str(tmp_path / "spark/bin"))
    for variable in ("SPARK_HOME", "SPARK_CONF_DIR"):
        monkeypatch.delenv(variable, raising=False)
    for variable in [name for name in os.environ if name.startswith("SLUICE_")]:
        monkeypatch.delenv(variable)
    java_that("""echo 'openjdk version "17.0.1"' >&2""", tmp_path / "java", monkeypatch)
    return Submission(master="local[2]", jars=str(tmp_path / "iceberg.jar"))


def connection(tmp_path: Path, **extra: Any) -> FlussConnection:
    lake = {"iceberg.type": "hadoop", "iceberg.warehouse": str(tmp_path / "lake")}
    given = {"work_uri": f"file://{tmp_path}/work", "datalake": lake, **extra}
    return FlussConnection.parse("fluss_default", "127.0.0.1", 1, given)


def refused(given: FlussConnection, submission: Submission) -> str:
    """Why the run stops; empty if it does not."""
    found = find_obstacle(given, submission)
    return found.reason if found else ""


def states(findings: list[Finding]) -> dict[str, bool | None]:
    return {finding.what: finding.ok for finding in findings}


def test_all_is_well(
    submission: Submission, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    there = sorted(tmp_path.iterdir())
    with caplog.at_level(logging.INFO):
        assert find_obstacle(connection(tmp_path), submission) is None
    assert [record.getMessage() for record in caplog.records] == [
        "checked: the driver's script, spark-submit, Java, jars,"
        f" work folder file://{tmp_path}/work, lake configured,"
        f" write to the lake, {tmp_path}/lake"
    ]
    with finding():
        assert sorted(tmp_path.iterdir()) == there, "nothing is left behind"


def test_what_is_not_checked_is_logged_line_by_line(
    submission: Submission, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    far = replace(submission, jars="", packages=PACKAGES, application="s3://b/tier_tables.py")
    with caplog.at_level(logging.INFO):
        assert find_obstacle(connection(tmp_path), far) is None
    assert [record.getMessage() for record in caplog.records][:2] == [
        "not checked: the driver's script: only Spark can check s3://b/tier_tables.py",
        f"not checked: packages: spark-submit fetches {PACKAGES}",
    ]


def test_icebergs_runtime_for_the_spark_of_spark_submit(
    submission: Submission, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("HOME", "XDG_CACHE_HOME"):  # this user may have fetched runtimes
        monkeypatch.setenv(variable, str(tmp_path / "user"))
    asked, jars = replace(submission, jars="", packages=AUTO), tmp_path / "spark/jars"
    [told] = [found for found in check_all(connection(tmp_path), asked) if found.what == "packages"]
    newest = RUNTIMES["4.1"].coordinates
    assert told.ok is None
    assert told.seen.startswith(
        f"the Spark version of {tmp_path}/spark/bin/spark-submit is unknown, so"
    )
    assert newest in told.seen
    jars.mkdir()
    (jars / "spark-core_2.13-4.0.2.jar").touch()
    seen = {str(finding) for finding in check_all(connection(tmp_path), asked)}
    assert f"packages: spark-submit fetches {PACKAGES}" in seen
    kept = tmp_path / "user/sluice/jars" / RUNTIMES["4.0"].name
    kept.parent.mkdir(parents=True)
    kept.touch()
    assert f"packages: {kept}" in {
        str(finding) for finding in check_all(connection(tmp_path), asked)
    }
    (jars / "spark-core_2.13-4.0.2.jar").rename(jars / "spark-core_2.12-3.5.7.jar")
    line = refused(connection(tmp_path), asked)
    assert line.startswith("packages: Spark 3.5.7 is not supported: Sluice runs on Spark 4.0 and 4")
    assert "or name Iceberg's runtime for your Spark in option packages of section sluice" in line
    far = replace(asked, remote_executor="CeleryExecutor")
    assert states(check_all(connection(tmp_path), far))["packages"] is None


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (
            {"application": "/nowhere/tier.py"},
            "the driver's script: file /nowhere/tier.py does not exist; correct option"
            " application of section sluice in airflow.cfg or argument application of the DAG file,"
            " or leave it empty",
        ),
        (
            {"binary": "spark3-submit"},
            "spark-submit: the program 'spark3-submit' does not exist: "
            f"`{install_spark()}` installs spark-submit; or correct option spark_binary of section"
            " sluice in airflow.cfg or argument spark_binary of the DAG file",
        ),
        (
            {"jars": "/nowhere/a.jar"},
            "jars: file /nowhere/a.jar does not exist; correct option jars of section"
            " sluice in airflow.cfg or argument jars of the DAG file",
        ),
        (
            {"jars": "", "packages": "iceberg"},
            "packages: 'iceberg' does not have the form GROUP:ARTIFACT:VERSION; correct option"
            " packages of section sluice in airflow.cfg or argument packages of the DAG file",
        ),
        (
            {"py_files": "/nowhere/sluice.zip"},
            "py_files: file /nowhere/sluice.zip does not exist; correct option py_files of section"
            " sluice in airflow.cfg or argument py_files of the DAG file",
        ),
    ],
)
def test_the_one_thing_that_is_missing(
    wrong: dict[str, str], said: str, submission: Submission, tmp_path: Path
) -> None:
    here = f"(on {socket.gethostname()}; this try claimed no table)"
    assert refused(connection(tmp_path), replace(submission, **wrong)) == f"{said} {here}"


def test_jars_without_iceberg(submission: Submission, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("Iceberg")
    said = refused(connection(tmp_path), replace(submission, jars=f"{tmp_path}/notes.txt"))
    assert said.startswith(f"jars: {tmp_path}/notes.txt is not a jar")
    assert (
        "; correct option jars of section sluice in airflow.cfg or argument jars of the DAG file"
        in said
    )
    jar_of(tmp_path / "spark/jars/spark-core_2.13-4.0.2.jar", "org.apache.spark.SparkContext")
    other = jar_of(tmp_path / "other.jar", "org.postgresql.Driver")
    said = refused(connection(tmp_path), replace(submission, jars=other))
    assert said.startswith(f"jars: no Iceberg in {other}, nor in Spark's own {tmp_path}")
    none = replace(submission, jars="", packages="")
    said = refused(connection(tmp_path), none)
    assert said.startswith(
        "jars: no Iceberg in the options jars and packages, which are empty, nor in"
    )
    assert " airflow.cfg or argument packages of the DAG file to auto" in said
    for given in (
        replace(none, remote_executor="CeleryExecutor"),
        replace(none, deploy_mode="cluster"),
    ):
        assert states(check_all(connection(tmp_path), given))["jars"] is None
    asked = replace(none, spark_conf={"spark.jars.packages": PACKAGES})
    assert find_obstacle(connection(tmp_path), asked) is None


def test_no_message_has_words_in_brackets(submission: Submission, tmp_path: Path) -> None:
    """`airflow connections test` takes them for colours, and drops them."""
    wrong = {
        "application": "/nowhere",
        "binary": "/nowhere",
        "jars": "/nowhere",
        "py_files": "/nowhere",
    }
    for given in (
        replace(submission, **wrong),
        replace(submission, jars="", packages="iceberg"),
        replace(submission, jars="", packages=""),
    ):
        for found in check_all(connection(tmp_path, datalake={}), given):
            assert render(str(found)).plain == str(found)


@pytest.mark.slow
def test_what_lasts_ends_a_run_and_what_may_pass_is_tried_again(
    submission: Submission, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    patient = partial(run_checks, timeout_s=60.0)  # S3 tries a refused port for 2 s
    monkeypatch.setattr("sluice_airflow.config.preflight.run_checks", patient)
    with kept_port() as port:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        away = connection(tmp_path, work_uri="s3://bucket/work")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "tester")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret-of-tester")
        found = find_obstacle(away, submission)
        assert found is not None
        assert found.reason.startswith("work folder s3://bucket/work: ")
        assert found.may_pass
        (tmp_path / "lake").touch()
        found = find_obstacle(away, submission)
    assert found is not None
    assert found.reason.startswith("write to the lake, "), "what lasts is told first"
    assert not found.may_pass


def test_causes_come_first(submission: Submission, tmp_path: Path) -> None:
    (tmp_path / "work").touch()
    broken = connection(tmp_path, datalake={})
    wrong = replace(submission, application="/nowhere", binary="/nowhere", jars="/nowhere")
    for told, right in (
        ("the driver's script: ", {"application": ""}),
        ("spark-submit: ", {"binary": "spark-submit"}),
        ("jars: ", {"jars": submission.jars}),
    ):
        assert refused(broken, wrong).startswith(told)
        wrong = replace(wrong, **right)
    assert refused(broken, wrong).startswith(f"work folder file://{tmp_path}/work: ")
    (tmp_path / "work").unlink()
    assert "no lake is configured" in refused(broken, wrong)


def test_a_java_that_is_too_old(
    submission: Submission, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java_that("""echo 'openjdk version "11.0.2"' >&2""", tmp_path / "old", monkeypatch)
    assert refused(connection(tmp_path), submission).startswith(
        f"Java: Java 17 or newer is needed, but {tmp_path}/old/bin/java (from JAVA_HOME) is Java"
    )


def test_no_work_folder(submission: Submission, tmp_path: Path) -> None:
    said = refused(connection(tmp_path, work_uri=""), submission)
    assert "the Fluss connection has no work_uri: set it to a folder" in said


@pytest.mark.parametrize(
    ("options", "what", "said"),
    [
        (
            {"format": "paimon", "iceberg.type": "hadoop"},
            "lake configured: ",
            "datalake.format=paimon is not supported",
        ),
    ],
)
@pytest.mark.parametrize("deploy_mode", ["client", "cluster"])
def test_options_that_the_driver_will_refuse(
    options: dict, what: str, said: str, deploy_mode: str, submission: Submission, tmp_path: Path
) -> None:
    there = replace(submission, deploy_mode=deploy_mode)
    line = refused(connection(tmp_path, datalake=options), there)
    assert line.startswith(what)
    assert said in line


def test_a_lake_that_the_run_or_the_environment_names(
    submission: Submission, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    none = connection(tmp_path, datalake={})
    named = {"type": "hadoop", "warehouse": f"{tmp_path}/file/lake"}
    asked = {f"spark.sluice.datalake.iceberg.{name}": value for name, value in named.items()}
    line = refused(none, replace(submission, spark_conf=asked))
    assert line.startswith(f"write to the lake, {tmp_path}/file/lake: NotADirectoryError")
    for name, value in named.items():
        monkeypatch.setenv(f"SLUICE_DATALAKE_ICEBERG_{name.upper()}", value)
    assert refused(none, submission) == line
    there = replace(submission, deploy_mode="cluster")
    assert find_obstacle(none, there) is None, "a driver on the cluster has another environment"


def test_a_driver_on_a_cluster(submission: Submission, tmp_path: Path) -> None:
    (tmp_path / "lake").touch()
    there = replace(submission, master="yarn", deploy_mode="cluster")
    found = check_all(connection(tmp_path), there)
    assert states(found)[f"write to the lake, {tmp_path}/lake"] is None
    [java] = [finding for finding in found if finding.what == "Java"]
    assert java.ok, "spark-submit needs one here"
    assert java.seen.endswith("the driver's, on the cluster: not checked")
    for what in ("the driver's script", f"work folder file://{tmp_path}/work"):
        [local] = [finding for finding in found if finding.what == what]
        assert local.ok is None
        assert local.seen.endswith(
            "it is a local path in deploy mode cluster: only the driver's machine decides"
        )
    far = replace(there, application="s3://b/tier_tables.py")
    [script] = [f for f in check_all(connection(tmp_path), far) if f.what == "the driver's script"]
    assert script.seen == "only Spark can check s3://b/tier_tables.py"
    (tmp_path / "work").touch()
    assert "work folder" in refused(connection(tmp_path), there), "Airflow writes there, too"


def test_a_machine_where_no_task_runs(tmp_path: Path) -> None:
    """Its own files say nothing; what storages answer does."""
    there = Submission(jars="/nowhere/a.jar", remote_executor="CeleryExecutor")
    assert set(states(check_all(connection(tmp_path), there)).values()) == {None, True}
    assert states(check_all(connection(tmp_path, work_uri="nowhere://x"), there)) == {
        "the driver's script, spark-submit, Java": None,
        "jars": None,
        "work folder nowhere://x": None,
        "lake configured": True,
        f"write to the lake, {tmp_path}/lake": None,
    }
    assert list(tmp_path.iterdir()) == []
    wrong = connection(tmp_path, datalake={"format": "paimon"})
    assert states(check_all(wrong, there))["lake configured"] is False


def test_no_secret_is_told(
    submission: Submission, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys of the work folder, of the lake, of its catalog's address and of the run."""
    planted = ["Planted/Work+4711", "Planted/Lake+4712", "Planted-4713-address", "Planted4714run"]
    with S3Server() as server:
        server.allowed = {}
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)
        monkeypatch.setenv("AWS_REGION", "eu-central-1")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "tester")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", planted[0])
        lake = {
            "iceberg.type": "jdbc",
            "iceberg.uri": f"jdbc:postgresql://bob:{planted[2]}@127.0.0.1:1/lake",
            "iceberg.warehouse": f"s3://bucket/lake?token={planted[2]}",
            "iceberg.s3.endpoint": server.endpoint,
            "iceberg.s3.access-key-id": "tester",
            "iceberg.s3.secret-access-key": planted[1],
        }
        given = connection(tmp_path, work_uri="s3://bucket/work", datalake=lake)
        asked = {
            "spark.sluice.client.fs.s3.secret-key": planted[3],
            "spark.sluice.tiering.parallelism": planted[3],
        }
        for conf in ({}, asked):
            asking = replace(submission, spark_conf=conf)
            found = check_all(given, asking)
            failed = [finding for finding in found if finding.ok is False]
            assert len(failed) >= 2, found
            told = [str(found), refused(given, asking)]
            assert [secret for secret in planted for text in told if secret in text] == []


def test_the_guide_says_how_long_a_test_asks_the_cluster() -> None:
    guide = " ".join((Path(__file__).parents[3] / "docs/airflow.md").read_text().split())
    assert f"for {CLUSTER_TIMEOUT_S:g} seconds at most." in guide


def test_the_cluster_is_the_first_that_a_test_asks(submission: Submission, tmp_path: Path) -> None:
    ok, said = check_connection(connection(tmp_path), replace(submission, binary="/nowhere"))
    assert not ok
    assert said.startswith("cluster grpc://127.0.0.1:1: NetworkError: ")
    assert "\n" not in said
