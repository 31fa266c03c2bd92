"""A sensor that waits until a table is tiered."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseSensorOperator, PokeReturnValue

from sluice.errors import SluiceError
from sluice_airflow.airflow_api.airflow_names import (
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowSkipException,
    conf,
)
from sluice_airflow.airflow_api.logs import MaskedLogs
from sluice_airflow.config.settings import connection_id
from sluice_airflow.hooks.fluss import FlussHook
from sluice_airflow.operators.keep import TIMED_OUT, missing_triggerer
from sluice_airflow.triggers.table import TableTieredTrigger

if TYPE_CHECKING:
    from airflow.sdk import Context

    from sluice.client import Client
    from sluice_airflow.goals.table_watch import TableWatch

GRACE_S = 120.0
"""Airflow ends the deferral so long after the trigger should have ended it, with a reason."""


class SluiceTableSensor(MaskedLogs, BaseSensorOperator):
    """Waits until a Fluss table is tiered up to some point. Returns the lake snapshot.

    Its XCom is ``{"lake_snapshot_id": ID, "offsets_sum": SUM}``: the snapshot that has the rows
    (None if the table has no rows and no snapshot), and the sum of its end offsets in all buckets.

    The log says what is waited for, then each change: rows that are left, and the state of the
    table with the reason of a failure.

    :param table: DATABASE.TABLE. (templated)
    :param until: what must be in the lake. (templated)

        - ``"now"``: all rows that the logs hold when the sensor starts. Found once in a try of the
          task; a new try finds it anew.
        - A datetime, or an ISO text such as ``"{{ data_interval_end }}"``: every row that was
          written before it. The clock of the server that leads a bucket decides: it stamps each
          batch of rows when it appends the batch. A time without a zone is UTC. A time to come is
          waited for first.
        - A mapping from bucket (``"0"``, or ``"PARTITION_ID/0"`` of a partitioned table) to its
          exclusive end offset.
        - An int, or a text of digits: the sum of the end offsets of all buckets in the lake.

        Buckets of a partition that is dropped count as tiered.
    :param fluss_conn_id: the connection of type ``fluss``. (templated)
    :param deferrable: wait in the triggerer, without a worker slot. The default is
        ``[operators] default_deferrable``. Without a triggerer, the task itself waits.
    :param fail_on_paused: fail if the table is paused.
    :param poke_interval: seconds between two looks.
    :param mode: only ``poke``: ``reschedule`` would find "now" anew at each look. Ignored if the
        sensor is deferrable.
    :raises ValueError: ``mode`` is ``reschedule``, and the sensor is not deferrable.
    """

    template_fields: Sequence[str] = ("table", "until", "fluss_conn_id")
    ui_color = "#d5ecf2"

    def __init__(
        self,
        *,
        table: str,
        until: str | int | datetime | Mapping[str, int] = "now",
        fluss_conn_id: str | None = None,
        deferrable: bool | None = None,
        fail_on_paused: bool = False,
        poke_interval: timedelta | float = 30,
        mode: str = "poke",
        **kwargs: Any,
    ) -> None:
        if deferrable is None:
            deferrable = conf.getboolean("operators", "default_deferrable", fallback=False)
        if mode == "reschedule":
            if not deferrable:
                raise ValueError(
                    f"task {kwargs.get('task_id')!r}: mode='reschedule' starts anew at each look,"
                    " so it would wait for other rows each time; use deferrable=True, which needs"
                    " no worker slot either"
                )
            mode = "poke"
        super().__init__(poke_interval=poke_interval, mode=mode, **kwargs)
        self.table = table
        self.until = until
        self.fluss_conn_id = connection_id(fluss_conn_id)
        self.deferrable = deferrable
        self.fail_on_paused = fail_on_paused
        self._watch: TableWatch | None = None
        self._client: Client | None = None

    def execute(self, context: Context) -> Any:
        started_s = time.time()
        try:
            self._begin()
            if not self.deferrable:
                return self._poke_on(context)
            if why := _no_triggerer(context):
                self.log.warning(
                    "%s; this task looks itself every %g s and keeps its worker slot",
                    why,
                    self.poke_interval,
                )
                return self._poke_on(context)
            found = self._first_look(context, started_s)
            if found:
                return found.xcom_value
            watch = self._begun().to_json()
        finally:
            if self._client is not None:
                self._client.close()
                self._client = None
        return self._defer(watch, started_s)

    def poke(self, context: Context) -> PokeReturnValue:  # noqa: ARG002
        assert self._client is not None
        watch = self._begun()
        found = watch.look(self._client)
        for level, line in found.lines:
            self.log.log(level, "%s", line)
        if found.failure:
            raise self._failed(found.failure)
        if found.tiered is None:
            return PokeReturnValue(False)
        self.log.info("%s", watch.last_line)
        return PokeReturnValue(True, dict(found.tiered))

    def execute_complete(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        """Ends the task as its trigger says.

        :raises AirflowSensorTimeout: the timeout has passed; the text says what is missing.
        :raises AirflowFailException: it is of no use to wait.
        """
        if "failure" in event:
            raise self._failed(event["failure"])
        if "timed_out" in event:
            raise self._timed_out(event["timed_out"])
        self.log.info("%s", event["line"])
        tiered: dict[str, Any] = event["tiered"]
        return tiered

    def resume_execution(
        self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context
    ) -> Any:
        error = (next_kwargs or {}).get("error")
        if next_method == "__fail__" and getattr(error, "value", error) == TIMED_OUT:
            raise self._timed_out(
                f"{self.table}: not tiered within the timeout of {self.timeout:g} s, and no"
                " triggerer has looked at it lately: see that `airflow triggerer` runs, and what"
                f" `sluice status {self.table}` says"
            )
        return super().resume_execution(next_method, next_kwargs, context)

    def _begin(self) -> None:
        """Checks the arguments and opens a client.

        :raises AirflowFailException: an argument or the connection is wrong.
        """
        # Not at the top: it loads pyarrow, and the DAG processor imports this module.
        from sluice_airflow.goals.table_watch import TableWatch, open_client

        try:
            self._watch = TableWatch.begin(
                self.table, self.until, fail_on_paused=self.fail_on_paused
            )
            config = FlussHook(self.fluss_conn_id).config()
            self._watch.secrets = tuple(config.secrets())
            self._watch.work_uri = config.work_uri
            self._client = open_client(config)
        except SluiceError as error:
            raise self._failed(f"{self.task_id}: {error}") from error

    def _begun(self) -> TableWatch:
        assert self._watch is not None
        return self._watch

    def _poke_on(self, context: Context) -> Any:
        try:
            return super().execute(context)
        except AirflowSensorTimeout as error:
            raise self._timed_out(self._begun().timed_out(self.timeout)) from error
        except AirflowSkipException:
            self.log.warning("%s", self._begun().missing())
            raise

    def _first_look(self, context: Context, started_s: float) -> PokeReturnValue:
        """Looks before the deferral, and again until "now" is known: the trigger may start anew."""
        while True:
            found = self.poke(context)
            if found or not self._begun().may_move:
                return found
            if time.time() - started_s >= self.timeout:
                raise self._timed_out(self._begun().timed_out(self.timeout))
            time.sleep(min(self.poke_interval, self.timeout))

    def _defer(self, watch: dict[str, Any], started_s: float) -> None:
        until = started_s + self.timeout
        self.defer(
            trigger=TableTieredTrigger(
                fluss_conn_id=self.fluss_conn_id,
                watch=watch,
                interval_s=self.poke_interval,
                until=until,
                timeout_s=self.timeout,
            ),
            method_name="execute_complete",
            timeout=timedelta(seconds=max(until - time.time(), 0) + GRACE_S),
        )

    def _failed(self, text: str) -> Exception:
        return self._ended(AirflowFailException(text))

    def _timed_out(self, text: str) -> Exception:
        return self._ended(AirflowSensorTimeout(text))

    def _ended(self, error: Exception) -> Exception:
        """The error, or what ``soft_fail`` and ``never_fail`` make of it."""
        if self.soft_fail or self.never_fail:
            self.log.warning("skipped: %s", error)
            return AirflowSkipException(str(error))
        return error


def _no_triggerer(context: Context) -> str:
    """Why a deferred task would wait for ever. Empty: a triggerer is alive."""
    if context["dag_run"].triggering_user_name == "dag_test":
        return "a test run has no triggerer"
    if missing := missing_triggerer():
        return f"{missing} (`airflow triggerer` starts a triggerer)"
    return ""
