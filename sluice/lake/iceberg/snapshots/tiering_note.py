"""The newest tiering snapshot in a table's properties, for catalogs that keep no history.

Nessie shows one snapshot, without its parent, and drops tags. After a commit of another writer
nothing would show that main descends from the tiering snapshot. So the commit of a round also sets
a property: in the same transaction, so that it is true of exactly that state of the table, and of
each state that other writers derive from it. A branch of Nessie that is set back takes the property
along.

Where the catalog keeps tags, the property is set by the first commit only and removed by the next:
before the first commit it is not known what the catalog keeps.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from sluice.model import TablePath
from sluice.rounds.values.expiry import TAG
from sluice.rounds.values.history import HistoryEntry

_LOG = logging.getLogger(__name__)
PROPERTY = "sluice.tiering-snapshot"
_FIRST = 1
"""The sequence number of a table's first snapshot, from Iceberg's format version 2 on."""


def note_of(snapshot: Any, table_uuid: str, summary: Mapping[str, str]) -> str:
    """The value of the property.

    :param snapshot: Iceberg's object of the new snapshot.
    :param summary: of the commit.
    """
    content = {
        "snapshot-id": int(snapshot.snapshotId()),
        "sequence-number": int(snapshot.sequenceNumber()),
        "table-uuid": table_uuid,
        "total-records": str(snapshot.summary().get("total-records") or ""),
        "summary": dict(summary),
    }
    return json.dumps(content, separators=(",", ":"))


def warn_if_lost(table: Any, path: TablePath) -> None:
    """Logs that neither the tag nor the property of a commit is there.

    :param table: Iceberg's table object after the commit.
    """
    if not table.refs().containsKey(TAG) and not table.properties().containsKey(PROPERTY):
        _LOG.warning(
            "the catalog of lake table %s keeps neither tags nor the table property %s: if it also"
            " hides earlier snapshots, a commit of another writer ends the tiering of the table"
            " (LakeRolledBack). Use another catalog, or let no other writer commit",
            path,
            PROPERTY,
        )


def is_cut(oldest: HistoryEntry) -> bool:
    """Whether a snapshot without a known parent must have had one."""
    return oldest.parent_id is None and oldest.sequence_number > _FIRST


def noted_id(table: Any) -> int | None:
    """The id of the snapshot that the property names; None: there is none.

    :param table: Iceberg's table object.
    """
    noted = _read(table)
    return None if noted is None else noted[0].snapshot_id


def noted_snapshot(table: Any, oldest: HistoryEntry) -> HistoryEntry | None:
    """The tiering snapshot that the property names, if main descends from it.

    :param table: Iceberg's table object.
    :param oldest: the oldest snapshot of main that is known, of another writer. Its parents are
        not known (:func:`is_cut`).
    """
    noted = _read(table)
    if noted is None:
        return None
    entry, rows = noted
    is_listed = table.snapshot(entry.snapshot_id) is not None  # then the history is kept
    if is_listed or entry.sequence_number >= oldest.sequence_number:
        return None
    # CREATE OR REPLACE TABLE keeps the properties, but none of the rows.
    is_replaced = rows.isdecimal() and int(rows) > 0 and oldest.rows_before == 0
    return None if is_replaced else entry


def _read(table: Any) -> tuple[HistoryEntry, str] | None:
    """The snapshot that the property names, and the rows of the table then."""
    text = table.properties().get(PROPERTY)
    if text is None:
        return None
    try:
        content = json.loads(str(text))
        entry = HistoryEntry(
            int(content["snapshot-id"]),
            None,
            int(content["sequence-number"]),
            {str(name): str(value) for name, value in content["summary"].items()},
        )
        table_uuid, rows = content["table-uuid"], str(content["total-records"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    is_of_table = table_uuid == str(table.operations().current().uuid() or "")
    return (entry, rows) if is_of_table else None
