"""The names of the files that maintenance writes, and the rule by which they become orphans.

A writer that is killed leaves files. No base proves that a file of maintenance is dead, so its age
decides, as in Iceberg's remove_orphan_files: nobody commits files that are days old. Such a file is
deleted only if its name has the uuid of the table: another table may have the same folder. Names of
manifests have no uuid, so they stay in such a folder
(`sluice.lake.iceberg.upkeep.metadata_orphans`).
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Set

from sluice.rounds.upkeep.orphans import StoredFile
from sluice.rounds.values.write_ids import short_uuid

_METADATA = re.compile(r"(snap-\d+-.*|.*-m\d+)\.avro$")
"""Names of manifest lists and manifests (Iceberg's SnapshotProducer)."""
_MAINTENANCE = re.compile(r"\d{5}-\d+-maintenance-([0-9a-f]{16})-[0-9a-f-]{36}")


def new_maintenance_id(table_uuid: str, unique: uuid.UUID | None = None) -> str:
    """What the names of the files of one commit of maintenance contain.

    :param unique: None: a new one.
    """
    return f"maintenance-{short_uuid(table_uuid)}-{unique or uuid.uuid4()}"


def is_manifest(name: str) -> bool:
    """Whether a file is a manifest or a manifest list, by its name. The name tells no table."""
    return _METADATA.match(name) is not None


def orphans_in(
    stored: Iterable[StoredFile], known: Set[str], before_ms: int, table_uuid: str
) -> list[StoredFile]:
    """The files among these that nobody needs, older than a time.

    :param known: names of all files that snapshots reference.
    :param before_ms: epoch milliseconds. A file whose storage tells no time is kept.
    :param table_uuid: of the table whose snapshots are known.
    """
    return [
        one
        for one in stored
        if one.name not in known
        and one.modified_ms is not None
        and one.modified_ms < before_ms
        and _is_of_maintenance(one.name, table_uuid)
    ]


def _is_of_maintenance(name: str, table_uuid: str) -> bool:
    if is_manifest(name):
        return True
    found = _MAINTENANCE.match(name)
    return found is not None and found[1] == short_uuid(table_uuid)
