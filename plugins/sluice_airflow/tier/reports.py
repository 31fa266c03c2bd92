"""Reports of a tier task to the coordinator. Does not import Airflow."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sluice.errors import FlussError
from sluice.masking import mask
from sluice_airflow.outcomes import settle
from sluice_airflow.tier.tried_table import TriedTable

if TYPE_CHECKING:
    from sluice.client import Client

log = logging.getLogger(__name__)


def report(client: Client, table: TriedTable, secrets: Sequence[str] = ()) -> bool:
    """Reports how a table ended while its heartbeats are sent: settle may start much later.

    A paused table is released, so that a resume takes effect.

    :returns: whether the coordinator has its answer; if not, the settle task reports.
    """
    try:
        verdict = settle.report(
            client,
            table.claim,
            table.outcome,
            table.entry.get("lease_id"),
            lambda: table.ran_by,
            secrets=secrets,
        )
    except FlussError as error:
        log.warning("%s: the settle task will report: %s", table.name, mask(str(error), secrets))
        return False
    log.info("%s", mask(str(verdict), secrets))
    return True
