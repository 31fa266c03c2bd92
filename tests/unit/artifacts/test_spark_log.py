"""Spark logs warnings only, unless its user has configured its log."""

import re
from pathlib import Path

import pytest

from sluice.artifacts.spark_log import REDACTED, REDACTION, log_conf, redaction_conf
from sluice.artifacts.spark_start import Application

WARN = {"spark.log.level": "WARN"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def found(folder: Path, application: Application | None = None, **environment: str) -> object:
    named = {"SPARK_CONF_DIR": str(folder), **environment}
    return log_conf(application or Application(), None, named)


def test_an_unconfigured_spark_logs_warnings(folder: Path) -> None:
    (folder / "spark-defaults.conf").write_text("spark.executor.memory 2g\n# spark.log.level INFO")
    (folder / "log4j2.properties.template").write_text("rootLogger.level = info")
    assert found(folder) == WARN
    assert log_conf(Application(), None, {}) == WARN, "a Spark that is not found"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("log4j2.properties", ""),
        ("log4j2-spark.xml", ""),
        ("log4j.properties", ""),
        ("spark-defaults.conf", "spark.log.level=INFO"),
        ("spark-defaults.conf", "spark.driver.extraJavaOptions -Dlog4j2.configurationFile=a"),
        ("java-opts", "-Dlog4j2.configurationFile=a"),
    ],
)
def test_files_of_spark_that_configure_its_log(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text)
    assert found(folder) == {}


def test_an_application_that_configures_its_log(folder: Path) -> None:
    file = folder / "own.conf"
    file.write_text("spark.log.level DEBUG")
    for application in (
        Application({"spark.log.level": "INFO"}),
        Application({"spark.driver.extraJavaOptions": "-Dlog4j.configuration=a"}),
        Application(properties_file=str(file)),
    ):
        assert found(folder, application) == {}
    assert found(folder, SPARK_SUBMIT_OPTS="-Dlog4j2.configurationFile=a") == {}


def test_a_driver_on_the_cluster_logs_there(folder: Path) -> None:
    assert found(folder, Application(deploy_mode="cluster")) == {}
    assert found(folder, Application({"spark.submit.deployMode": "cluster"})) == {}


def test_sparks_ui_hides_what_is_secret_of_a_lake(folder: Path) -> None:
    named = {"SPARK_CONF_DIR": str(folder)}
    assert redaction_conf(Application(), None, named) == {REDACTION: REDACTED}
    for name in (
        *("spark.sql.catalog.lake.header.X-Auth", "spark.sql.catalog.lake.credential"),
        *("spark.hadoop.fs.s3a.secret.key", "spark.sql.catalog.lake.s3.access-key-id"),
        "spark.kubernetes.driverEnv.SLUICE_SETTINGS",
    ):
        assert re.search(REDACTED, name), name
    assert not re.search(REDACTED, "spark.sql.catalog.lake.warehouse")


def test_a_redaction_of_the_user_stays(folder: Path) -> None:
    named = {"SPARK_CONF_DIR": str(folder)}
    assert redaction_conf(Application({REDACTION: "mine"}), None, named) == {}
    (folder / "spark-defaults.conf").write_text(f"{REDACTION} mine")
    assert redaction_conf(Application(), None, named) == {}
