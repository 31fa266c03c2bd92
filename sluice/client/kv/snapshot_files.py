"""Finds the files of a KV snapshot and downloads all of them.

See docs/fluss/remote-storage.md#kv-snapshots
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from sluice.client.connection.connection import Connection
from sluice.client.connection.remote_files import RemoteFiles
from sluice.errors import ConfigurationError, CorruptMessage, KvSnapshotNotExist, StorageError
from sluice.formats.kv.snapshot_metadata import METADATA_FILE, kv_snapshot_from_json
from sluice.model import TableBucket
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.messages.table_paths import bucket_ids

_LOG = logging.getLogger(__name__)

_PIECE_BYTES = 4 * 1024 * 1024
_AT_ONCE = 4
_TRIES_MAX = 3
_METADATA_BYTES_MAX = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    """A file of a snapshot: its remote location and its name in the RocksDB folder."""

    uri: str
    local_name: str
    size_bytes: int | None = None
    """None if unknown."""


@dataclass(frozen=True, slots=True)
class SnapshotFiles:
    """The files of a snapshot as the cluster reports them."""

    name: str
    """Name of the snapshot in error messages."""
    log_offset: int
    """The snapshot contains all changes of the bucket's log below this offset."""
    files: tuple[SnapshotFile, ...]


def snapshot_files(
    connection: Connection, name: str, bucket: TableBucket, snapshot_id: int
) -> SnapshotFiles:
    """Requests the list of a snapshot's files from the cluster.

    :raises KvSnapshotNotExist: the snapshot does not exist, or no longer.
    :raises CorruptMessage: the name of a file is not valid.
    """
    request = pb.GetKvSnapshotMetadataRequest(snapshot_id=snapshot_id, **bucket_ids(bucket))

    def unpack(reply: Any) -> SnapshotFiles:
        files = tuple(SnapshotFile(f.remote_path, f.local_file_name) for f in reply.snapshot_files)
        names = [file.local_name for file in files]
        for local in names:
            if local != Path(local).name or local in ("", ".", "..") or names.count(local) > 1:
                raise CorruptMessage(f"{name}: {local!r} is not a valid and unique file name")
        return SnapshotFiles(name, reply.log_offset, files)

    return connection.call_coordinator(apis.GET_KV_SNAPSHOT_METADATA, request, unpack)


def with_sizes(found: SnapshotFiles, snapshot_id: int, remote: RemoteFiles) -> SnapshotFiles:
    """Adds the file sizes from ``_METADATA``; a file that is not listed there gets none.

    :raises KvSnapshotNotExist: ``_METADATA`` does not exist.
    :raises StorageError: ``_METADATA`` cannot be read.
    :raises CorruptMessage: ``_METADATA`` does not describe a KV snapshot.
    """
    folder = next(
        (
            f.uri.rpartition("/")[0]
            for f in found.files
            if f.uri.rpartition("/")[0].endswith(f"/snap-{snapshot_id}")
        ),
        None,
    )
    if folder is None:
        return found
    uri = f"{folder}/{METADATA_FILE}"
    content = _read_metadata(found.name, uri, remote)
    try:
        sizes = {f.local_name: f.size for f in kv_snapshot_from_json(content).files}
    except CorruptMessage as error:
        raise CorruptMessage(f"{found.name}: {uri}: {error}") from error
    files = tuple(replace(f, size_bytes=sizes.get(f.local_name)) for f in found.files)
    return replace(found, files=files)


def download(found: SnapshotFiles, folder: Path, remote: RemoteFiles) -> None:
    """Downloads all files to a folder, a few at a time, in pieces.

    :raises KvSnapshotNotExist: a file does not exist.
    :raises StorageError: a file is truncated, cannot be read, or cannot be written here.
    """

    def fetch(file: SnapshotFile) -> None:
        _tried(found.name, file.uri, remote, lambda: _copy(found.name, file, folder, remote))

    # Small files are mostly latency, so a few are fetched at once. The first error cancels all.
    with ThreadPoolExecutor(_AT_ONCE, "sluice-kv-snapshot") as pool:
        coming = [pool.submit(fetch, file) for file in _largest_first(found.files)]
        try:
            for each in coming:
                each.result()
        finally:
            for each in coming:
                each.cancel()


def _largest_first(files: Sequence[SnapshotFile]) -> list[SnapshotFile]:
    return sorted(files, key=lambda file: -(file.size_bytes or 0))


def _copy(name: str, file: SnapshotFile, folder: Path, remote: RemoteFiles) -> None:
    path, copied = folder / file.local_name, 0
    with remote.open(file.uri) as source:
        with _writing(name, path):
            path.unlink(missing_ok=True)  # left by an earlier attempt
            path.touch()
        while piece := source.read(_PIECE_BYTES):
            with _writing(name, path), path.open("ab") as target:
                target.write(piece)
            copied += len(piece)
        expected = source.size() if file.size_bytes is None else file.size_bytes
    if copied != expected:
        raise StorageError(
            f"{name}: file {file.uri} ({file.local_name}) has {copied} bytes instead of {expected}"
        )


@contextmanager
def _writing(name: str, path: Path) -> Iterator[None]:
    """Reports local write errors as such, not as errors of the remote storage."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"{name}: {path} cannot be written: {error}") from error


def _read_metadata(name: str, uri: str, remote: RemoteFiles) -> bytes:
    content = b""

    def read() -> None:
        nonlocal content
        with remote.open(uri) as source:
            content = source.read(_METADATA_BYTES_MAX)

    _tried(name, uri, remote, read)
    return content


def _tried(name: str, uri: str, remote: RemoteFiles, act: Callable[[], None]) -> None:
    """Retries a few times: a token may have expired, or the storage may be busy."""
    for attempt in range(1, _TRIES_MAX + 1):
        try:
            act()
        except FileNotFoundError as error:
            raise KvSnapshotNotExist(
                f"{name}: file {uri} does not exist on this machine: mount the cluster's storage"
                " here. If the cluster deleted the snapshot, read a newer one under a lease",
                file_missing=True,
            ) from error
        except ConfigurationError as error:  # of this machine: a retry cannot help
            raise StorageError(f"{name}: file {uri} cannot be read: {error}") from error
        except (OSError, pa.ArrowException, ValueError, ImportError) as error:
            remote.forget_token()
            if attempt == _TRIES_MAX:
                raise StorageError(
                    f"{name}: file {uri} cannot be read: {type(error).__name__}: {error} (tried"
                    f" {attempt} times)"
                ) from error
            _LOG.warning("%s: reading file %s again after an error: %s", name, uri, error)
        else:
            return
