"""Checks that a folder is writable: writes, reads and deletes a small file."""

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
from sluice.errors import ConfigurationError
from sluice.storage import OBJECT_STORE_SCHEMES, StorageTimeouts, fsspec_file_system

SHORT_TIMEOUTS = StorageTimeouts(connect_s=2.0, request_s=2.0, attempts_max=3)
"""Short, because a process cannot exit before its last S3 request has ended."""
_CONTENT = b"sluice was here"
_TRIES_S = 2.0
"""Seconds to retry if other checks write and delete the same file at the same time."""
_PAUSE_S = 0.01
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")


def scheme_of(uri: str) -> str:
    """The scheme of a URI in lower case; empty for a path."""
    found = _SCHEME.match(uri)
    return found[1].lower() if found else ""


def local_path(uri: str) -> str | None:
    """The local path of a path or a ``file:`` URI; None for other URIs."""
    scheme = scheme_of(uri)
    if scheme == "file":
        return "/" + uri.partition(":")[2].lstrip("/")
    return None if scheme else uri


def work_folder_check(uri: str, *, is_certain: bool = True) -> Check:
    """Checks the folder for plans and results, accessed as :mod:`sluice.rounds.records` does."""
    return Check(
        f"work folder {uri}",
        lambda: write_and_remove(*fsspec_file_system(uri.rstrip("/"), {}, SHORT_TIMEOUTS)),
        "let this user write there, or correct work_uri",
        is_certain,
    )


def write_and_remove(fs: Any, folder: str) -> str | NotChecked:
    """Writes a file into a folder, reads it, and deletes it.

    The file always has the same name, so at most one stays if it cannot be deleted. On a local
    disk, folders that the check had to create are deleted, too.

    :param fs: an fsspec file system.
    :raises Exception: any error of the storage.
    """
    is_local = isinstance(fs, LocalFileSystem)
    if is_local and Path(folder).is_file():
        raise ConfigurationError(f"{folder} is a file")
    made = _missing(folder) if is_local else []
    name = f"{folder.rstrip('/')}/_sluice-check-{os.getuid()}"
    kept = ""
    try:
        try:
            _write_and_read(fs, folder, name)
        finally:
            kept = _remove(fs, name)
    finally:
        for path in made:
            with contextlib.suppress(OSError):  # another process has put a file into it
                path.rmdir()
    if kept:
        return NotChecked(f"a file was written and read, but could not be deleted: {name}: {kept}")
    return "a file was written, read and removed"


def _write_and_read(fs: Any, folder: str, name: str) -> None:
    """Writes and reads the file; retries if another check interferes.

    :raises Exception: any error of the storage.
    """
    failure: OSError | None = None
    until = time.monotonic() + _TRIES_S
    while failure is None or time.monotonic() < until:
        if failure is not None:
            time.sleep(random.random() * _PAUSE_S)
        try:
            _write(fs, folder, name)
            found = fs.cat_file(name)
        except (FileExistsError, FileNotFoundError) as error:
            failure = error  # another check has just deleted the file or its folder
            continue
        if found == _CONTENT:
            return
        failure = OSError(f"{name}: the content read differs from the content written")
        if not _CONTENT.startswith(found):
            break  # else another check is about to write it
    assert failure is not None
    raise failure


def _remove(fs: Any, name: str) -> str:
    """Deletes the file; returns why it could not, else an empty text."""
    try:
        fs.rm_file(name)
    except FileNotFoundError:
        return ""
    except Exception as error:  # storage libraries raise errors of their own
        return f"{type(error).__name__}: {error}"
    return ""


def _write(fs: Any, folder: str, name: str) -> None:
    if not _is_object_store(fs):  # objects need no folder
        fs.makedirs(folder, exist_ok=True)
    fs.pipe_file(name, _CONTENT)


def _is_object_store(fs: Any) -> bool:
    arrow = getattr(fs, "fs", None)
    return getattr(arrow, "type_name", "").removeprefix("py::") in OBJECT_STORE_SCHEMES


def _missing(folder: str) -> list[Path]:
    """The folder and its parents that do not exist, the deepest first."""
    path = Path(folder)
    return [each for each in (path, *path.parents) if not each.exists()]
