"""A round's offsets: in a snapshot summary or in an offsets file, and in result files.

A tiering snapshot of Sluice records which part of each log the lake holds. The summary contains the
offsets if their text has at most 64 kB. Longer texts (thousands of partitions) are stored in a file
in the table's metadata folder; the summary has its location, size and checksum. The file is written
before the commit and named after the attempt that wrote it, so that files of failed attempts can be
recognised. Its name starts with ``_``, which Iceberg's ``remove_orphan_files`` ignores.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Protocol

from sluice.errors import LakeOffsetsLost, LakeTableMismatch
from sluice.model import TableBucket, TablePath, offsets_from_text, offsets_to_text
from sluice.rounds.values.types import LakeSnapshot

TABLE_ID_KEY = "sluice.table-id"
OFFSETS_KEY = "sluice.offsets"
OFFSETS_FILE_KEY = "sluice.offsets-file"
OFFSETS_FILE_BYTES_KEY = "sluice.offsets-file-bytes"
OFFSETS_FILE_SHA256_KEY = "sluice.offsets-file-sha256"
SUMMARY_BYTES_MAX = 64 * 1024
"""Longest offsets text in a summary: every metadata file contains the summaries of all
snapshots."""
_FILE_BYTES_MAX = 256 * 1024 * 1024
_PREFIX, _SUFFIX = "_sluice-offsets-", ".json"


class MetadataFiles(Protocol):
    """Access to small files in a lake table's metadata folder; a part of ``ports.LakeTable``."""

    def write_metadata_file(self, name: str, content: bytes) -> str:
        """Writes a small file into the table's metadata folder and returns its location.

        :raises LakeNotWritable: the storage refuses, or is full.
        """

    def read_metadata_file(self, location: str, bytes_max: int) -> bytes | None:
        """The first ``bytes_max`` bytes of such a file; None if it does not exist.

        :raises LakeNotWritable: the storage cannot be read.
        """


def offsets_file_name(write_id: str) -> str:
    """The name of the offsets file that one attempt of a round writes, if it writes one."""
    return f"{_PREFIX}{write_id}{_SUFFIX}"


def write_id_of_offsets_file(name: str) -> str | None:
    """The write id in an offsets file's name; None if the name is not of an offsets file."""
    if not (name.startswith(_PREFIX) and name.endswith(_SUFFIX)):
        return None
    return name[len(_PREFIX) : -len(_SUFFIX)]


def store_offsets(
    table: MetadataFiles, table_id: int, offsets: Mapping[TableBucket, int], write_id: str
) -> dict[str, str]:
    """The summary entries for these offsets; writes an offsets file if the text is too long.

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
    """The offsets of a tiering snapshot; None if Fluss's own tiering service wrote it.

    :raises LakeOffsetsLost: the offsets file is missing, truncated or changed.
    :raises LakeTableMismatch: the offsets cannot be parsed, or belong to another table.
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
        raise LakeTableMismatch(f"{where} belongs to table id {table_id}, not {stated}")
    return offsets


def _read(path: TablePath, table: MetadataFiles, snapshot: LakeSnapshot) -> bytes:
    location = snapshot.summary[OFFSETS_FILE_KEY]
    size = snapshot.summary.get(OFFSETS_FILE_BYTES_KEY, "")
    if not size.isdecimal() or int(size) > _FILE_BYTES_MAX:
        raise _lost(
            path, snapshot, f"the summary has no valid size: {OFFSETS_FILE_BYTES_KEY}={size[:40]!r}"
        )
    content = table.read_metadata_file(location, int(size) + 1)
    if content is None:
        raise _lost(path, snapshot, "the file does not exist")
    if len(content) != int(size):
        more = "more than " if len(content) > int(size) else ""
        found = min(len(content), int(size))
        raise _lost(path, snapshot, f"the file has {more}{found} bytes, but {size} were written")
    if hashlib.sha256(content).hexdigest() != snapshot.summary.get(OFFSETS_FILE_SHA256_KEY):
        raise _lost(path, snapshot, "the checksum differs from the one in the summary")
    return content


def _lost(path: TablePath, snapshot: LakeSnapshot, what: str) -> LakeOffsetsLost:
    location = snapshot.summary[OFFSETS_FILE_KEY]
    state = (
        f"offsets file {location} of snapshot {snapshot.snapshot_id} of lake table {path}: {what}."
        " Restore the file"
    )
    return LakeOffsetsLost(
        f"{state}, or run `sluice repair {path}` with the same --warehouse or --config: it lists"
        " other repairs",
        state=state,
        table=str(path),
        snapshot_id=snapshot.snapshot_id,
        location=location,
    )


def offsets_for_result(offsets: Mapping[TableBucket, int]) -> dict[str, int]:
    """Offsets by ``BUCKET`` or ``PARTITION_ID/BUCKET``."""
    return {bucket.name: offset for bucket, offset in offsets.items()}
