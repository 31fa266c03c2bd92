"""Waits for a table in the triggerer, which needs no worker and no pool slot."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from airflow.triggers.base import BaseTrigger, TriggerEvent
from asgiref.sync import sync_to_async

from sluice_airflow.airflow_api.logs import MaskedLogs
from sluice_airflow.hooks.fluss import FlussHook

if TYPE_CHECKING:
    from sluice.client import Client
    from sluice_airflow.goals.table_watch import Look, TableWatch

T = TypeVar("T")

THREADS = 8
_LOOKS = ThreadPoolExecutor(THREADS, thread_name_prefix="sluice-sensors")
"""For all sensors of a triggerer. The loop's own threads stay free for the heartbeats of claims,
even if many sensors wait for a server that does not answer."""
ARGUMENTS = ("fluss_conn_id", "watch", "interval_s", "until", "timeout_s")


class TableTieredTrigger(MaskedLogs, BaseTrigger):
    """Looks at a table until its lake has what a sensor waits for. Never changes anything.

    Its event has one of the keys ``tiered`` (the value that the sensor returns) with ``line`` (the
    last line of the log), ``failure`` and ``timed_out`` (texts).

    :param watch: what is waited for, as ``TableWatch.to_json`` describes it.
    :param interval_s: seconds between two looks.
    :param until: time (in seconds since 1970) of the last look.
    :param timeout_s: the timeout that the sensor has, for the text of ``timed_out``.
    """

    def __init__(
        self,
        fluss_conn_id: str,
        watch: dict[str, Any],
        interval_s: float,
        until: float,
        timeout_s: float,
    ) -> None:
        super().__init__()
        self.fluss_conn_id = fluss_conn_id
        self.watch = watch
        self.interval_s = interval_s
        self.until = until
        self.timeout_s = timeout_s

    def serialize(self) -> tuple[str, dict[str, Any]]:
        path = f"{type(self).__module__}.{type(self).__qualname__}"
        return path, {name: getattr(self, name) for name in ARGUMENTS}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        # Imported in a thread, like all that follows: it loads pyarrow and gRPC.
        watch = await _in_thread(partial(_watch, self.watch))
        client: Client | None = None
        try:
            while True:
                is_last = time.time() >= self.until
                client, found = await self._look(watch, client)
                for level, line in found.lines:
                    self.log.log(level, "%s", line)
                if (event := _event(watch, found)) is not None:
                    break
                if is_last:
                    event = {"timed_out": watch.timed_out(self.timeout_s)}
                    break
                await asyncio.sleep(min(self.interval_s, max(self.until - time.time(), 0)))
        finally:
            # Also if the trigger is cancelled: it ends a look that is still under way in a thread.
            if client is not None:
                await asyncio.to_thread(client.close)
        yield TriggerEvent(event)

    async def _look(self, watch: TableWatch, client: Client | None) -> tuple[Client | None, Look]:
        """One look; opens the client before the first one."""
        if client is None:
            try:
                # Airflow's calls need its own event loop, which sync_to_async passes to the thread.
                config = await sync_to_async(FlussHook(self.fluss_conn_id).config)()
                watch.secrets = tuple(config.secrets())
                watch.work_uri = config.work_uri
                client = await _opened(config)
            except Exception as error:  # Airflow's API may be away, or the connection be changed
                return None, watch.unread(error, may_heal=True)
        return client, await _in_thread(partial(watch.look, client))


async def _in_thread(work: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(_LOOKS, work)


async def _opened(config: Any) -> Client:
    """Opens a client, which is closed again if the trigger is cancelled meanwhile."""
    opening = asyncio.get_running_loop().run_in_executor(_LOOKS, partial(_open, config))
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        opening.add_done_callback(_close)
        raise


def _close(opened: asyncio.Future[Client]) -> None:
    if not opened.cancelled() and opened.exception() is None:
        opened.result().close()


def _event(watch: TableWatch, found: Look) -> dict[str, Any] | None:
    if found.tiered is not None:
        return {"tiered": dict(found.tiered), "line": watch.last_line}
    return {"failure": found.failure} if found.failure else None


def _watch(content: dict[str, Any]) -> TableWatch:
    from sluice_airflow.goals.table_watch import TableWatch

    return TableWatch.from_json(content)


def _open(config: Any) -> Client:
    from sluice_airflow.goals.table_watch import open_client

    return open_client(config)
