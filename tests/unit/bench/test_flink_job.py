"""Without the jars of Flink a benchmark says which are missing and how to get them."""

from pathlib import Path

import pytest

from bench.flink import beside_flink
from bench.flink.flink_job import HOME, JARS, flink_jars

FLUSS_JARS = ("fluss-flink-1.20-0.9.1-incubating.jar", "fluss-flink-tiering-0.9.1-incubating.jar")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(JARS, str(tmp_path))
    monkeypatch.delenv(HOME, raising=False)
    return tmp_path


def test_without_jars_nothing_runs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    beside_flink.run(5_000_000)
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("beside_flink: not run: no jars of Flink, Fluss's connector, Fluss's")
    assert f"mvn -q -f bench/flink.xml package -Dinto={folder}" in line


def test_the_missing_ones_are_named(folder: Path) -> None:
    for name in (*FLUSS_JARS[:1], "flink-clients-1.20.3.jar"):
        (folder / name).touch()
    jars, missing = flink_jars()
    assert not jars
    assert missing.startswith("no jars of Fluss's tiering job in ")


def test_an_unpacked_flink_counts(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "flink" / "lib").mkdir(parents=True)
    (tmp_path / "flink" / "lib" / "flink-dist-1.20.3.jar").touch()
    monkeypatch.setenv(HOME, str(tmp_path / "flink"))
    for name in FLUSS_JARS:
        (folder / name).touch()
    jars, missing = flink_jars()
    assert not missing
    assert [jar.name for jar in jars] == ["flink-dist-1.20.3.jar", *FLUSS_JARS]
