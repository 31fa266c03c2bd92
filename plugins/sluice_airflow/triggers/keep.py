"""Keeps the claims of a run alive from the triggerer, which needs no worker and no pool slot."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TaskSuccessEvent, TriggerEvent
from asgiref.sync import sync_to_async

from sluice_airflow.hooks.fluss import FlussHook
from sluice_airflow.task_states import STARTED

if TYPE_CHECKING:
    from sluice_airflow.keeper import ClaimKeeper

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


class KeepClaimsTrigger(BaseTrigger):
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
        # Airflow's calls need its own event loop, which sync_to_async passes on to the thread.
        connection = await sync_to_async(FlussHook(self.fluss_conn_id).config)()
        # Imported in a thread: it loads pyarrow and gRPC.
        client, keeper = await asyncio.to_thread(_open, connection, self.lease_id)
        self.log.info("lease %s: keeping the claims of the run", self.lease_id)
        try:
            run_ended = await self._keep(keeper)
        finally:
            await asyncio.to_thread(client.close)
        self.log.info("lease %s: %s", self.lease_id, keeper.summary())
        yield TaskSuccessEvent() if run_ended else TriggerEvent("defer again")

    async def _keep(self, keeper: ClaimKeeper) -> bool:
        """Returns whether the run has ended; else the time has passed."""
        # In a task of its own: Airflow's first answer may take longer than a heartbeat may wait.
        end = asyncio.create_task(self._wait_for_end())
        try:
            while not end.done():
                if time.time() >= self.until:
                    return False
                if await asyncio.to_thread(keeper.beat):
                    await self._claim_again(keeper)
                # Jitter spreads the heartbeats of many runs over time.
                await asyncio.wait({end}, timeout=self.interval_s * random.uniform(0.5, 1.0))
            return True
        finally:
            end.cancel()

    async def _wait_for_end(self) -> None:
        while not await self._is_ending():
            await asyncio.sleep(POLL_S)

    async def _claim_again(self, keeper: ClaimKeeper) -> None:
        if await self._is_ending():
            return
        # If drop_lease starts after the next check, it finds the new plans.
        if await asyncio.to_thread(keeper.claim_again) and await self._is_ending():
            await asyncio.to_thread(keeper.release_again)

    async def _is_ending(self) -> bool:
        """Returns whether drop_lease has started. Then it ends the claims."""
        from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

        try:
            found = await sync_to_async(RuntimeTaskInstance.get_task_states)(
                dag_id=self.dag_id, task_ids=[self.drop_task_id], run_ids=[self.run_id]
            )
        except Exception as error:  # Airflow's database may be unavailable: keep the claims
            self.log.warning("cannot read the state of %s: %s", self.drop_task_id, error)
            return False
        return found.get(self.run_id, {}).get(self.drop_task_id) in STARTED


def _open(connection: Any, lease_id: str) -> tuple[Any, ClaimKeeper]:
    from sluice.client import connect
    from sluice_airflow.keeper import ClaimKeeper

    client = connect(connection.client_config())
    return client, ClaimKeeper(client, connection.require_work_uri(), lease_id)
