"""Links of a tier task: its Spark application, its lake table, and a page on its health.

Airflow shows the address that a task has left in an XCom. It pushes them itself when the task ends;
the one of a running Spark application is pushed as soon as it is known.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.sdk import BaseOperatorLink

from sluice.model import TablePath
from sluice.rounds.records.packs import SparkApplication
from sluice.rounds.records.result import RoundFailure, RoundResult
from sluice_airflow.claims.claims import ClaimedTable

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey

log = logging.getLogger(__name__)


class LinkTargets:
    """The addresses of one task. Used by the task's thread and by the one that watches its driver;
    each writes other fields.
    """

    def __init__(self, spark_history_url: str, lake_table_url: str, health_url: str) -> None:
        """:param spark_history_url, lake_table_url, health_url: the settings of these names."""
        self._history_url = spark_history_url
        self._lake_table_url = lake_table_url
        self._health_url = health_url
        self.spark = ""
        self.lake_table = ""
        self.health = ""
        self._application: SparkApplication | None = None

    def running(self, application: SparkApplication) -> None:
        """The application has begun. If it has no UI, the history server may show it already."""
        self._application = application
        self.spark = application.ui_url or self._history(application)

    def ended(
        self,
        tables: Sequence[ClaimedTable],
        outcomes: Sequence[RoundResult | RoundFailure | None],
    ) -> None:
        """The applications of the task have ended. The links are those of the largest table."""
        self.spark = "" if self._application is None else self._history(self._application)
        results = [outcome for outcome in outcomes if isinstance(outcome, RoundResult)]
        self.lake_table = next(filter(None, map(self.lake_table_of, results)), "")
        if tables and self._health_url:
            path = TablePath.parse(tables[0]["table"])
            self.health = filled(self._health_url, path)

    def lake_table_of(self, result: RoundResult) -> str:
        """The address of a table's page. Empty: none is set, or the lake has no snapshot."""
        if not self._lake_table_url or result.lake_snapshot_id is None:
            return ""
        path = TablePath.parse(result.table)
        return filled(self._lake_table_url, path, str(result.lake_snapshot_id))

    def _history(self, application: SparkApplication) -> str:
        return history_page(self._history_url, application.id) if self._history_url else ""


def history_page(history_url: str, application_id: str) -> str:
    """The page of an application in Spark's history server."""
    return f"{history_url.rstrip('/')}/history/{quote(application_id, safe='')}/jobs/"


def filled(address: str, path: TablePath, snapshot_id: str = "") -> str:
    """An address of the settings with the values of a table."""
    for name, value in (
        ("{database}", path.database),
        ("{table}", path.table),
        ("{snapshot_id}", snapshot_id),
    ):
        address = address.replace(name, quote(value, safe=""))
    return address


class SparkApplicationLink(BaseOperatorLink):
    """Spark's UI while the application runs, then Spark's history server."""

    name = "Spark application"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:  # noqa: ARG002
        """Airflow calls it in the task's process, after the task has ended."""
        return _targets(operator).spark


class LakeTableLink(BaseOperatorLink):
    """The page of the task's largest tiered table."""

    name = "Lake table"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:  # noqa: ARG002
        """As of :class:`SparkApplicationLink`."""
        return _targets(operator).lake_table


class HealthLink(BaseOperatorLink):
    """A page on the health of the task's largest table."""

    name = "Table health"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:  # noqa: ARG002
        """As of :class:`SparkApplicationLink`."""
        return _targets(operator).health


SPARK_LINK = SparkApplicationLink()
LINKS = (SPARK_LINK, LakeTableLink(), HealthLink())


def push_link(ti: Any, link: BaseOperatorLink, address: str) -> None:
    """Shows a link while the task runs. It logs an error: no table depends on it."""
    try:
        ti.xcom_push(key=link.xcom_key, value=address)
    except Exception as error:  # Airflow's API may be unavailable
        log.warning("cannot show the link %s: %s", link.name, error)


def _targets(operator: BaseOperator) -> LinkTargets:
    ended: Callable[[], LinkTargets] | None = getattr(operator, "ended_links", None)
    return LinkTargets("", "", "") if ended is None else ended()
