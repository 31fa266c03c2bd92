"""Whether a folder can be written: a small file is written, read and removed."""

from __future__ import annotations

import contextlib
import os
import random
import re
import time
from pathlib import Path
from typing import Any

from fsspec.implementations.local import LocalFileSystem

from sluice.checks.findings import Check, NotChecked
from sluice.storage import S3_SCHEMES, StorageTimeouts, fsspec_file_system

SHORT_TIMEOUTS = StorageTimeouts(connect_s=2.0, request_s=2.0, attempts_max=3)
"""An S3 that hangs is given up soon: a process does not end before its last request has."""
_CONTENT = b"sluice was here"
_TRIES_S = 2.0
"""So long a file is tried again that other checks write and remove meanwhile."""
_PAUSE_S = 0.01
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")


def scheme_of(uri: str) -> str:
    """The scheme, in small letters; empty for a path."""
    found = _SCHEME.match(uri)
    return found[1].lower() if found else ""


def local_path(uri: str) -> str | None:
    """The path on this machine that a path or a ``file:`` URI names; None for all else."""
    scheme = scheme_of(uri)
    if scheme == "file":
        return "/" + uri.partition(":")[2].lstrip("/")
    return None if scheme else uri


def work_folder_check(uri: str, *, is_certain: bool = True) -> Check:
    """The folder for plans and results, reached as :mod:`sluice.rounds.files` reaches it."""
    return Check(
        f"work folder {uri}",
        lambda: write_and_remove(*fsspec_file_system(uri.rstrip("/"), {}, SHORT_TIMEOUTS)),
        "let this user write there, or correct work_uri",
        is_certain,
    )


def write_and_remove(fs: Any, folder: str) -> str | NotChecked:
    """Writes a file into a folder, reads it, and removes it.

    Its name is the same each time, so that not more than one stays where nobody may remove it.
    On a local disk the folders that the check had to make go, too.

    :param fs: a file system of fsspec.
    :raises Exception: what the storage has against it.
    """
    made = _missing(folder) if isinstance(fs, LocalFileSystem) else []
    name = f"{folder.rstrip('/')}/_sluice-check-{os.getuid()}"
    kept = ""
    try:
        try:
            _write_and_read(fs, folder, name)
        finally:
            kept = _remove(fs, name)
    finally:
        for path in made:
            with contextlib.suppress(OSError):  # others have put something into it meanwhile
                path.rmdir()
    if kept:
        return NotChecked(f"a file was written and read, but not removed: {name}: {kept}")
    return "a file was written, read and removed"


def _write_and_read(fs: Any, folder: str, name: str) -> None:
    """:raises Exception: what the storage has against it."""
    failure: OSError | None = None
    until = time.monotonic() + _TRIES_S
    while failure is None or time.monotonic() < until:
        if failure is not None:
            time.sleep(random.random() * _PAUSE_S)
        try:
            _write(fs, folder, name)
            found = fs.cat_file(name)
        except (FileExistsError, FileNotFoundError) as error:
            failure = error  # another check has just removed the file, or a folder that it had made
            continue
        if found == _CONTENT:
            return
        failure = OSError(f"{name}: what was written is not what is read")
        if not _CONTENT.startswith(found):
            break  # else another check is about to write it
    assert failure is not None
    raise failure


def _remove(fs: Any, name: str) -> str:
    """Why the file stays; empty if it is gone. Some storages let nobody delete."""
    try:
        fs.rm_file(name)
    except FileNotFoundError:
        return ""
    except Exception as error:  # storage libraries raise errors of their own
        return f"{type(error).__name__}: {error}"
    return ""


def _write(fs: Any, folder: str, name: str) -> None:
    if not _is_s3(fs):  # an object is there once it is written; it needs no folder
        fs.makedirs(folder, exist_ok=True)
    fs.pipe_file(name, _CONTENT)


def _is_s3(fs: Any) -> bool:
    arrow = getattr(fs, "fs", None)
    return getattr(arrow, "type_name", "") in S3_SCHEMES


def _missing(folder: str) -> list[Path]:
    """The folder and those above it that are not there, the deepest first."""
    path = Path(folder)
    return [each for each in (path, *path.parents) if not each.exists()]
