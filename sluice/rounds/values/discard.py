"""Deletes files of this attempt that no commit references."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from sluice.errors import SluiceError
from sluice.rounds.values.lake_files import DataFile
from sluice.rounds.values.offsets import OFFSETS_FILE_KEY
from sluice.rounds.values.ports import LakeTable
from sluice.rounds.values.reasons import reason_of

NO_SUMMARY: Mapping[str, str] = MappingProxyType({})


def discard(
    table: LakeTable, files: Sequence[DataFile], summary: Mapping[str, str] = NO_SUMMARY
) -> list[str]:
    """Deletes files of this attempt that no commit references; returns notes about failures.

    :param summary: the summary of the refused commit, which names its offsets file if it has one.
    """
    paths = [file.path for file in files]
    if OFFSETS_FILE_KEY in summary:
        paths.append(summary[OFFSETS_FILE_KEY])
    if not paths:
        return []
    try:
        table.delete_files(paths)
    except (SluiceError, OSError) as error:
        return [
            f"some of {len(files)} unused files could not be deleted; `sluice clean` finds them:"
            f" {reason_of(error).text}"
        ]
    return []
