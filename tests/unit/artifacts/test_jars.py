"""How jars are fetched and checked, and what is said when they do not come."""

from __future__ import annotations

import fcntl
import hashlib
from pathlib import Path

import pytest

from sluice.artifacts.jars import Jar, fetch
from sluice.errors import ConfigurationError
from tests.support.harness.java import Pauses, java_that

CONTENT = b"jar\n"
JAR = Jar("org.example", "some", "1.0", hashlib.sha256(CONTENT).hexdigest(), 7)
GIVES = f'for last; do :; done; echo jar > "${{last%/*}}/{JAR.name}"'
"""What Ivy does, in shell: the last argument says where the jar goes."""


def test_names() -> None:
    assert JAR.name == "some-1.0.jar"
    assert JAR.coordinates == "org.example:some:1.0"


def test_a_jar_that_is_there_is_only_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / JAR.name).write_bytes(CONTENT)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    said: list[str] = []
    assert fetch(JAR, tmp_path, said.append) == tmp_path / JAR.name
    assert said == []


def test_a_jar_that_is_there_needs_no_lock(tmp_path: Path) -> None:
    """An image may have it in a folder that its user cannot write to."""
    (tmp_path / JAR.name).write_bytes(CONTENT)
    assert fetch(JAR, tmp_path) == tmp_path / JAR.name
    assert [path.name for path in tmp_path.iterdir()] == [JAR.name]


def test_who_waits_for_another_process_says_so(tmp_path: Path) -> None:
    said: list[str] = []
    with (tmp_path / ".lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)

        def arrives(line: str) -> None:
            said.append(line)
            (tmp_path / JAR.name).write_bytes(CONTENT)
            fcntl.flock(held, fcntl.LOCK_UN)

        assert fetch(JAR, tmp_path, arrives) == tmp_path / JAR.name
    assert said == [f"waiting for another process that is fetching jars to {tmp_path}"]


def test_a_damaged_jar_is_refused(tmp_path: Path) -> None:
    (tmp_path / JAR.name).write_bytes(b"half")
    with pytest.raises(ConfigurationError, match=rf"SHA-256 is .*, not {JAR.sha256}.*delete it"):
        fetch(JAR, tmp_path)


def test_a_fetched_jar_with_another_digest_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java_that(GIVES.replace("echo jar", "echo other"), tmp_path / "home", monkeypatch, version=17)
    with pytest.raises(ConfigurationError, match=r"was fetched with SHA-256 .* deleted"):
        fetch(JAR, tmp_path / "jars", lambda _: None)
    assert [path.name for path in (tmp_path / "jars").iterdir()] == [".lock"]


def test_a_network_that_fails_for_a_moment_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = tmp_path / "asked"
    once = f"[ -e '{asked}' ] || {{ touch '{asked}'; exit 1; }}; {GIVES}"
    java_that(once, tmp_path / "home", monkeypatch, version=17)
    pauses, said = Pauses(), list[str]()
    found = fetch(JAR, tmp_path / "jars", said.append, pauses)
    assert found.read_bytes() == CONTENT
    assert pauses.slept == [5]
    assert said == [f"fetching some-1.0.jar (7 MB, once) to {tmp_path / 'jars'}"]


def test_a_refused_fetch_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = "echo '....... (0kB)'; echo 'Server access error: refused'; exit 1"
    java_that(refused, tmp_path / "home", monkeypatch, version=17)
    pauses = Pauses()
    with pytest.raises(ConfigurationError, match=r"copy it to .*jars.*access error: refused"):
        fetch(JAR, tmp_path / "jars", lambda _: None, pauses)
    assert pauses.slept == [5, 20]


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match=r"some-1\.0\.jar in .*jars: .*Not a dir"):
        fetch(JAR, tmp_path / "file" / "jars", lambda _: None)


def test_without_java_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(
        ConfigurationError, match=r"17 or newer is needed, but JAVA_HOME=.*/nowhere has"
    ):
        fetch(JAR, tmp_path, lambda _: None)


def test_a_java_that_is_too_old_is_named_before_a_fetch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java_that("exit 1", tmp_path / "home", monkeypatch, version=11)
    with pytest.raises(ConfigurationError, match=r"home/bin/java \(from JAVA_HOME\) is Java 11:"):
        fetch(JAR, tmp_path / "jars", lambda _: None)
