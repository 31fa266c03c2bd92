"""What tasks read from Airflow's API server, and what they do while it does not answer."""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from airflow.sdk import BaseHook, BaseOperator, Variable
from airflow.sdk.execution_time.comms import ErrorResponse, GetConnection, GetVariable

from sluice_airflow.airflow_api.airflow_names import (
    AirflowException,
    AirflowFailException,
    AirflowNotFoundException,
    AirflowRuntimeError,
    AirflowSkipException,
    AirflowTaskTimeout,
)
from sluice_airflow.airflow_api.logs import MaskedLogs

if TYPE_CHECKING:
    from airflow.sdk import Connection, Context

AWAY_RETRIES = 3
AWAY_DELAY = timedelta(seconds=20)
"""Before each of these retries. With the tries of Airflow's own client, which take 4 to 15 seconds,
a task outlives an API server that is away for 75 seconds."""
NOT_FOUND = ("CONNECTION_NOT_FOUND", "VARIABLE_NOT_FOUND")
"""Airflow's words for what is not defined. Any other answer, as to too many requests, says nothing
about that."""
AWAY = "API_SERVER_ERROR"
"""Airflow's word for an API server that has answered none of its client's tries."""

T = TypeVar("T")
Operator = TypeVar("Operator", bound="RetriedIfAway")


class ApiServerAway(AirflowException):
    """Airflow's API server did not answer. A retry may succeed."""


class RetriedIfAway(MaskedLogs, BaseOperator):
    """An operator that Airflow tries again if the API server was away, or if its worker was lost.

    Airflow's client tries each call five times. Then the task fails, also before it has begun. So
    an operator that was given no ``retries`` has some, which :func:`fails_at_once` keeps from other
    errors of ``execute``. Errors of templates are retried, too: the task fails a minute later.

    An operator that is mapped, with ``partial`` and ``expand``, has no such retries: Airflow reads
    them from the arguments of ``partial``. Give ``retries`` there.

    :param retries: retries after any error. None: those of Airflow's configuration, or else these.
    """

    retries: int  # Airflow's class does not say it

    def __init__(self, *, retries: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs if retries is None else {**kwargs, "retries": retries})
        self.only_if_away = retries is None and not self.retries
        if self.only_if_away:
            self.retries = AWAY_RETRIES
            self.retry_delay = AWAY_DELAY


def fails_at_once(execute: Callable[[Operator, Context], T]) -> Callable[[Operator, Context], T]:
    """Wraps the ``execute`` of an operator: no error is retried that it had no retries for.

    :raises AirflowFailException: in place of such an error, which is its cause.
    """

    @functools.wraps(execute)
    def tried(self: Operator, context: Context) -> T:
        try:
            return execute(self, context)
        except (AirflowFailException, AirflowSkipException):
            raise
        except (Exception, AirflowTaskTimeout) as error:
            if is_away(error):
                self.log.warning("Airflow's API server does not answer: %s", error)
                raise
            if not self.only_if_away:
                raise
            raise AirflowFailException(f"{type(error).__name__}: {error}") from error

    return tried


def is_away(error: BaseException) -> bool:
    """Whether an error says that the API server did not answer, or that it failed."""
    if not isinstance(error, AirflowRuntimeError):
        return isinstance(error, ApiServerAway)
    detail = error.error.detail or {}
    status = detail.get("status_code")
    return error.error.error.value == AWAY and (status is None or int(status) >= 500)


def connection_of(conn_id: str) -> Connection:
    """Returns a connection of Airflow.

    :raises AirflowNotFoundException: it is not defined.
    :raises ApiServerAway: nobody can tell.
    :raises AirflowRuntimeError: the API server refuses to tell.
    """
    try:
        return BaseHook.get_connection(conn_id)
    except AirflowNotFoundException:
        if _is_missing(GetConnection(conn_id=conn_id), f"connection {conn_id}"):
            raise
    return BaseHook.get_connection(conn_id)


def variable_of(name: str) -> str | None:
    """Returns a Variable of Airflow; None: it is not set.

    :raises ApiServerAway: nobody can tell.
    :raises AirflowRuntimeError: the API server refuses to tell.
    """
    found = Variable.get(name, default=None)
    if found is None and not _is_missing(GetVariable(key=name), f"Variable {name}"):
        found = Variable.get(name, default=None)
    return None if found is None else str(found)


def _is_missing(request: GetConnection | GetVariable, what: str) -> bool:
    """Whether the API server says so: Airflow takes what it cannot read for missing.

    Outside of tasks, as in the API server itself, Airflow reads its database, and is right.
    """
    from airflow.sdk.execution_time import task_runner

    comms = getattr(task_runner, "SUPERVISOR_COMMS", None)
    if comms is None:
        return True
    try:
        answer = comms.send(request)
    except AirflowRuntimeError as error:
        answer = error.error
    if not isinstance(answer, ErrorResponse):
        return False
    if answer.error.value in NOT_FOUND:
        return True
    refused = AirflowRuntimeError(answer)
    if is_away(refused):
        raise ApiServerAway(
            f"{what}: Airflow's API server did not answer: {(answer.detail or {}).get('message')}"
        )
    raise refused
