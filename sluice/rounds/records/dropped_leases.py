"""A note that somebody has dropped the lease of a run, where the cluster lists no leases.

    <work_uri>/<lease id>/lease-dropped.json

Lists of leases read plans there. The note names the plans whose snapshots were dropped, each as it
was stored before the drop: a plan that a run writes later has a lease again. `sluice clean` deletes
the note with the run. It contains no secret.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from sluice.errors import UnknownFileVersion
from sluice.failpoints import failpoint
from sluice.masking import mask
from sluice.rounds.records.json_files import VERSION, delete_file, listed, read_json, write_json

_LOG = logging.getLogger(__name__)

Version = tuple[int | None, int]
"""When a plan was written (epoch milliseconds; None: not known), and its size in bytes."""


def stored_versions(work_uri: str, lease_id: str) -> dict[str, Version]:
    """The plans of a run as they are stored, by the name of their round's folder: one listing.

    :raises OSError: the folder cannot be listed.
    """
    plans = listed(f"{work_uri.rstrip('/')}/{lease_id}", "*/plan.json")
    return {one.uri.rsplit("/", 2)[1]: (one.modified_ms, one.size_bytes) for one in plans}


def note_drop(work_uri: str, lease_id: str, plans: Mapping[str, Version]) -> None:
    """Says that a lease was dropped.

    :param plans: as they were stored before the drop.
    :raises OSError, ValueError: the file cannot be written.
    """
    failpoint("leases.drop.before_note")
    write_json(_uri(work_uri, lease_id), {"version": VERSION, "plans": dict(plans)})


def dropped_plans(work_uri: str, lease_id: str) -> dict[str, Version]:
    """The plans whose snapshots somebody has dropped; empty: none, or the note is damaged.

    :raises OSError: the file cannot be read.
    """
    try:
        content = read_json(_uri(work_uri, lease_id)) or {}
        if content.get("version") != VERSION:
            return {}
        return {name: (time, size) for name, (time, size) in content["plans"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, UnknownFileVersion):
        return {}


def forget_drop(work_uri: str, lease_id: str) -> None:
    """Deletes the note. A run does so before it leases snapshots of earlier plans again.

    It logs an error: no run needs the note.
    """
    uri = _uri(work_uri, lease_id)
    try:
        delete_file(uri)
    except Exception as error:  # file systems raise errors of many kinds
        _LOG.warning("cannot delete %s: %s", mask(uri), mask(str(error)))


def _uri(work_uri: str, lease_id: str) -> str:
    return f"{work_uri.rstrip('/')}/{lease_id}/lease-dropped.json"
