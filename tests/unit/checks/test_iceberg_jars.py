"""Whether Spark finds Iceberg, in the jars that it is given or in its own."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from sluice.artifacts.classes import has_class, read_central_directory
from sluice.artifacts.iceberg import CATALOGS, FENCE, RUNTIMES
from sluice.checks.findings import run_check
from sluice.checks.iceberg_jars import iceberg_jars
from sluice.errors import ConfigurationError
from tests.support.harness.java import jar_of

WANTED = RUNTIMES["4.0"].name


@pytest.fixture
def submit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """spark-submit of a Spark 4.0 that has no Iceberg."""
    home = tmp_path / "spark"
    (home / "bin").mkdir(parents=True)
    (home / "bin/spark-submit").write_text("#!/bin/sh\n")
    (home / "bin/spark-submit").chmod(0o755)
    jar_of(home / "jars/spark-core_2.13-4.0.2.jar", "org.apache.spark.SparkContext")
    for variable in ("SPARK_HOME", "SPARK_CONF_DIR", "SPARK_DIST_CLASSPATH"):
        monkeypatch.delenv(variable, raising=False)
    return str(home / "bin/spark-submit")


def looked(
    jars: str, submit: str, properties: Iterable[str] = (), driver_is_here: bool = True
) -> tuple[bool | None, str]:
    found = run_check(iceberg_jars(jars, submit, "fix it", properties, driver_is_here))
    return found.ok, found.seen


def test_a_jar_with_iceberg(submit: str, tmp_path: Path) -> None:
    other = jar_of(tmp_path / "driver.jar", "org.postgresql.Driver")
    core = jar_of(tmp_path / "any name.jar", CATALOGS, FENCE)
    for given in (core, f"{other}, {core}", f"file://{core}"):
        assert looked(given, submit) == (True, given)
    halves = jar_of(tmp_path / "a.jar", CATALOGS), jar_of(tmp_path / "b.jar", FENCE)
    assert looked(",".join(halves), submit)[0]
    assert [looked(half, submit)[0] for half in halves] == [False, False]


def test_a_jar_behind_something_else_or_with_a_comment(submit: str, tmp_path: Path) -> None:
    path = Path(jar_of(tmp_path / "iceberg.jar", CATALOGS, FENCE))
    plain = path.read_bytes()
    path.write_bytes(b"#!/bin/sh\n" * 100 + plain)
    assert looked(str(path), submit)[0]
    path.write_bytes(plain[:-2] + (60_000).to_bytes(2, "little") + b"x" * 60_000)
    assert looked(str(path), submit)[0]


def test_jars_without_iceberg(submit: str, tmp_path: Path) -> None:
    other = jar_of(tmp_path / "commons-io.jar", "org.apache.commons.io.IOUtils")
    folder = tmp_path / "spark/jars"
    assert looked(other, submit) == (
        False,
        f"no Iceberg in {other}, nor in Spark's own {folder}: add {WANTED}; fix it",
    )
    assert looked("", submit) == (
        False,
        "no Iceberg in the options jars and packages, which are empty, nor in Spark's own"
        f" {folder}: add"
        f" {WANTED}; fix it",
    )
    old = jar_of(tmp_path / "old.jar", CATALOGS)
    assert looked(old, submit) == (
        False,
        f"no Iceberg new enough for Sluice in {old}, nor in Spark's own {folder}: add {WANTED};"
        " fix it",
    )


def test_what_is_no_jar(submit: str, tmp_path: Path) -> None:
    text = tmp_path / "notes.jar"
    for content in (b"", b"iceberg", b"PK\x05\x06"):
        text.write_bytes(content)
        assert looked(str(text), submit) == (
            False, f"{text} is not a jar: it does not end like a zip file; fix it",
        )  # fmt: skip
    with pytest.raises(ConfigurationError, match="is not a jar"):
        read_central_directory(text)
    assert looked(f"{tmp_path}", submit)[1].startswith(f"{tmp_path} is a folder: give a file")
    assert looked(f"s3://b/x.jar,{text}", submit)[0] is False
    assert looked("s3://b/x.jar", submit) == (None, "only Spark can check s3://b/x.jar")


def test_iceberg_that_spark_brings(
    submit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What works in a round is not refused: whoever may bring Iceberg is named."""
    other = jar_of(tmp_path / "driver.jar", "org.postgresql.Driver")
    none = f"no Iceberg in {other}"
    for properties in (["spark.jars.packages"], ["spark.driver.extraClassPath"], ["spark.jars"]):
        assert looked(other, submit, properties) == (
            None,
            f"{none}: it may come from {properties[0]}",
        )
    assert looked(other, submit, ["spark.executor.memory"])[0] is False
    assert looked(other, submit, driver_is_here=False) == (
        None, f"{none}: the driver's Spark, on the cluster, must provide it",
    )  # fmt: skip
    assert looked(other, "/nowhere/spark-submit")[0] is None
    conf = tmp_path / "spark/conf"
    for name, text in (
        ("spark-defaults.conf", "spark.jars.packages org.example:lake:1"),
        ("spark-env.sh", "export SPARK_DIST_CLASSPATH=/opt/lake/*"),
    ):
        conf.mkdir(exist_ok=True)
        (conf / name).write_text(f"# a comment\n{text}\n")
        assert looked(other, submit) == (None, f"{none}: it may come from {conf / name}")
        (conf / name).write_text("# spark.jars.packages\nspark.executor.cores 2\n")
        assert looked(other, submit)[0] is False
    with monkeypatch.context() as patch:
        patch.setenv("SPARK_DIST_CLASSPATH", "/opt/lake/*")
        assert looked(other, submit) == (None, f"{none}: it may come from SPARK_DIST_CLASSPATH")
    (tmp_path / "spark/jars/broken.jar").touch()
    jar_of(tmp_path / "spark/jars/lake.jar", CATALOGS, FENCE)
    for given in ("", other):
        assert looked(given, submit) == (
            True,
            f"Iceberg is among Spark's own jars in {tmp_path}/spark/jars",
        )


def test_a_script_around_spark_submit_may_bring_it(
    submit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    jar_of(tmp_path / "spark/jars/py4j-0.10.9.9.jar", "py4j.GatewayServer")
    assert looked("", submit)[0] is False
    script = tmp_path / "submit-prod"
    script.write_text(f'#!/bin/sh\nexec {submit} --packages org.example:lake:1 "$@"\n')
    script.chmod(0o755)
    ok, said = looked("", str(script))
    assert ok is None
    assert said.endswith(f": {script} must provide it")


def test_the_directory_names_every_class(tmp_path: Path) -> None:
    directory = read_central_directory(Path(jar_of(tmp_path / "x.jar", "a.b.C", "a.b.D$E")))
    assert has_class(directory, "a.b.C")
    assert not has_class(directory, "a.b.D")
