"""Starts the keeper of a run's claims in Airflow's triggerer."""

from __future__ import annotations

import json
import logging
import ssl
import time
import urllib.request
from collections.abc import Sequence
from datetime import timedelta
from http.client import HTTPException
from typing import TYPE_CHECKING, Any

from sluice_airflow.airflow_api.airflow_names import conf
from sluice_airflow.airflow_api.api_server import RetriedIfAway, fails_at_once
from sluice_airflow.airflow_api.task_states import ENDED, STARTED, state_of, states_of
from sluice_airflow.config.settings import load_settings
from sluice_airflow.triggers.keep import KeepClaimsTrigger

if TYPE_CHECKING:
    from airflow.sdk import Context

log = logging.getLogger(__name__)

KEEP_FIRST = 100
"""Priority of the task: above the one that claims, whose own includes the tasks after it."""
DEFERRED_S = 6 * 3600.0
"""After this time the task is deferred again, if the run continues.

That needs a worker and a pool slot, and the DAG must not be paused, which is when waiting claims
depend on their keeper. So the time is long; drop_lease ends a task whose triggerer has stopped.
"""
GRACE_S = 60.0
END_S = 15.0
"""How long drop_lease waits for the trigger, which reads its state every few seconds."""
TIMED_OUT = "Trigger timeout"
"""Airflow's text for a deferral that took too long."""
HEALTH_TIMEOUT_S = 5.0
HEALTH_WAIT_S = 30.0
"""How long the task asks again whether a triggerer runs: all of Airflow may just have started."""
HEALTH_EVERY_S = 5.0
NO_TRIGGERER = "no triggerer runs"


class HealthUnknown(Exception):
    """Nobody can tell whether a triggerer runs."""


class SluiceKeepOperator(RetriedIfAway):
    """Keeps the claims of a run alive while none of its tasks runs. Never fails a run.

    Its trigger runs in the triggerer and continues while the DAG is paused. The task takes no slot
    of its pool, also if that counts deferred tasks: what the run needs never waits for it.
    Without a triggerer, the task succeeds after 30 seconds, and claims that wait for two minutes
    are lost. If the API server does not tell, the task is deferred: drop_lease ends it.

    :param lease_id: id of the run. (templated)
    :param drop_task_id: the task that ends the claims. The trigger ends when it starts.
    :param fluss_conn_id: connection of type fluss; None: as the section [sluice] says.
    :param heartbeat_interval_seconds: seconds between two heartbeats. None: as the section says.
    """

    template_fields: Sequence[str] = ("lease_id",)

    def __init__(
        self,
        *,
        lease_id: Any,
        drop_task_id: str,
        fluss_conn_id: str | None = None,
        heartbeat_interval_seconds: int | None = None,
        **kwargs: Any,
    ) -> None:
        settings = load_settings(
            connection=fluss_conn_id, heartbeat_interval_seconds=heartbeat_interval_seconds
        )
        kwargs.setdefault("priority_weight", KEEP_FIRST)
        super().__init__(**kwargs)
        # Not an argument: Airflow refuses 0 there. Its scheduler subtracts what a task says, and in
        # a pool that counts deferred tasks, this one would take a slot until its run ends. No task
        # can read whether its pool does.
        self.pool_slots = 0
        self.lease_id = lease_id
        self.drop_task_id = drop_task_id
        self.fluss_conn_id = settings.connection
        self.heartbeat_interval_seconds = settings.heartbeat_interval_seconds

    @fails_at_once
    def execute(self, context: Context) -> None:
        self._defer(context)

    def _defer(self, context: Context) -> None:
        dag_run = context["dag_run"]
        if dag_run.triggering_user_name == "dag_test":
            self.log.info("a test run has no triggerer; waiting claims are not kept")
            return
        if missing := triggerer_missing_for(HEALTH_WAIT_S):
            self.log.warning(
                "%s; the claims of this run are kept only while one of its tasks runs"
                " (`airflow triggerer` starts a triggerer)",
                missing,
            )
            return
        trigger = KeepClaimsTrigger(
            fluss_conn_id=self.fluss_conn_id,
            lease_id=self.lease_id,
            dag_id=self.dag_id,
            run_id=dag_run.run_id,
            drop_task_id=self.drop_task_id,
            interval_s=float(self.heartbeat_interval_seconds),
            until=time.time() + DEFERRED_S,
        )
        self.defer(
            trigger=trigger,
            method_name="resume_execution",
            timeout=timedelta(seconds=DEFERRED_S + GRACE_S),
        )

    def resume_execution(
        self,
        next_method: str,  # noqa: ARG002
        next_kwargs: dict[str, Any] | None,
        context: Context,
    ) -> None:
        """Airflow calls this if the trigger failed, or if its time has passed."""
        found = next_kwargs or {}
        error = found.get("error")
        if error is not None and getattr(error, "value", error) != TIMED_OUT:
            trace = "\n".join(found.get("traceback") or ())
            self.log.warning("the claims of this run are not kept any more: %s\n%s", error, trace)
        elif not self._is_ending(context["ti"]):
            self._defer(context)

    def _is_ending(self, ti: Any) -> bool:
        try:
            return state_of(ti, self.drop_task_id) in STARTED
        except Exception as error:  # the trigger reads it again
            self.log.warning("cannot read the state of %s: %s", self.drop_task_id, error)
            return False


def end_keeper(ti: Any, task_id: str, wait_s: float = END_S) -> None:
    """Ends the task that keeps the claims of a run if no triggerer does. For drop_lease.

    A deferred task would keep its run open until a triggerer is back.
    """
    from airflow.sdk.execution_time import task_runner
    from airflow.sdk.execution_time.comms import SkipDownstreamTasks

    try:
        until = time.monotonic() + wait_s
        while state_of(ti, task_id) == "deferred":
            if time.monotonic() >= until:
                log.warning("the triggerer did not end %s; it is skipped", task_id)
                task_runner.SUPERVISOR_COMMS.send(SkipDownstreamTasks(tasks=[task_id]))
                return
            time.sleep(min(1.0, wait_s))
    except Exception as error:  # Airflow's API may be unavailable
        log.warning("cannot read whether %s has ended: %s", task_id, error)


def missing_keeper(ti: Any, task_id: str) -> str:
    """Returns why nothing claims a lost table of the run again. Empty: the keeper may.

    :param task_id: the task that keeps the claims.
    """
    try:
        states = states_of(ti, task_id)
    except Exception as error:  # Airflow's API may be unavailable
        log.warning("cannot read the state of %s: %s", task_id, error)
        return ""
    if task_id not in states:
        return f"the run has no task {task_id}"
    state = states[task_id]
    if state in ENDED:
        return f"the task {task_id} has ended as {state}"
    return triggerer_missing_for(0) if state == "deferred" else ""


def triggerer_missing_for(wait_s: float) -> str:
    """Returns why no triggerer keeps the claims. Empty: one is alive, or nobody can tell.

    :param wait_s: for how long to ask again until one is alive, in seconds.
    """
    until = time.monotonic() + wait_s
    while True:
        unknown = ""
        try:
            if has_triggerer():
                return ""
        except HealthUnknown as error:
            unknown = str(error)
        if time.monotonic() >= until:
            break
        time.sleep(min(HEALTH_EVERY_S, wait_s))
    if unknown:
        log.warning("%s; it may keep the claims", unknown)
    return "" if unknown else NO_TRIGGERER


def missing_triggerer() -> str:
    """Returns why a deferred task may wait for ever. Empty: a triggerer is alive."""
    try:
        return "" if has_triggerer() else NO_TRIGGERER
    except HealthUnknown as error:
        return str(error)


def has_triggerer() -> bool:
    """Whether a triggerer is alive.

    A task may not read Airflow's database, so this asks the API server.

    :raises HealthUnknown: it does not answer, or something else does.
    """
    url = f"{_api_server()}/api/v2/monitor/health"
    try:
        with urllib.request.urlopen(  # noqa: S310, the address is Airflow's own setting
            url, timeout=HEALTH_TIMEOUT_S, context=_tls()
        ) as answer:
            health = json.load(answer)
        status = health["triggerer"]["status"]
    except (OSError, HTTPException, ValueError, KeyError, TypeError) as error:
        raise HealthUnknown(f"cannot read from {url} whether a triggerer runs: {error}") from error
    return bool(status == "healthy")


def _api_server() -> str:
    """The address of the API server, where Airflow's own tasks find it."""
    base = conf.get("api", "base_url", fallback="") or "/"
    if base.startswith("/"):
        base = f"http://localhost:8080{base}"
    own = f"{base.rstrip('/')}/execution/"
    found = conf.get("core", "execution_api_server_url", fallback="") or own
    return str(found).rstrip("/").removesuffix("/execution")


def _tls() -> ssl.SSLContext:
    context = ssl.create_default_context()
    if certificate := conf.get("api", "ssl_cert", fallback=""):
        context.load_verify_locations(certificate)
    return context
