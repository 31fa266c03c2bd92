"""How large a lake table is, by the summary of one of its snapshots."""

from __future__ import annotations

from collections.abc import Mapping

from sluice.errors import SluiceError
from sluice.rounds.values.ports import LakeTable
from sluice.rounds.values.types import LakeSnapshot

_TOTALS = {
    "lake_rows": "total-records",
    "lake_files": "total-data-files",
    "lake_bytes": "total-files-size",
}
"""Iceberg's totals by the fields of a result. Records are those of data files: the rows that delete
files remove still count. Bytes are those of data files and delete files."""


def lake_size(summary: Mapping[str, str]) -> dict[str, int | None]:
    """The fields of a result for the size of the table at a snapshot.

    None: a writer of this or of an earlier snapshot did not record its totals.
    """
    found = {field: summary.get(total, "") for field, total in _TOTALS.items()}
    return {
        field: int(text) if text.isascii() and text.isdecimal() else None
        for field, text in found.items()
    }


def size_of_main(
    table: LakeTable, seen: LakeSnapshot | None, *, is_changed: bool
) -> dict[str, int | None]:
    """The size of main at the end of a round without a lake commit.

    :param seen: the newest tiering snapshot. It was read with main, so asking again costs nothing.
    :param is_changed: the round has rewritten files since: main is read again.
    """
    if is_changed:
        try:
            seen = table.newest_tiering_snapshot()
        except SluiceError:  # the round is done: no number is worth its failure
            seen = None
    return lake_size({} if seen is None else seen.main_summary)
