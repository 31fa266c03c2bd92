"""The Java of tests: options for the programs that it knows, and not a word of its own."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from sluice.artifacts.java import java
from tests.support.harness import quick_java


def flags(command: str, *program: str) -> tuple[set[str], str]:
    """The options that Java runs a program with, and what it says on standard error."""
    done = subprocess.run(
        [command, "-XX:+PrintCommandLineFlags", *program],
        capture_output=True,
        text=True,
        timeout=60,
    )
    return set(done.stdout.partition("\n")[0].split()), done.stderr


def test_known_programs_start_quickly_and_others_as_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)  # it may be the quick one already
    quick_java._write_home(tmp_path)
    quick = str(tmp_path / "bin/java")
    launcher = ("-cp", str(tmp_path), quick_java.PROGRAMS[0])
    found, said = flags(quick, *launcher)
    assert {"-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"} <= found
    usual = str(Path(shutil.which(java()) or "").resolve())
    # Without an archive, or with an old one, it is as silent as the real one.
    assert said == flags(usual, *launcher)[1]
    assert flags(quick, "-version") == flags(usual, "-version")
