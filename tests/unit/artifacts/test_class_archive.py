"""The name of an archive follows Java and its jars, and a damaged one is not found."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sluice.artifacts.class_archive import (
    KEPT_MAX,
    archive_folder,
    archive_key,
    as_class_path,
    find_archive,
    keep_archive,
)

CONTENT = b"classes" * 1000


@pytest.fixture
def java(tmp_path: Path) -> Path:
    program = tmp_path / "jdk/bin/java"
    library = tmp_path / "jdk/lib/server/libjvm.so"
    for path in (program, library, tmp_path / "spark/core.jar", tmp_path / "iceberg.jar"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"1")
    return program


def made(folder: Path, content: bytes = CONTENT) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "made.tmp"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    "changed", ["jdk/bin/java", "jdk/lib/server/libjvm.so", "spark/core.jar", "iceberg.jar"]
)
def test_another_java_or_jar_has_another_key(tmp_path: Path, java: Path, changed: str) -> None:
    jars = (tmp_path / "iceberg.jar",)
    key = archive_key(java, tmp_path / "spark", jars)
    assert archive_key(java, tmp_path / "spark", jars) == key
    (tmp_path / changed).write_bytes(b"22")
    assert archive_key(java, tmp_path / "spark", jars) != key


def test_the_layers_of_an_image_keep_the_key(tmp_path: Path, java: Path) -> None:
    """They may keep a file's time by the second only."""
    jar = tmp_path / "iceberg.jar"
    os.utime(jar, ns=(0, 1_700_000_000_987_654_321))
    key = archive_key(java, tmp_path / "spark", (jar,))
    os.utime(jar, ns=(0, 1_700_000_000_000_000_000))
    assert archive_key(java, tmp_path / "spark", (jar,)) == key
    os.utime(jar, (0, 1_700_000_001))
    assert archive_key(java, tmp_path / "spark", (jar,)) != key


def test_an_archive_is_found_by_its_key(tmp_path: Path) -> None:
    folder = tmp_path / "archives"
    kept = keep_archive(made(folder), folder, "key1")
    assert kept.read_bytes() == CONTENT
    assert find_archive(folder, "key1") == kept
    assert find_archive(folder, "key2") is None
    assert find_archive(tmp_path / "nowhere", "key1") is None


@pytest.mark.parametrize("damaged", [CONTENT[:-1], CONTENT + b"x", b"", b"X" + CONTENT[1:]])
def test_a_damaged_archive_is_not_found(tmp_path: Path, damaged: bytes) -> None:
    folder = tmp_path / "archives"
    keep_archive(made(folder), folder, "key1").write_bytes(damaged)
    assert find_archive(folder, "key1") is None


def test_a_new_archive_replaces_the_damaged_one(tmp_path: Path) -> None:
    folder = tmp_path / "archives"
    first = keep_archive(made(folder), folder, "key1")
    second = keep_archive(made(folder, b"others"), folder, "key1")
    assert sorted(folder.iterdir()) == [second]
    assert first != second


def test_the_oldest_archives_of_other_jars_are_dropped(tmp_path: Path) -> None:
    folder = tmp_path / "archives"
    for number in range(KEPT_MAX + 2):
        os.utime(keep_archive(made(folder), folder, f"key{number}"), (number, number))
    left = {path.name.partition("-")[0] for path in folder.iterdir()}
    assert left == {f"key{number}" for number in range(2, KEPT_MAX + 2)}


def test_only_files_of_this_machine_are_a_class_path(tmp_path: Path) -> None:
    one, two = tmp_path / "1.jar", tmp_path / "2.jar"
    one.write_bytes(b"")
    two.write_bytes(b"")
    assert as_class_path([f"file://{one}", f" {two} ", ""]) == (one, two)
    assert as_class_path([str(one), "s3://bucket/2.jar"]) == ()
    assert as_class_path([str(one), str(tmp_path / "3.jar")]) == ()


def test_a_user_without_a_home_has_no_archives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)

    def no_home() -> Path:
        raise RuntimeError("no home directory")

    monkeypatch.setattr(Path, "home", no_home)
    assert archive_folder() is None
