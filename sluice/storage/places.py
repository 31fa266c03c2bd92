"""The file system of a URI: a local disk, S3, GCS, Azure, HDFS, others through fsspec."""

from __future__ import annotations

from collections.abc import Mapping

import fsspec
from fsspec.implementations.arrow import ArrowFSWrapper
from fsspec.registry import known_implementations
from pyarrow import fs

from sluice.errors import NoFileSystem
from sluice.masking import mask
from sluice.storage.azure import (
    AZURE_SCHEMES,
    AzurePlace,
    azure_file_system,
    azure_options,
    refuse_azure,
)
from sluice.storage.gcs import GCS_SCHEMES, gcs_file_system, gcs_options, refuse_gcs
from sluice.storage.hdfs import HDFS_SCHEMES, hdfs_file_system
from sluice.storage.s3 import S3_SCHEMES, refuse_s3, s3_file_system, s3_options
from sluice.storage.timeouts import DEFAULT_TIMEOUTS, StorageTimeouts

_ARROW_SCHEMES = S3_SCHEMES | GCS_SCHEMES | AZURE_SCHEMES | HDFS_SCHEMES
OBJECT_STORE_SCHEMES = S3_SCHEMES | GCS_SCHEMES | AZURE_SCHEMES
"""Stores without folders. A file appears when it is closed; on Azure it is there before, empty."""


def file_system(
    uri: str, options: Mapping[str, str], timeouts: StorageTimeouts = DEFAULT_TIMEOUTS
) -> tuple[fs.FileSystem, str]:
    """The file system of a URI, and the path on it; sends no request yet.

    Paths are not decoded: a %23 in a partition's name is part of the path.

    :raises ConfigurationError: as of :func:`check_storage`; or hdfs without Hadoop's library.
    :raises NoFileSystem: as of :func:`check_scheme`.
    """
    scheme, authority, path = _parts(uri)
    check_storage(uri, options)
    if not scheme:
        return fs.LocalFileSystem(), path
    if scheme in S3_SCHEMES:
        found = s3_file_system(s3_options(options, authority), timeouts)
        return found, f"{authority}/{path}"
    if scheme in GCS_SCHEMES:
        return gcs_file_system(gcs_options(options), timeouts), f"{authority}/{path}"
    if scheme in AZURE_SCHEMES:
        place = AzurePlace.of(uri)
        return azure_file_system(azure_options(options, place)), f"{place.container}/{path}"
    if scheme in HDFS_SCHEMES:
        return hdfs_file_system(scheme, authority, options), f"/{path}"
    other, path = fsspec.core.url_to_fs(uri)
    return fs.PyFileSystem(fs.FSSpecHandler(other)), path


def fsspec_file_system(
    uri: str, options: Mapping[str, str], timeouts: StorageTimeouts = DEFAULT_TIMEOUTS
) -> tuple[fsspec.AbstractFileSystem, str]:
    """Like :func:`file_system`, but returns an fsspec file system, which supports globs.

    :raises ConfigurationError: as of :func:`file_system`, for schemes that pyarrow has.
    :raises ValueError, ImportError: no installed library supports the scheme.
    """
    if _parts(uri)[0] not in _ARROW_SCHEMES:
        found, path = fsspec.core.url_to_fs(uri)
        return found, path
    arrow, path = file_system(uri, options, timeouts)
    return ArrowFSWrapper(arrow, skip_instance_cache=True), path


def root_and_path(uri: str) -> tuple[str, str]:
    """The root of a URI's store, and the path below it.

    All paths below one root have the same file system, if the options are the same.

    :returns: an empty root for a local path.
    """
    scheme, authority, path = _parts(uri)
    return (f"{scheme}://{authority}", path) if scheme else ("", path)


def check_storage(uri: str, options: Mapping[str, str]) -> None:
    """Checks that a URI has a file system that does what the options ask for; opens nothing.

    :raises ConfigurationError: a value is not valid, or pyarrow cannot honour an option.
    :raises NoFileSystem: as of :func:`check_scheme`.
    """
    scheme, authority, _ = _parts(uri)
    check_scheme(uri)
    if scheme in S3_SCHEMES:
        refuse_s3(options, authority)
    elif scheme in GCS_SCHEMES:
        refuse_gcs(options)
    elif scheme in AZURE_SCHEMES:
        refuse_azure(options, AzurePlace.of(uri))


def check_scheme(uri: str) -> None:
    """Checks that there is a file system for a URI's scheme.

    :raises NoFileSystem: there is none; names the package to install, if one is known.
    """
    scheme = _parts(uri)[0]
    if not scheme or scheme in _ARROW_SCHEMES:
        return
    known = known_implementations.get(scheme)
    shown = mask(uri)
    try:
        fsspec.get_filesystem_class(scheme)
    except ImportError as error:
        module = str(known["class"]).partition(".")[0] if known else "fsspec"
        do = str(known["err"]) if known and module == "fsspec" else f"pip install {module}"
        raise NoFileSystem(f"{shown}: no installed package can open {scheme}://: {do}") from error
    except ValueError as error:  # fsspec knows no such scheme
        raise NoFileSystem(
            f"{shown}: no file system has the scheme {scheme}://; use s3://, gs://, abfss://,"
            " hdfs://, a local path, or install an fsspec package for it"
        ) from error


def _parts(uri: str) -> tuple[str, str, str]:
    """Scheme, authority and path; the scheme of a local path is empty."""
    scheme, colon, rest = uri.partition(":")
    if not colon or "/" in scheme:
        return "", "", uri
    if scheme == "file":  # written as file:/path, too
        return "", "", "/" + rest.lstrip("/")
    authority, _, path = rest.removeprefix("//").partition("/")
    return scheme, authority, path
