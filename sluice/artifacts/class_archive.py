"""Finds the class-data archive (Java's AppCDS) with which Spark's driver starts in half the time.

An archive belongs to one Java and one class path, and Java refuses it for others. Java does not
notice damage: a truncated archive ends it with SIGBUS. The file's name therefore has a key of Java
and class path, and the SHA-256 of the content, which is checked before each use.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from sluice.artifacts.jars import sha256
from sluice.cache_folder import cache_folder
from sluice.errors import ConfigurationError

JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+ExitOnOutOfMemoryError"
"""The simple compiler and collector. An archive is read under the collector it was written with.

A driver that is out of memory must end. Otherwise only some of its threads do: calls of Java never
return, and tables of the same application fail that need little memory.
"""
KEPT_MAX = 3
"""Archives in a folder, 90 MB each; one for each Java and Spark that was used last."""
_SILENT = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"
"""Java would otherwise print to standard output that it refuses an archive."""
_SUFFIX = ".jsa"
_KEY_DIGITS = 16


def archive_folder() -> Path | None:
    """The folder of archives below the user's cache folder; None if the user has no home."""
    try:
        return cache_folder() / "spark-start"
    except ConfigurationError:
        return None


def archive_key(java: Path, spark_jars: Path, class_path: Sequence[Path]) -> str:
    """The part of an archive's name that identifies Java, Spark's jars and those before them.

    :raises OSError: one of the files does not exist.
    """
    known = hashlib.sha256(JAVA_OPTIONS.encode())
    home = java.resolve().parent.parent
    of_java = [path for path in (java.resolve(), home / "lib/server/libjvm.so") if path.exists()]
    for path in (*of_java, *class_path, *sorted(spark_jars.glob("*.jar"))):
        found = path.stat()
        # Whole seconds, because the layers of an image may keep no more.
        known.update(f"{path} {found.st_size} {int(found.st_mtime)}\n".encode())
    return known.hexdigest()[:_KEY_DIGITS]


def java_program(command: str) -> Path | None:
    """The file of a java command, as spark-submit would start it."""
    found = shutil.which(command)
    return Path(found) if found else None


def find_archive(folder: Path, key: str) -> Path | None:
    """The undamaged archive of a key; None if there is none."""
    try:
        for path in sorted(folder.glob(f"{key}-*{_SUFFIX}")):
            if sha256(path) == path.stem.removeprefix(f"{key}-"):
                return path
    except OSError:  # without the archive, the start takes longer
        return None
    return None


def keep_archive(made: Path, folder: Path, key: str) -> Path:
    """Moves a new archive to its place, replaces those of its key, and drops the oldest others.

    :raises OSError: the folder cannot be written.
    """
    target = folder / f"{key}-{sha256(made)}{_SUFFIX}"
    made.chmod(0o644)
    made.replace(target)
    others = [path for path in folder.glob(f"*{_SUFFIX}") if path != target]
    replaced = [path for path in others if path.name.startswith(f"{key}-")]
    newest_first = sorted(set(others) - set(replaced), key=_modified, reverse=True)
    for old in (*replaced, *newest_first[KEPT_MAX - 1 :]):
        old.unlink(missing_ok=True)
    return target


def options_to_read(archive: Path | None) -> str:
    """Java's options for a start, with an archive or without."""
    if archive is None or _is_split(str(archive)):
        return JAVA_OPTIONS
    return f"{JAVA_OPTIONS} -Xshare:auto -XX:SharedArchiveFile={archive} {_SILENT}"


def options_to_write(target: Path) -> str:
    """Java's options for a run that writes an archive when it ends."""
    return f"{JAVA_OPTIONS} -XX:ArchiveClassesAtExit={target}"


def as_class_path(jars: Iterable[str]) -> tuple[Path, ...]:
    """Jar files on this machine; empty if one of them is not."""
    paths = tuple(Path(jar.strip().removeprefix("file://")) for jar in jars if jar.strip())
    return paths if all(path.is_absolute() and path.is_file() for path in paths) else ()


def _modified(path: Path) -> float:
    return path.stat().st_mtime if path.exists() else 0.0


def _is_split(text: str) -> bool:
    """Whether Spark would split a word of Java's options in two, or read it in another way."""
    return any(sign.isspace() or sign in "\"'\\" for sign in text)
