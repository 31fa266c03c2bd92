"""The offsets file of a lake snapshot (docs/fluss/lake-snapshots.md#offsets-file)."""

from __future__ import annotations

from collections.abc import Mapping

from sluice.errors import CorruptMessage
from sluice.model import TableBucket, offsets_from_text, offsets_to_text


def offsets_to_json(table_id: int, offsets: Mapping[TableBucket, int]) -> bytes:
    """Returns the offsets file of log end offsets (exclusive), as Fluss writes it.

    :raises ValueError: a bucket is of another table, or only some buckets have a partition.
    """
    return offsets_to_text(table_id, offsets).encode()


def offsets_from_json(content: bytes) -> tuple[int, dict[TableBucket, int]]:
    """Returns the table id and the known offsets.

    :raises CorruptMessage: the content is not an offsets file of version 1.
    """
    try:
        return offsets_from_text(content)
    except ValueError as error:
        raise CorruptMessage(f"offsets file: {error}") from error
