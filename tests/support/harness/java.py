"""Stand-ins for the program java and for jars."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest


def java_that(
    does: str, home: Path, monkeypatch: pytest.MonkeyPatch, *, version: int | None = None
) -> None:
    """Makes JAVA_HOME a folder whose ``java`` is a shell script.

    :param version: what ``java -version`` prints; None: the script answers that, too.
    """
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    answers = f"""[ "$1" = -version ] && echo 'openjdk version "{version}"' && exit\n"""
    java.write_text(f"#!/bin/sh\n{answers if version else ''}{does}\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(home))


class Pauses:
    """A clock that stands still; ``slept``: how long somebody would have slept, in seconds."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def now_ms(self) -> int:
        return 0

    def monotonic_s(self) -> float:
        return 0.0

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


def jar_of(path: Path, *classes: str) -> str:
    """Makes a jar whose classes are empty; its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as jar:
        for name in classes:
            jar.writestr(name.replace(".", "/") + ".class", b"")
    return str(path)
