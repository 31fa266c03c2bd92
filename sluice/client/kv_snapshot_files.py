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

from sluice.client.connection import Connection
from sluice.client.remote_files import RemoteFiles
from sluice.errors import ConfigurationError, CorruptMessage, KvSnapshotNotExist, StorageError
from sluice.formats.kv_snapshots import METADATA_FILE, kv_snapshot_from_json
from sluice.model import TableBucket
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb

_LOG = logging.getLogger(__name__)

_PIECE_BYTES = 4 * 1024 * 1024
_AT_ONCE = 4
_TRIES_MAX = 3
_METADATA_BYTES_MAX = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    """A file of a snapshot: where it lies, and its name in the RocksDB folder."""

    uri: str
    local_name: str
    size_bytes: int | None = None
    """None: not known."""


@dataclass(frozen=True, slots=True)
class SnapshotFiles:
    """What the cluster says of a snapshot."""

    name: str
    """For errors."""
    log_offset: int
    """The snapshot holds everything that its bucket's log has below this."""
    files: tuple[SnapshotFile, ...]


def snapshot_files(
    connection: Connection, name: str, bucket: TableBucket, snapshot_id: int
) -> SnapshotFiles:
    """Asks the cluster for a snapshot's files.

    :raises KvSnapshotNotExist: there is no such snapshot (any more).
    :raises CorruptMessage: a file has a name that cannot be.
    """
    request = pb.GetKvSnapshotMetadataRequest(
        table_id=bucket.table_id,
        partition_id=bucket.partition_id,
        bucket_id=bucket.bucket,
        snapshot_id=snapshot_id,
    )

    def unpack(reply: Any) -> SnapshotFiles:
        files = tuple(SnapshotFile(f.remote_path, f.local_file_name) for f in reply.snapshot_files)
        names = [file.local_name for file in files]
        for local in names:
            if local != Path(local).name or local in ("", ".", "..") or names.count(local) > 1:
                raise CorruptMessage(f"{name}: a file named {local!r} cannot be")
        return SnapshotFiles(name, reply.log_offset, files)

    return connection.call_coordinator(apis.GET_KV_SNAPSHOT_METADATA, request, unpack)


def with_sizes(found: SnapshotFiles, snapshot_id: int, remote: RemoteFiles) -> SnapshotFiles:
    """The sizes of files are in ``_METADATA`` beside them; a file that it lacks has none.

    :raises KvSnapshotNotExist: it is gone. :raises StorageError: it cannot be read.
    :raises CorruptMessage: it is not of a KV snapshot.
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
    """Brings all files into a folder, a few at a time, in pieces.

    :raises KvSnapshotNotExist: a file is gone.
    :raises StorageError: one is cut, or cannot be read, or not written to the folder.
    """

    def bring(file: SnapshotFile) -> None:
        _tried(found.name, file.uri, remote, lambda: _copy(found.name, file, folder, remote))

    # Many small files are waited for most of the time. The first failure ends the others.
    with ThreadPoolExecutor(_AT_ONCE, "sluice-kv-snapshot") as pool:
        coming = [pool.submit(bring, file) for file in _largest_first(found.files)]
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
            path.unlink(missing_ok=True)  # of a try before
            path.touch()
        while piece := source.read(_PIECE_BYTES):
            with _writing(name, path), path.open("ab") as target:
                target.write(piece)
            copied += len(piece)
        expected = source.size() if file.size_bytes is None else file.size_bytes
    if copied != expected:
        raise StorageError(
            f"{name}: file {file.uri} ({file.local_name}) has {copied} bytes, not {expected}"
        )


@contextmanager
def _writing(name: str, path: Path) -> Iterator[None]:
    """What fails here is no fault of the remote storage."""
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
    """Tries a few times: a token may have ended, a storage may be busy."""
    for attempt in range(1, _TRIES_MAX + 1):
        try:
            act()
        except FileNotFoundError as error:
            raise KvSnapshotNotExist(
                f"{name}: its file {uri} is not there, as seen from here: was the snapshot deleted"
                " (hold it by a lease), or is the cluster's storage not mounted here?",
                file_missing=True,
            ) from error
        except ConfigurationError as error:  # of this machine: nothing comes of trying again
            raise StorageError(f"{name}: file {uri} cannot be read: {error}") from error
        except (OSError, pa.ArrowException, ValueError, ImportError) as error:
            remote.forget_token()
            if attempt == _TRIES_MAX:
                raise StorageError(
                    f"{name}: file {uri} cannot be read: {type(error).__name__}: {error} (tried"
                    f" {attempt} times)"
                ) from error
            _LOG.warning("%s: file %s is read once more: %s", name, uri, error)
        else:
            return
