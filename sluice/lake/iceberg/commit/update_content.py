"""Puts what a commit adds and removes into an update of an Iceberg table."""

from __future__ import annotations

from typing import Any

from sluice.lake.iceberg.commit.new_files import NewCommit
from sluice.lake.iceberg.commit.position_checks import validate_positions
from sluice.lake.iceberg.snapshots.part_files import PartFiles


def fill_update(gateway: Any, table: Any, parts: PartFiles, update: Any, commit: NewCommit) -> None:
    """Adds the files of a commit, and removes those of the parts that it replaces.

    A row delta has no filter, so it lists the files to delete. No file can be added in between,
    because moving the tag ties the commit to this metadata.

    :param table: Iceberg's table object. :param update: Iceberg's update of it.
    """
    if commit.method == "newRowDelta":
        _fill_delta(gateway, table, parts, update, commit)
        add = update.addRows
    elif commit.method == "newOverwrite":
        update.overwriteByRowFilter(parts.row_filter(commit.partitions))
        add = update.addFile
    else:
        add = update.appendFile
    for data_file in commit.new.data:
        add(data_file)


def _fill_delta(gateway: Any, table: Any, parts: PartFiles, update: Any, commit: NewCommit) -> None:
    if commit.new.deletes:
        parts.check_specs()
    if commit.partitions:
        parts.remove_partitions(update, commit.partitions)
    if commit.buckets:
        parts.remove_buckets(update, commit.buckets)
    if commit.positions is not None:
        validate_positions(gateway, table, update, commit.files, commit.positions, parts)
    for delete_file in commit.new.deletes:
        update.addDeletes(delete_file)
