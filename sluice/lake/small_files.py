"""Reads and writes small files in a lake table's metadata folder."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

import pyarrow as pa

from sluice.errors import LakeNotWritable
from sluice.lake import storage
from sluice.storage import file_system


def write_file(uri: str, content: bytes, properties: Mapping[str, str]) -> None:
    """Writes a file, which appears under its name once it is complete.

    :param properties: the catalog's properties, which configure access to its storage.
    :raises LakeNotWritable: the storage refuses, or is full.
    """
    with _errors(f"write {uri}"):
        filesystem, final = file_system(uri, properties)
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


def read_file(uri: str, bytes_max: int, properties: Mapping[str, str]) -> bytes | None:
    """The first ``bytes_max`` bytes of a file; None if it does not exist.

    :raises LakeNotWritable: the storage cannot be read.
    """
    with _errors(f"read {uri}"):
        filesystem, path = file_system(uri, properties)
        try:
            with filesystem.open_input_stream(path) as source:
                content: bytes = source.read(bytes_max)
                return content
        except FileNotFoundError:
            return None


@contextmanager
def _errors(doing: str) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException, ValueError, ImportError) as error:
        raise LakeNotWritable(f"{doing}: {error}") from error
