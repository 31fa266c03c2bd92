"""The folder of a run: its files, and the keys that its drivers leave there for executors."""

from __future__ import annotations

import glob
import logging

from sluice.masking import mask
from sluice.rounds.records.json_files import delete_file, listed, matching

_LOG = logging.getLogger(__name__)


def keys_uri(plan: str, attempt: str = "") -> str:
    """How the addresses of the keys files of a round's attempt begin; without it: of all."""
    return f"{plan.rsplit('/', 1)[0]}/keys{attempt and '-'}{attempt}"


def delete_keys(uri: str) -> None:
    """Deletes the keys files that a killed driver has left. An error is logged: the keys end soon.

    :param uri: how their addresses begin.
    """
    folder, _, start = uri.rpartition("/")
    try:
        for one in listed(folder, f"{glob.escape(start)}-*.json*"):
            delete_file(one.uri)
    except Exception as error:  # file systems raise errors of many kinds
        _LOG.warning("cannot delete %s-*.json: %s", mask(uri), mask(str(error)))


def run_files(work_uri: str, lease_id: str) -> list[str]:
    """All files of one run's rounds: one listing, which costs as much as that of the plans."""
    return matching(f"{work_uri.rstrip('/')}/{lease_id}", "*/*.json")
