"""The one place that turns a URI and options into a file system: for the lake, for Fluss's remote
storage and for work folders.

Local files, S3 and HDFS through pyarrow, any other scheme through fsspec. Options have the names
that their owners know: Iceberg's (``s3.endpoint``, ``client.region``), Fluss's (``s3.access-key``)
or Hadoop's (``fs.s3a.access.key``, ``hadoop.fs.s3a.access.key``). Nothing is asked of the storage
before a file is opened.
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
    "hdfs needs Hadoop's own library: install Hadoop here and set HADOOP_HOME (or"
    " ARROW_LIBHDFS_DIR, the folder of libhdfs.so), JAVA_HOME, and CLASSPATH to what"
    " 'hadoop classpath --glob' prints"
)


@dataclass(frozen=True, slots=True)
class StorageTimeouts:
    """How long an S3 that does not answer is waited for, one request at a time."""

    connect_s: float = 10.0
    request_s: float = 60.0
    """Without a byte of the answer."""
    attempts_max: int = 4


DEFAULT_TIMEOUTS = StorageTimeouts()


def file_system(
    uri: str, options: Mapping[str, str], timeouts: StorageTimeouts = DEFAULT_TIMEOUTS
) -> tuple[fs.FileSystem, str]:
    """The file system of a URI, and the path on it.

    Paths are taken as they stand: a %23 in a partition's name is part of it.

    :raises ConfigurationError: hdfs without Hadoop's library.
    :raises OSError, ValueError, ImportError: if no library here knows the scheme.
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
    """The same as fsspec has it, for globs: S3 and HDFS through pyarrow, all others its own.

    :raises ConfigurationError: hdfs without Hadoop's library.
    :raises OSError, ValueError, ImportError: if no library here knows the scheme.
    """
    if uri.partition(":")[0] not in S3_SCHEMES | HDFS_SCHEMES:
        found, path = fsspec.core.url_to_fs(uri)
        return found, path
    arrow, path = file_system(uri, options, timeouts)
    return ArrowFSWrapper(arrow, skip_instance_cache=True), path


def s3_options(options: Mapping[str, str]) -> dict[str, object]:
    """Arguments for pyarrow's S3FileSystem; what is not set comes from the environment."""
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
    """Of what ``s3_options`` answers. Nothing is sent yet.

    :raises ConfigurationError: half of the credentials is missing.
    """
    have = {name for name in ("access_key", "secret_key") if name in arguments}
    if len(have) == 1:
        lack = "s3.secret-access-key" if "access_key" in have else "s3.access-key-id"
        raise ConfigurationError(f"S3 credentials: {lack} is missing; give both keys, or none")
    # pyarrow takes keys and region from the environment, the endpoint only through a URI.
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
        # Said so at the first attempt of a process, and as "Prior attempt ... failed" afterwards.
        if any(word in str(error) for word in ("libhdfs", "libjvm")):
            raise ConfigurationError(f"{scheme}://{authority}: {_NO_LIBHDFS}") from error
        raise
