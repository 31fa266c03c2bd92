"""Reads and writes small files in a lake table's metadata folder."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pyarrow as pa

from sluice.errors import LakeNotWritable
from sluice.lake.storage import operations as storage
from sluice.lake.storage.file_systems import FileSystems


def write_file(uri: str, content: bytes, files: FileSystems) -> None:
    """Writes a file, which appears under its name once it is complete.

    :raises LakeNotWritable: the storage refuses, or is full.
    """
    with storage_errors(f"write {uri}", files):
        filesystem, final = files.open(uri)
        folder, _, name = final.rpartition("/")
        aside = storage.needs_rename(filesystem)
        path = f"{folder}/.{name}.{uuid.uuid4().hex}.tmp" if aside else final
        if aside:
            filesystem.create_dir(folder, recursive=True)
        try:
            with filesystem.open_output_stream(path) as sink:
                sink.write(content)
            storage.sync(filesystem, path)
            if aside:
                filesystem.move(path, final)
        except BaseException:
            if aside:
                with suppress(OSError):
                    filesystem.delete_file(path)
            raise


def read_file(uri: str, bytes_max: int, files: FileSystems) -> bytes | None:
    """The first ``bytes_max`` bytes of a file; None if it does not exist.

    :raises LakeNotWritable: the storage cannot be read.
    """
    with storage_errors(f"read {uri}", files):
        filesystem, path = files.open(uri)
        try:
            with filesystem.open_input_stream(path) as source:
                content: bytes = source.read(bytes_max)
                return content
        except FileNotFoundError:
            return None


@contextmanager
def storage_errors(doing: str, files: FileSystems) -> Iterator[None]:
    """Turns errors of the storage into LakeNotWritable; ``doing`` says what failed."""
    try:
        yield
    except (OSError, pa.ArrowException, ValueError, ImportError) as error:
        raise LakeNotWritable(
            f"{doing}: {type(error).__name__}: {error}{files.trouble()}"
        ) from error
