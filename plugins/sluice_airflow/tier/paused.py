"""Ends the rounds of tables that a user pauses meanwhile. Does not import Airflow."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sluice.errors import FlussError, TablePaused
from sluice.masking import mask
from sluice.rounds.records.result import RoundFailure
from sluice_airflow.tier.reports import send_report
from sluice_airflow.tier.tried_table import TriedTable

if TYPE_CHECKING:
    from sluice.client import Client

log = logging.getLogger(__name__)


def stop_paused(client: Client, tables: Sequence[TriedTable]) -> None:
    """Stops the tables that are paused. If that cannot be read, their rounds continue."""
    left = {t.claim: t for t in tables if t.outcome is None and t.why_stopped is None}
    try:
        paused = client.statuses.paused([*left])
    except FlussError as error:
        log.info("cannot read which tables are paused: %s", mask(str(error)))
        return
    for claim in paused:
        left[claim].stop(TablePaused(f"a user paused the table {claim.path}"))


def release_paused(client: Client, table: TriedTable, secrets: Sequence[str] = ()) -> bool:
    """Releases the claim of a paused table whose round has ended, so that a resume takes effect.

    :returns: whether the coordinator knows; if not, the settle task releases the claim.
    """
    assert isinstance(table.outcome, RoundFailure)
    reason = table.outcome.reason
    return send_report(
        table.name,
        lambda: client.tiering.release(table.claim, reason, stopped=True),
        done="paused, and its claim was released",
        otherwise="release the claim",
        unexpected="the claim ended before it was released",
        secrets=secrets,
    )
