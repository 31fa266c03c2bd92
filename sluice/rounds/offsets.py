"""A round's offsets as text: in the summary of a lake snapshot and in result files."""

from __future__ import annotations

from collections.abc import Mapping

from sluice.errors import LakeTableMismatch
from sluice.model import TableBucket, offsets_from_text


def offsets_of_summary(text: str) -> tuple[int, dict[TableBucket, int]]:
    """Table id and offsets that ``sluice.offsets`` of a lake snapshot holds.

    :raises LakeTableMismatch: if the text is none of ours.
    """
    try:
        return offsets_from_text(text)
    except ValueError as error:
        raise LakeTableMismatch(
            f"sluice.offsets of a lake snapshot cannot be read ({error}): {text[:200]!r}"
        ) from error


def offsets_for_result(offsets: Mapping[TableBucket, int]) -> dict[str, int]:
    """Keyed ``BUCKET`` or ``PARTITION_ID/BUCKET``."""
    return {
        str(b.bucket) if b.partition_id is None else f"{b.partition_id}/{b.bucket}": offset
        for b, offset in offsets.items()
    }
