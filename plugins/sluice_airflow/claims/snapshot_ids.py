"""Ids of lake snapshots in XComs and asset events: as texts, because browsers round large numbers.

Does not import Airflow.
"""

from __future__ import annotations

from typing import Any


def id_text(snapshot_id: int | None) -> str | None:
    """Returns the text of an id."""
    return None if snapshot_id is None else str(snapshot_id)


def id_of(text: Any) -> int | None:
    """Returns the id of a text."""
    return None if text is None else int(text)
