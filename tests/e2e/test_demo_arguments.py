"""The demo's options, and what it refuses before it starts anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from demo import lakes
from demo.__main__ import arguments, main


def test_without_options_the_lake_is_a_folder() -> None:
    assert (arguments([]).catalog, arguments([]).fluss) == ("folder", "embedded")
    assert arguments(["--catalog", "rest"]).catalog == "rest"


def test_an_unknown_catalog_is_named_with_the_known_ones(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        arguments(["--catalog", "hive"])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "argument --catalog: invalid choice: 'hive'" in said
    assert "folder" in said.splitlines()[-1]
    assert "rest" in said.splitlines()[-1]


def test_a_rest_catalog_with_a_real_fluss_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        arguments(["--catalog", "rest", "--fluss", "real"])
    assert ended.value.code == 2
    assert "--catalog rest needs --fluss embedded, not real" in capsys.readouterr().err


def test_the_help_names_both_catalogs(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        arguments(["--help"])
    said = capsys.readouterr().out
    assert "--catalog {folder,rest}" in said
    assert "Java 21" in said


def test_a_missing_java_is_told_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lakes, "JAVA_MIN", 999)
    folder = tmp_path / "kept"
    assert main(["--catalog", "rest", "--keep", str(folder)]) == 2
    said = capsys.readouterr().out
    assert said.startswith("--catalog rest: no Java 999 or newer in JAVA_HOME")
    assert "install one" in said
    assert not folder.exists()


def test_a_lake_has_no_keys_and_fluss_s_names() -> None:
    lake = lakes.Lake({"type": "rest", "uri": "http://127.0.0.1:1/"}, (Path("/a.jar"), Path("/b")))
    assert lake.datalake == {
        "format": "iceberg",
        "iceberg.type": "rest",
        "iceberg.uri": "http://127.0.0.1:1/",
    }
    assert lake.jar_setting == {"AIRFLOW__SLUICE__JARS": "/a.jar,/b"}
    assert lakes.Lake({}).jar_setting == {}
