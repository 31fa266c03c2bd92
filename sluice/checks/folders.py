"""Whether a folder can be written: a small file is written, read and removed."""

from __future__ import annotations

import contextlib
import re
import uuid
from pathlib import Path
from typing import Any

from fsspec.implementations.local import LocalFileSystem

from sluice.checks.findings import Check
from sluice.storage import S3_SCHEMES, Patience, fsspec_file_system

IMPATIENT = Patience(connect_s=2.0, request_s=2.0, tries=3)
"""An S3 that hangs is given up soon: a process does not end before its last request has."""
_CONTENT = b"sluice was here"
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


def work_folder(uri: str, *, is_certain: bool = True) -> Check:
    """The folder for plans and results, reached as :mod:`sluice.rounds.files` reaches it."""
    return Check(
        f"work folder {uri}",
        lambda: write_and_remove(*fsspec_file_system(uri.rstrip("/"), {}, IMPATIENT)),
        "let this user write there, or correct work_uri",
        is_certain,
    )


def write_and_remove(fs: Any, folder: str) -> str:
    """Writes a file into a folder, reads it, and removes it.

    On a local disk the folders that it had to make go, too.

    :param fs: a file system of fsspec.
    :raises Exception: what the storage has against it.
    """
    made = _missing(folder) if isinstance(fs, LocalFileSystem) else []
    name = f"{folder.rstrip('/')}/_sluice-check-{uuid.uuid4().hex}"
    try:
        try:
            _write(fs, folder, name)
        except FileNotFoundError:  # another check has just removed the folder that it had made
            _write(fs, folder, name)
        try:
            if fs.cat_file(name) != _CONTENT:
                raise OSError(f"{name}: what was written is not what is read")
        finally:
            fs.rm_file(name)
    finally:
        for path in made:
            with contextlib.suppress(OSError):  # others have put something into it meanwhile
                path.rmdir()
    return "a file was written, read and removed"


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
