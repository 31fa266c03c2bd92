"""Reports of a tier task to the coordinator. Does not import Airflow."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from sluice.errors import FlussError
from sluice.masking import mask
from sluice_airflow.outcomes.settle import NO_REPORT_EXPECTED

log = logging.getLogger(__name__)


def send_report(
    table: object,
    send: Callable[[], object],
    *,
    done: str,
    otherwise: str,
    unexpected: str = "the coordinator expects no report",
    secrets: Sequence[str] = (),
) -> bool:
    """Sends a report of a table, and logs what became of it.

    :param done: what to log of a report that was accepted.
    :param otherwise: what the settle task will do if the coordinator did not answer.
    :param unexpected: what to log if the claim has ended before.
    :returns: whether the coordinator has its answer; if not, the settle task reports.
    """
    try:
        send()
    except NO_REPORT_EXPECTED as error:
        log.info("%s: %s: %s", table, unexpected, error)
    except FlussError as error:
        log.warning("%s: the settle task will %s: %s", table, otherwise, mask(str(error), secrets))
        return False
    else:
        log.info("%s: %s", table, done)
    return True
