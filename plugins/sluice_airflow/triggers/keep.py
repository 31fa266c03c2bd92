"""Keeps the claims of a run alive from the triggerer, which needs no worker and no pool slot."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from airflow.triggers.base import BaseTrigger, TaskSuccessEvent, TriggerEvent
from asgiref.sync import sync_to_async

from sluice.masking import mask
from sluice_airflow.airflow_api.logs import MaskedLogs
from sluice_airflow.airflow_api.task_states import STARTED
from sluice_airflow.hooks.fluss import FlussHook

if TYPE_CHECKING:
    from sluice.client import Client
    from sluice_airflow.acquire.keeper import ClaimKeeper

ARGUMENTS = (
    "fluss_conn_id",
    "lease_id",
    "dag_id",
    "run_id",
    "drop_task_id",
    "interval_s",
    "until",
)
POLL_S = 5.0
"""Seconds between two reads of the state of drop_lease: as often as a running task reports its own
heartbeat to Airflow."""
CANCELLED_S = 30.0
"""How long a cancelled trigger waits for its thread."""

T = TypeVar("T")


class KeepClaimsTrigger(MaskedLogs, BaseTrigger):
    """Sends the heartbeats of a run's claims until its drop_lease task starts.

    :param until: time (in seconds since 1970) after which the task is to be deferred again.
    """

    def __init__(
        self,
        fluss_conn_id: str,
        lease_id: str,
        dag_id: str,
        run_id: str,
        drop_task_id: str,
        interval_s: float,
        until: float,
    ) -> None:
        super().__init__()
        self.fluss_conn_id = fluss_conn_id
        self.lease_id = lease_id
        self.dag_id = dag_id
        self.run_id = run_id
        self.drop_task_id = drop_task_id
        self.interval_s = interval_s
        self.until = until

    def serialize(self) -> tuple[str, dict[str, Any]]:
        path = f"{type(self).__module__}.{type(self).__qualname__}"
        return path, {name: getattr(self, name) for name in ARGUMENTS}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Ends the task with its run by itself, so that no worker has to resume it."""
        # In a task of its own: Airflow's first answer may take longer than a heartbeat may wait.
        end = asyncio.create_task(self._wait_for_end())
        try:
            opened = None
            while opened is None and not self._is_over(end):
                opened = await self._open(end)
            if opened is not None:
                client, keeper = opened
                try:
                    await self._keep(keeper, end)
                    # Not after close: Airflow loses lines that come close before the event.
                    self.log.info("lease %s: %s", self.lease_id, keeper.summary())
                finally:
                    await asyncio.to_thread(client.close)
            run_ended = end.done()
        finally:
            end.cancel()
        yield TaskSuccessEvent() if run_ended else TriggerEvent("defer again")

    async def _open(self, end: asyncio.Task[None]) -> tuple[Client, ClaimKeeper] | None:
        """Opens the connection. After an error it waits until the next heartbeat would be due."""
        try:
            # Airflow's calls need its own event loop, which sync_to_async passes on to the thread.
            connection = await sync_to_async(FlussHook(self.fluss_conn_id).config)()
            # Imported in a thread: it loads pyarrow and gRPC.
            opened = await asyncio.to_thread(_open, connection, self.lease_id, self.interval_s)
        except Exception as error:
            self.log.warning(
                "lease %s: the claims of the run are not kept yet: %s",
                self.lease_id,
                mask(str(error)),
            )
            await asyncio.wait({end}, timeout=self.interval_s)
            return None
        self.log.info("lease %s: keeping the claims of the run", self.lease_id)
        return opened

    async def _keep(self, keeper: ClaimKeeper, end: asyncio.Task[None]) -> None:
        end.add_done_callback(lambda _: keeper.stop())
        try:
            while not self._is_over(end):
                if await _in_thread(keeper.beat) and await self._is_ending() is False:
                    await _in_thread(keeper.claim_again, keeper.stop)
                # If drop_lease starts after this check, it finds the new plans.
                if keeper.is_unconfirmed and await self._is_ending() is False:
                    keeper.confirm_again()
                # Jitter spreads the heartbeats of many runs over time.
                await asyncio.wait({end}, timeout=keeper.interval_s * random.uniform(0.5, 1.0))
            if end.done() or await self._is_ending():
                await _in_thread(keeper.release_again)
        except asyncio.CancelledError:
            # drop_lease may have skipped this task, and then released what it found.
            await _in_thread(keeper.release_again)
            raise

    def _is_over(self, end: asyncio.Task[None]) -> bool:
        return end.done() or time.time() >= self.until

    async def _wait_for_end(self) -> None:
        while not await self._is_ending():
            await asyncio.sleep(POLL_S)

    async def _is_ending(self) -> bool | None:
        """Returns whether drop_lease has started, which ends the claims. None: unknown."""
        from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

        try:
            found = await sync_to_async(RuntimeTaskInstance.get_task_states)(
                dag_id=self.dag_id, task_ids=[self.drop_task_id], run_ids=[self.run_id]
            )
        except Exception as error:
            self.log.warning("cannot read the state of %s: %s", self.drop_task_id, error)
            return None
        return found.get(self.run_id, {}).get(self.drop_task_id) in STARTED


async def _in_thread(work: Callable[[], T], stop: Callable[[], None] = lambda: None) -> T:
    """Runs work in a thread. If cancelled, waits for its end, because the client is closed next.

    :param stop: called first in that case, so that the work ends soon.
    """
    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        stop()
        await asyncio.wait({running}, timeout=CANCELLED_S)
        raise


def _open(connection: Any, lease_id: str, interval_s: float) -> tuple[Client, ClaimKeeper]:
    from sluice.client import connect
    from sluice_airflow.acquire.keeper import ClaimKeeper

    work_uri = connection.require_work_uri()
    client = connect(connection.client_config())
    return client, ClaimKeeper(client, work_uri, lease_id, interval_s)
