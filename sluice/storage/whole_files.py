"""Writes a small file that appears under its name complete, or not at all."""

from __future__ import annotations

import contextlib
import os
import uuid
from typing import Any

from sluice.storage.azure import AZURE_SCHEMES
from sluice.storage.gcs import GCS_SCHEMES
from sluice.storage.s3 import S3_SCHEMES


def write_whole(filesystem: Any, path: str, content: bytes, *, private: bool = False) -> None:
    """Writes a file, which appears under its name complete or not at all.

    :param filesystem: as of :func:`sluice.storage.fsspec_file_system`.
    :param private: on a local disk, only this user can read the file.
    :raises OSError: from the file system, with its path.
    """
    arrow = getattr(filesystem, "fs", None)
    store = getattr(arrow, "type_name", "").removeprefix("py::")
    if store in S3_SCHEMES | GCS_SCHEMES:  # an object appears once it is complete
        filesystem.pipe_file(path, content)
        return
    if store not in AZURE_SCHEMES:  # objects need no folder
        filesystem.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
    temporary = f"{path}.{uuid.uuid4().hex}.tmp"
    if private and "file" in filesystem.protocol:
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    try:
        filesystem.pipe_file(temporary, content)
        _move(filesystem, temporary, path)
    except BaseException:
        with contextlib.suppress(Exception):  # the first error counts
            filesystem.rm_file(temporary)
        raise


def _move(filesystem: Any, temporary: str, path: str) -> None:
    """pyarrow shows an object of Azure empty before it has its content, so one is moved there, too.

    It moves only where the account has a hierarchical namespace. Azure's copy is complete at once.
    """
    try:
        filesystem.mv(temporary, path)
    except NotImplementedError:
        filesystem.fs.copy_file(temporary, path)  # fsspec's own copy moves, too
        filesystem.rm_file(temporary)
