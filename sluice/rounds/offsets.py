"""A round's offsets: in the summary of a lake snapshot or in a file beside it, and in result files.

A snapshot of ours says by itself which part of each log the lake holds. Up to 64 kB that text
stands in its summary; a longer one (thousands of partitions) lies in a file in the table's metadata
folder, and the summary has its location, size and checksum. The file is written before the commit
and named after the try that wrote it, so that a dead try's can be told from one that counts. Its
name begins with ``_``, which Iceberg's ``remove_orphan_files`` passes over.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Protocol

from sluice.errors import LakeOffsetsLost, LakeTableMismatch
from sluice.model import TableBucket, TablePath, offsets_from_text, offsets_to_text
from sluice.rounds.types import LakeSnapshot

TABLE_ID_KEY = "sluice.table-id"
OFFSETS_KEY = "sluice.offsets"
OFFSETS_FILE_KEY = "sluice.offsets-file"
OFFSETS_FILE_BYTES_KEY = "sluice.offsets-file-bytes"
OFFSETS_FILE_SHA256_KEY = "sluice.offsets-file-sha256"
SUMMARY_BYTES_MAX = 64 * 1024
"""Longest offsets text in a summary: every snapshot's stands in every metadata file."""
_FILE_BYTES_MAX = 256 * 1024 * 1024
_PREFIX, _SUFFIX = "_sluice-offsets-", ".json"


class MetadataFiles(Protocol):
    """Where small files lie beside a lake table's own metadata. A LakeTable is one."""

    def write_metadata_file(self, name: str, content: bytes) -> str:
        """Writes a file and answers its location."""

    def read_metadata_file(self, location: str, bytes_max: int) -> bytes | None:
        """At most that many bytes of a file; None if it is gone."""


def offsets_file_name(write_id: str) -> str:
    """The name of the offsets file that one try of a round writes, if it writes one."""
    return f"{_PREFIX}{write_id}{_SUFFIX}"


def write_id_of_offsets_file(name: str) -> str | None:
    """Which try wrote the file of that name; None if it is no offsets file."""
    if not (name.startswith(_PREFIX) and name.endswith(_SUFFIX)):
        return None
    return name[len(_PREFIX) : -len(_SUFFIX)]


def store_offsets(
    table: MetadataFiles, table_id: int, offsets: Mapping[TableBucket, int], write_id: str
) -> dict[str, str]:
    """What a summary says of these offsets; writes the file beside it if they are too many.

    :raises LakeNotWritable: the file cannot be written.
    """
    text = offsets_to_text(table_id, offsets)
    content = text.encode()
    if len(content) <= SUMMARY_BYTES_MAX:
        return {OFFSETS_KEY: text}
    return {
        OFFSETS_FILE_KEY: table.write_metadata_file(offsets_file_name(write_id), content),
        OFFSETS_FILE_BYTES_KEY: str(len(content)),
        OFFSETS_FILE_SHA256_KEY: hashlib.sha256(content).hexdigest(),
    }


def offsets_of(
    path: TablePath, table: MetadataFiles, snapshot: LakeSnapshot
) -> dict[TableBucket, int] | None:
    """The offsets of a snapshot of ours; None if Fluss's own tiering has written it.

    :raises LakeOffsetsLost: the file that has them is gone, cut or changed.
    :raises LakeTableMismatch: they are no offsets, or those of another table.
    """
    text = snapshot.summary.get(OFFSETS_KEY)
    if text is None:
        if OFFSETS_FILE_KEY not in snapshot.summary:
            return None
        text = _read(path, table, snapshot).decode(errors="replace")
    where = f"{OFFSETS_KEY} of snapshot {snapshot.snapshot_id} of lake table {path}"
    try:
        table_id, offsets = offsets_from_text(text)
    except ValueError as error:
        raise LakeTableMismatch(f"{where} cannot be read ({error}): {text[:200]!r}") from error
    stated = snapshot.summary.get(TABLE_ID_KEY, str(table_id))
    if stated != str(table_id):
        raise LakeTableMismatch(f"{where} are those of table id {table_id}, not {stated}")
    return offsets


def _read(path: TablePath, table: MetadataFiles, snapshot: LakeSnapshot) -> bytes:
    location = snapshot.summary[OFFSETS_FILE_KEY]
    size = snapshot.summary.get(OFFSETS_FILE_BYTES_KEY, "")
    if not size.isdecimal() or int(size) > _FILE_BYTES_MAX:
        raise _lost(path, snapshot, f"{OFFSETS_FILE_BYTES_KEY}={size[:40]!r} is no size of it")
    content = table.read_metadata_file(location, int(size) + 1)
    if content is None:
        raise _lost(path, snapshot, "it is gone")
    if len(content) != int(size):
        more = "more than " if len(content) > int(size) else ""
        found = min(len(content), int(size))
        raise _lost(path, snapshot, f"it has {more}{found} bytes where {size} were written")
    if hashlib.sha256(content).hexdigest() != snapshot.summary.get(OFFSETS_FILE_SHA256_KEY):
        raise _lost(path, snapshot, "its checksum differs from the one in the summary")
    return content


def _lost(path: TablePath, snapshot: LakeSnapshot, what: str) -> LakeOffsetsLost:
    location = snapshot.summary[OFFSETS_FILE_KEY]
    state = (
        f"offsets file {location} of snapshot {snapshot.snapshot_id} of lake table {path}: {what}."
        " Bring the file back"
    )
    return LakeOffsetsLost(
        f"{state}; `sluice repair {path}`, with the same --warehouse or --config, says what else"
        " can be done",
        state=state,
        table=str(path),
        snapshot_id=snapshot.snapshot_id,
        location=location,
    )


def offsets_for_result(offsets: Mapping[TableBucket, int]) -> dict[str, int]:
    """Offsets by ``BUCKET`` or ``PARTITION_ID/BUCKET``."""
    return {
        str(b.bucket) if b.partition_id is None else f"{b.partition_id}/{b.bucket}": offset
        for b, offset in offsets.items()
    }
