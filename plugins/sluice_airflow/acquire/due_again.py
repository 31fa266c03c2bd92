"""Why tables of a running task have no claim, and how they get one. Does not import Airflow."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from sluice.errors import SluiceError, TableNotDue, TableNotExist
from sluice.masking import mask
from sluice.model import Claim, TablePath, TieringStatus
from sluice.statuses import State
from sluice_airflow.acquire.requests import refused_to_be_due, statuses_of
from sluice_airflow.outcomes.account import (
    CLAIM_LOST,
    HELD,
    NOT_DUE,
    NOT_TIERED,
    PAUSED,
    TableAccount,
    of_status,
    tell,
)

if TYPE_CHECKING:
    from sluice.client import Client

log = logging.getLogger(__name__)

FINAL = frozenset({PAUSED, NOT_TIERED, CLAIM_LOST})
"""What no wait changes."""


class DueAgain:
    """Makes the tables of a task due again, unless somebody else has them. For one thread.

    The round of another worker is never ended. Paused and dropped tables are left alone, and so is
    a table that another round has tiered, or tried to, since its claim was lost. Failures stay
    counted.
    """

    def __init__(self, client: Client, lease_id: str, name_of: Callable[[str], str]) -> None:
        """:param name_of: as of :func:`sluice_airflow.outcomes.account.of_status`."""
        self._client = client
        self._lease_id = lease_id
        self._name_of = name_of
        self._asked: dict[Claim, TableAccount] = {}

    def ask(
        self, last: Collection[Claim], wanted: Collection[TablePath] = ()
    ) -> dict[TablePath, TableAccount]:
        """Makes tables due. Returns for each of them why it could not be claimed before.

        Each table is made due once after each claim. If the claim is still open on Apache Fluss,
        the coordinator itself makes the table due when it ends the claim.

        :param last: the last claims of the tables, which have ended.
        :param wanted: the tables that must reach an end, whoever has tiered them since.
        """
        by_path = {claim.path: claim for claim in last}
        gone = "the table was dropped, or is no longer tiered"
        found = {path: tell(path, NOT_TIERED, gone) for path in by_path}
        try:
            for status in statuses_of(self._client, [*by_path]):
                claim = by_path[status.path]
                found[status.path] = self._of(status, claim, is_wanted=status.path in wanted)
        except SluiceError as error:
            why = f"its status cannot be read: {mask(str(error))}"
            log.warning("%d tables are not made due: %s", len(by_path), why)
            return {path: tell(path, NOT_DUE, why) for path in by_path}
        return found

    def _of(self, status: TieringStatus, claim: Claim, *, is_wanted: bool) -> TableAccount:
        one = of_status(status, int(time.time() * 1000), self._name_of)
        if one["became"] == PAUSED:
            return one
        if one["became"] == HELD and not self._is_stale(status):
            return one
        waits = status.status in (State.SCHEDULED.value, State.FAILED.value)
        if waits and status.tiering_epoch > claim.tiering_epoch and not is_wanted:
            why = "another round has failed" if status.failures else "another round has tiered it"
            return tell(status.path, CLAIM_LOST, f"{why} (tiering epoch {status.tiering_epoch})")
        if claim not in self._asked:
            self._asked[claim] = self._make_due(status.path)
        return self._asked[claim]

    def _is_stale(self, status: TieringStatus) -> bool:
        """Whether a claim is only recorded as held: on Apache Fluss, that of this run."""
        return status.claimed_by == self._lease_id and self._client.statuses.are_estimates()

    def _make_due(self, path: TablePath) -> TableAccount:
        try:
            self._client.statuses.request_round(path, lost_by=self._lease_id)
        except TableNotDue as error:
            return refused_to_be_due(path, error, self._name_of)
        except TableNotExist as error:
            return tell(path, NOT_TIERED, f"the table was dropped: {error}")
        log.info("%s: made due again", path)
        return tell(path, NOT_DUE, "it was made due, but the coordinator has not assigned it")
