"""Makes file systems from URIs and options, for the lake, Fluss's remote storage and work folders.

Local files, S3 and HDFS are accessed through pyarrow, other schemes through fsspec. Options have
the names of Iceberg (``s3.endpoint``, ``client.region``), Fluss (``s3.access-key``) or Hadoop
(``fs.s3a.access.key``, ``hadoop.fs.s3a.access.key``). No request is sent before a file is opened.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

import fsspec
import pyarrow as pa
from fsspec.implementations.arrow import ArrowFSWrapper
from pyarrow import fs

from sluice.errors import ConfigurationError

S3_SCHEMES = frozenset({"s3", "s3a", "s3n"})
HDFS_SCHEMES = frozenset({"hdfs", "viewfs"})

_S3_PREFIXES = ("s3.", "s3a.", "fs.s3a.", "hadoop.fs.s3a.")  # the first that is set counts
_S3_NAMES = {
    "endpoint": "endpoint_override",
    "access-key-id": "access_key",
    "access-key": "access_key",
    "access.key": "access_key",
    "secret-access-key": "secret_key",
    "secret-key": "secret_key",
    "secret.key": "secret_key",
    "session-token": "session_token",
    "session.token": "session_token",
    "region": "region",
    "endpoint.region": "region",
}
_S3_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_PATH_STYLE = ("path-style-access", "path.style.access")
_HADOOP_PREFIX = "hadoop."
_HDFS_PREFIXES = ("dfs.", "fs.defaultFS", "hadoop.")
_NO_LIBHDFS = (
    "hdfs needs Hadoop's native library: install Hadoop on this machine, and set HADOOP_HOME (or"
    " ARROW_LIBHDFS_DIR, the folder of libhdfs.so), JAVA_HOME, and CLASSPATH to the output of"
    " `hadoop classpath --glob`"
)


@dataclass(frozen=True, slots=True)
class StorageTimeouts:
    """Timeouts of single S3 requests, and the number of attempts."""

    connect_s: float = 10.0
    request_s: float = 60.0
    """Seconds without a byte of the response."""
    attempts_max: int = 4


DEFAULT_TIMEOUTS = StorageTimeouts()


def file_system(
    uri: str, options: Mapping[str, str], timeouts: StorageTimeouts = DEFAULT_TIMEOUTS
) -> tuple[fs.FileSystem, str]:
    """The file system of a URI, and the path on it.

    Paths are not decoded: a %23 in a partition's name is part of the path.

    :raises ConfigurationError: hdfs without Hadoop's library.
    :raises OSError, ValueError, ImportError: no installed library supports the scheme.
    """
    scheme, colon, rest = uri.partition(":")
    if not colon or "/" in scheme:
        return fs.LocalFileSystem(), uri
    if scheme == "file":  # written as file:/path, too
        return fs.LocalFileSystem(), "/" + rest.lstrip("/")
    authority, _, path = rest.removeprefix("//").partition("/")
    if scheme in S3_SCHEMES:
        return s3_file_system(s3_options(options), timeouts), f"{authority}/{path}"
    if scheme in HDFS_SCHEMES:
        return _hdfs(scheme, authority, options), f"/{path}"
    try:
        found, root = fs.FileSystem.from_uri(f"{scheme}://{authority}/")
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        other, path = fsspec.core.url_to_fs(uri)
        return fs.PyFileSystem(fs.FSSpecHandler(other)), path
    return found, f"{root.rstrip('/')}/{path}"


def fsspec_file_system(
    uri: str, options: Mapping[str, str], timeouts: StorageTimeouts = DEFAULT_TIMEOUTS
) -> tuple[fsspec.AbstractFileSystem, str]:
    """Like :func:`file_system`, but returns an fsspec file system, which supports globs.

    :raises ConfigurationError: hdfs without Hadoop's library.
    :raises OSError, ValueError, ImportError: no installed library supports the scheme.
    """
    if uri.partition(":")[0] not in S3_SCHEMES | HDFS_SCHEMES:
        found, path = fsspec.core.url_to_fs(uri)
        return found, path
    arrow, path = file_system(uri, options, timeouts)
    return ArrowFSWrapper(arrow, skip_instance_cache=True), path


def s3_options(options: Mapping[str, str]) -> dict[str, object]:
    """Arguments for pyarrow's S3FileSystem; other values come from the environment."""
    found: dict[str, object] = {}
    for prefix in _S3_PREFIXES:
        for theirs, ours in _S3_NAMES.items():
            if value := options.get(prefix + theirs):
                found.setdefault(ours, value)
    if region := options.get("client.region"):
        found["region"] = region
    styles = [
        options[p + name] for p in _S3_PREFIXES for name in _PATH_STYLE if p + name in options
    ]
    if styles and styles[0].lower() == "false":
        found["force_virtual_addressing"] = True
    return found


def s3_file_system(
    arguments: Mapping[str, object], timeouts: StorageTimeouts = DEFAULT_TIMEOUTS
) -> fs.S3FileSystem:
    """Makes an S3 file system from the result of :func:`s3_options`; sends no request yet.

    :raises ConfigurationError: one of the two keys is missing.
    """
    have = {name for name in ("access_key", "secret_key") if name in arguments}
    if len(have) == 1:
        lack = "s3.secret-access-key" if "access_key" in have else "s3.access-key-id"
        raise ConfigurationError(f"S3 credentials: {lack} is missing; set both keys, or neither")
    # pyarrow reads keys and region from the environment, but not the endpoint.
    endpoint = next((os.environ[name] for name in _S3_ENDPOINTS if os.environ.get(name)), None)
    return fs.S3FileSystem(
        **{**({"endpoint_override": endpoint} if endpoint else {}), **arguments},
        connect_timeout=timeouts.connect_s,
        request_timeout=timeouts.request_s,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=timeouts.attempts_max),
    )


def _hdfs(scheme: str, authority: str, options: Mapping[str, str]) -> fs.FileSystem:
    user, _, place = authority.rpartition("@")
    host, _, port = place.partition(":")
    conf = {
        key.removeprefix(_HADOOP_PREFIX): value
        for key, value in options.items()
        if key.startswith(_HDFS_PREFIXES)
    }
    name = f"{scheme}://{host}" if host else "default"
    try:
        return fs.HadoopFileSystem(name, int(port or 0), user=user or None, extra_conf=conf or None)
    except ValueError as error:
        raise ConfigurationError(f"{scheme}://{authority}: {error}") from error
    except OSError as error:
        # The first attempt of a process names it; later ones say "Prior attempt ... failed".
        if any(word in str(error) for word in ("libhdfs", "libjvm")):
            raise ConfigurationError(f"{scheme}://{authority}: {_NO_LIBHDFS}") from error
        raise
