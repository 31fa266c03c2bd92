"""File systems of the lake: pyarrow's own first, any other through fsspec."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping

import fsspec
import pyarrow as pa
from pyarrow import fs

_S3_SCHEMES = ("s3", "s3a", "s3n")
# Iceberg's own catalog properties of S3, and pyarrow's names for them.
_S3_OPTIONS = {
    "s3.endpoint": "endpoint_override",
    "s3.access-key-id": "access_key",
    "s3.secret-access-key": "secret_key",
    "s3.session-token": "session_token",
    "client.region": "region",
    "s3.region": "region",
}


def resolve(uri: str, properties: Mapping[str, str]) -> tuple[fs.FileSystem, str]:
    """The file system of a URI as Iceberg writes it, and the path on it.

    :raises OSError, ValueError: if no library here knows the scheme.
    """
    scheme, colon, rest = uri.partition(":")
    if not colon or "/" in scheme:
        return fs.LocalFileSystem(), uri
    if scheme == "file":
        return fs.LocalFileSystem(), "/" + rest.lstrip("/")
    # Paths are taken as they stand: Iceberg never decodes the %23 of a partition's name.
    authority, _, path = rest.removeprefix("//").partition("/")
    if scheme in _S3_SCHEMES:
        return fs.S3FileSystem(**s3_options(properties)), f"{authority}/{path}"
    try:
        found, root = fs.FileSystem.from_uri(f"{scheme}://{authority}/")
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        other, path = fsspec.core.url_to_fs(uri)
        return fs.PyFileSystem(fs.FSSpecHandler(other)), path
    return found, f"{root.rstrip('/')}/{path}"


def s3_options(properties: Mapping[str, str]) -> dict[str, object]:
    """Arguments for pyarrow's S3FileSystem; what is not set comes from the environment."""
    options: dict[str, object] = {
        ours: properties[theirs] for theirs, ours in _S3_OPTIONS.items() if theirs in properties
    }
    if properties.get("s3.path-style-access") == "false":
        options["force_virtual_addressing"] = True
    return options


def renames(filesystem: fs.FileSystem) -> bool:
    """Whether a file should be written aside and renamed: elsewhere its close makes it appear."""
    return filesystem.type_name in ("local", "hdfs")


def sync(filesystem: fs.FileSystem, path: str) -> None:
    """Asks a local disk to keep the file: a commit that names it must not outlive it."""
    if filesystem.type_name != "local":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def delete(uri: str, properties: Mapping[str, str]) -> None:
    """Deletes one file; that it is gone already is fine.

    :raises OSError: from the file system, with its path.
    """
    filesystem, path = resolve(uri, properties)
    with contextlib.suppress(FileNotFoundError):
        filesystem.delete_file(path)
