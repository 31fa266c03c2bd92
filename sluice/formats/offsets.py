"""The offsets file of a lake snapshot (docs/fluss/lake-snapshots.md#offsets-file)."""

from __future__ import annotations

from collections.abc import Mapping

from sluice.errors import CorruptMessage
from sluice.model import TableBucket, offsets_from_text, offsets_to_text


def offsets_to_json(table_id: int, offsets: Mapping[TableBucket, int]) -> bytes:
    """Log end offsets (exclusive) of a table's buckets as Fluss writes them.

    :raises ValueError: for buckets of another table, or with and without partition at once.
    """
    return offsets_to_text(table_id, offsets).encode()


def offsets_from_json(content: bytes) -> tuple[int, dict[TableBucket, int]]:
    """Table id and the known offsets.

    :raises CorruptMessage: if it is no offsets file of version 1.
    """
    try:
        return offsets_from_text(content)
    except ValueError as error:
        raise CorruptMessage(f"offsets file: {error}") from error
