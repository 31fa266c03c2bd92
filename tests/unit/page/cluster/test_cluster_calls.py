"""A cluster that accepts connections and never answers: what needs no call is answered at once."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator

import httpx
import pytest
from fastapi.testclient import TestClient

from sluice.client import Client
from sluice.client.statuses import watch as status_watch
from sluice.config import ClientConfig
from sluice.model import TablePath, TieringStatus
from sluice.page.cluster import cluster_reader
from sluice.page.cluster.cluster_reader import CHANGED_WAITS_MAX
from sluice.page.cluster.seen import SeenTable
from sluice.page.local.place import LocalPlace
from sluice.page.local.serving import local_app
from sluice.page.requests import calls
from sluice.page.requests.calls import AT_ONCE, BUSY
from tests.support.programs.processes import wait_for

READS = ["", "/rounds", "/splits", "/snapshots", "/leases"]
MANY = 40
"""Threads of a server, which Airflow's own API shares."""


@pytest.fixture(params=["fluss", pytest.param("grpc", marks=pytest.mark.long)])
def place(request: pytest.FixtureRequest) -> Iterator[LocalPlace]:
    with socket.create_server(("127.0.0.1", 0), backlog=100) as silent:
        address = f"{request.param}://127.0.0.1:{silent.getsockname()[1]}"
        times = {"request_timeout_ms": 3_000, "connect_timeout_ms": 3_000, "retry_timeout_ms": 0}
        with Client(ClientConfig(address, **times)) as client:
            yield LocalPlace(client)


@pytest.mark.slow
def test_a_cluster_that_hangs_leaves_threads_for_others(place: LocalPlace) -> None:
    async def ask() -> None:
        transport = httpx.ASGITransport(local_app(place))
        async with httpx.AsyncClient(transport=transport, base_url="http://x/api/v1") as page:
            waiting = {
                asyncio.create_task(page.get(f"/tables/shop/orders{READS[number % len(READS)]}"))
                for number in range(MANY - 1)
            }
            waiting.add(asyncio.create_task(page.post("/tables/shop/orders/pause")))
            refused: set[asyncio.Task[httpx.Response]] = set()
            while len(refused) < MANY - AT_ONCE:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                refused |= done
            assert {one.result().status_code for one in refused} == {503}
            assert {one.result().json()["message"] for one in refused} == {BUSY}
            took_s = []
            for _ in range(3):  # other tests may use the machine
                started_s = time.monotonic()
                assert (await page.get("/overview")).status_code == 200
                took_s.append(time.monotonic() - started_s)
            assert min(took_s) < 0.5
            assert len(waiting) == AT_ONCE
            answers = await asyncio.gather(*waiting)
            assert {one.status_code for one in answers} <= {502, 504}
            again = await page.get("/leases")  # the places are free again
            assert again.status_code in (502, 504)

    asyncio.run(ask())


@pytest.mark.slow
def test_a_change_that_cannot_be_read_leaves_threads_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(status_watch, "RETRY_MS", 2_000)  # nobody knows yet that it is away
    monkeypatch.setattr(cluster_reader, "ANSWERED_S", wait_s := 1.5)
    paths = [TablePath("shop", f"t{number}") for number in range(MANY)]
    tables = (SeenTable(TieringStatus(path, 1, "Pending", 1), 0) for path in paths)

    async def ask(place: LocalPlace) -> None:
        transport = httpx.ASGITransport(local_app(place))
        now_ms = place.clock.now_ms()
        async with httpx.AsyncClient(transport=transport, base_url="http://x/api/v1") as page:

            async def changed(path: TablePath, at_ms: int) -> httpx.Response:
                return await page.get("/tables", headers={"X-Sluice-Changed": f"{path}@{at_ms}"})

            started_s = time.monotonic()
            for wrong_ms in (now_ms + 60_000, now_ms - 61_000):
                await changed(paths[0], wrong_ms)
            assert time.monotonic() - started_s < wait_s
            waiting = {asyncio.create_task(changed(path, now_ms)) for path in paths}
            answered: set[asyncio.Task[httpx.Response]] = set()
            while len(answered) < MANY - CHANGED_WAITS_MAX:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                answered |= done
            assert len(waiting) == CHANGED_WAITS_MAX
            answers = [one.result() for one in answered] + await asyncio.gather(*waiting)
            assert {one.status_code for one in answers} == {200}

    with socket.create_server(("127.0.0.1", 0), backlog=100) as silent:
        times = dict.fromkeys(
            ("request_timeout_ms", "connect_timeout_ms", "retry_timeout_ms"), 10_000
        )
        address = f"fluss://127.0.0.1:{silent.getsockname()[1]}"
        with Client(ClientConfig(address, **times)) as client:
            place = LocalPlace(client)
            place.reader.start()
            try:
                place.reader._store.put(tables, is_fluss=False)
                asyncio.run(ask(place))
            finally:
                place.reader.stop()


@pytest.mark.parametrize("scheme", ["grpc", "fluss"])
def test_a_read_waits_for_less_than_an_action(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "READ_MS", 100)
    times = dict.fromkeys(("request_timeout_ms", "connect_timeout_ms", "retry_timeout_ms"), 10_000)
    with socket.create_server(("127.0.0.1", 0), backlog=100) as silent:
        address = f"{scheme}://127.0.0.1:{silent.getsockname()[1]}"
        with Client(ClientConfig(address, **times)) as client:
            page = TestClient(local_app(LocalPlace(client)))
            started_s = time.monotonic()
            for path in READS:
                answer = page.get(f"/api/v1/tables/shop/orders{path}")
                assert answer.status_code in (502, 504)
            assert time.monotonic() - started_s < 10


def test_a_cluster_that_is_known_to_be_away_is_not_called(place: LocalPlace) -> None:
    async def ask() -> list[httpx.Response]:
        transport = httpx.ASGITransport(local_app(place))
        async with httpx.AsyncClient(transport=transport, base_url="http://x/api/v1") as page:
            calls = [page.get(f"/tables/shop/orders{path}") for path in READS]
            return list(await asyncio.gather(*calls, page.get("/leases")))

    place.reader.start()
    try:
        wait_for("the reader to give up", lambda: place.reader.seen.away_ms is not None)
        answers = asyncio.run(ask())
    finally:
        place.reader.stop()
    assert {one.status_code for one in answers} == {502}
    assert all("the cluster did not answer lately" in one.json()["message"] for one in answers)
