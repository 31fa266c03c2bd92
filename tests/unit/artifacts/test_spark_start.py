"""Which properties a driver starts with, and what its user decides himself."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluice.artifacts.class_archive import JAVA_OPTIONS
from sluice.artifacts.spark_start import (
    CLASS_PATH,
    OPTIONS,
    UI,
    Application,
    configured_elsewhere,
    driver_is_here,
    start_conf,
    start_here,
)

JARS = (Path("/jars/iceberg.jar"), Path("/jars/aws.jar"))
ARCHIVE = Path("/cache/key-digest.jsa")


def test_an_archive_is_used_with_the_jars_it_was_made_of() -> None:
    found = start_conf(Application(), (), {}, JARS, ARCHIVE)
    assert sorted(found) == [CLASS_PATH, OPTIONS]
    assert found[CLASS_PATH] == "/jars/iceberg.jar:/jars/aws.jar"
    assert found[OPTIONS].startswith(f"{JAVA_OPTIONS} -Xshare:auto -XX:SharedArchiveFile={ARCHIVE}")


def test_without_an_archive_java_still_starts_simple() -> None:
    assert start_conf(Application(), (), {}) == {OPTIONS: JAVA_OPTIONS}


def test_a_small_application_has_no_ui() -> None:
    small = Application(is_small=True)
    assert start_conf(small, (), {}) == {OPTIONS: JAVA_OPTIONS, UI: "false"}
    for name in ("spark.ui.enabled", "spark.ui.port"):
        assert UI not in start_conf(Application({name: "x"}, is_small=True), (), {})
        assert UI not in start_conf(small, {name}, {})


@pytest.mark.parametrize(
    "name", ["spark.driver.extraJavaOptions", "spark.driver.defaultJavaOptions"]
)
def test_java_options_of_a_user_stay_alone(name: str) -> None:
    assert start_conf(Application({name: "-Xss4m"}), (), {}, JARS, ARCHIVE) == {}
    assert start_conf(Application(), {name}, {}, JARS, ARCHIVE) == {}


@pytest.mark.parametrize(
    "variable", ["SPARK_SUBMIT_OPTS", "JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS"]
)
def test_java_options_of_the_environment_stay_alone(variable: str) -> None:
    assert start_conf(Application(), (), {variable: "-XX:+UseG1GC"}, JARS, ARCHIVE) == {}
    assert OPTIONS in start_conf(Application(), (), {variable: ""})


def test_a_class_path_of_a_user_stays_and_the_archive_is_not_used() -> None:
    plain = {OPTIONS: JAVA_OPTIONS}
    assert start_conf(Application({CLASS_PATH: "/a.jar"}), (), {}, JARS, ARCHIVE) == plain
    assert start_conf(Application(), {CLASS_PATH}, {}, JARS, ARCHIVE) == plain
    assert start_conf(Application(class_path="/a.jar"), (), {}, JARS, ARCHIVE) == plain


def test_a_driver_elsewhere_gets_nothing() -> None:
    mode = "spark.submit.deployMode"
    for application, elsewhere in (
        (Application(deploy_mode="cluster", is_small=True), set()),
        (Application({mode: "cluster"}), set()),
        (Application(), {mode}),
        (Application({"spark.remote": "sc://host"}), set()),
    ):
        assert start_conf(application, elsewhere, {}, JARS, ARCHIVE) == {}
    assert start_conf(Application(), (), {"SPARK_REMOTE": "sc://host"}) == {}
    assert start_conf(Application(deploy_mode="client"), {mode}, {}) != {}


def test_a_path_that_spark_would_split_is_not_used() -> None:
    found = start_conf(Application(), (), {}, JARS, Path("/my cache/key.jsa"))
    assert found[OPTIONS] == JAVA_OPTIONS


def test_the_properties_of_sparks_own_files_are_found(tmp_path: Path) -> None:
    conf, other = tmp_path / "conf", tmp_path / "other"
    conf.mkdir()
    other.mkdir()
    lines = "# spark.a 1\n\nspark.b 2\nspark.c=3\n  spark.d : 4\n"
    (conf / "spark-defaults.conf").write_text(lines)
    (other / "spark-defaults.conf").write_text("spark.e 5\n")
    (tmp_path / "more.conf").write_text("spark.f 6\n")
    more = str(tmp_path / "more.conf")
    assert configured_elsewhere({}, tmp_path) == {"spark.b", "spark.c", "spark.d"}
    assert configured_elsewhere({"SPARK_CONF_DIR": str(other)}, tmp_path) == {"spark.e"}
    assert configured_elsewhere({}, None, more) == {"spark.f"}
    assert configured_elsewhere({}, tmp_path / "nowhere") == frozenset()


@pytest.mark.parametrize(
    ("file", "text", "decides"),
    [
        ("spark-env.sh", "export SPARK_SUBMIT_OPTS=-XX:+UseZGC\n", True),
        ("spark-env.sh", "JAVA_HOME=/opt/java\n", True),
        ("spark-env.sh", "SPARK_LOCAL_IP=127.0.0.1\n", False),
        ("java-opts", "-XX:+UseG1GC\n", True),
    ],
)
def test_other_files_of_spark_may_decide_about_java(
    tmp_path: Path, file: str, text: str, decides: bool
) -> None:
    (tmp_path / file).write_text(text)
    found = configured_elsewhere({"SPARK_CONF_DIR": str(tmp_path)}, None)
    assert (OPTIONS in found) is decides


def test_a_deploy_mode_in_sparks_own_file_counts(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text("spark.submit.deployMode cluster\n")
    environment = {"SPARK_CONF_DIR": str(tmp_path)}
    assert not driver_is_here(Application(), None, environment)
    assert driver_is_here(Application(deploy_mode="client"), None, environment)
    assert driver_is_here(Application(), None, {})


def test_a_machine_without_an_archive_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    jar = tmp_path / "iceberg.jar"
    jar.write_bytes(b"")
    for jars in (str(jar), "s3://bucket/iceberg.jar", "nowhere.jar", ""):
        assert start_here(Application(), jars, None, {}) == {OPTIONS: JAVA_OPTIONS}
