"""Iceberg's update that puts files in the place of those that contain the same rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sluice.lake.iceberg.catalog.loaded_table import LoadedTable
from sluice.lake.iceberg.commit.new_files import to_iceberg_files
from sluice.lake.iceberg.commit.position_checks import removed_files
from sluice.lake.iceberg.commit.tagged_update import TaggedUpdate
from sluice.lake.iceberg.snapshots.live_files import delete_files_of
from sluice.rounds.values.lake_files import DataFile, PlannedCommit


def rewrite_update(
    gateway: Any,
    loaded: LoadedTable,
    files: Sequence[DataFile],
    planned: PlannedCommit,
    summary: Mapping[str, str],
    spec: Any,
) -> TaggedUpdate:
    """The update, which moves no tag. Iceberg validates it from the planned snapshot on.

    Java throws if a footer of a new file cannot be read.

    :param spec: the partition spec by which the files were written.
    :raises LakeTableMismatch: another table has the name by now.
    """
    new = to_iceberg_files(gateway, loaded, files, spec)
    table = loaded.java
    tagged = TaggedUpdate(table, None, "newRewrite")
    tagged.update.validateFromSnapshot(planned.planned.snapshot_id)
    for removed in removed_files(gateway, table, planned):
        tagged.update.deleteFile(removed)
    described = [planned.planned.descriptions[one] for one in planned.replaced]
    for vector in delete_files_of(gateway, table, described) if described else []:
        tagged.update.deleteFile(vector)
    for data_file in new.data:
        tagged.update.addFile(data_file)
    for key, value in summary.items():
        tagged.set(key, value)
    return tagged
