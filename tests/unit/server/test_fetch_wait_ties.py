"""Users who have nearly as many waiting fetches do not end each other's."""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path

import pytest

from sluice.server.cluster import EmbeddedCluster
from sluice.server.tablet import fetch
from tests.support.processes import wait_for
from tests.support.users import write_users

from .support import batch, config
from .test_fetch_waits import UserCaller

PLACES = 3
"""Fetches that wait at once: one user has two, the other one."""


def test_the_odd_place_stays_whose_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each takes it from the other with its next fetch, for ever."""
    monkeypatch.setattr(fetch, "WAIT_MAX_MS", 200_000)  # nobody has to be quick
    users = write_users(tmp_path / "users")
    settings = config(tmp_path / "data", users_file=str(users), max_workers=2 * PLACES)
    with ThreadPoolExecutor(20) as pool, EmbeddedCluster(settings) as cluster:
        admin, greedy, small = (UserCaller(cluster.address, user) for user in ("ada", "ria", "wim"))
        table = admin.create_table()
        assert cluster._parts is not None
        waits = cluster._parts._fetcher._waiters

        def waiting(caller: UserCaller) -> Future[bytes]:
            return pool.submit(
                lambda: caller.fetch(table, 0, min_bytes=1, max_wait_ms=200_000).records
            )

        many = [waiting(greedy) for _ in range(PLACES)]
        wait_for("all places", lambda: len(waits) == PLACES)
        own = waiting(small)
        early, late = wait(many, 60, FIRST_COMPLETED)
        assert [one.result() for one in early] == [b""], "one has made room"
        for caller in (small, greedy, small):
            again = waiting(caller)
            ended, _ = wait([again, own, *late], 60, FIRST_COMPLETED)
            assert ended == {again}
        admin.produce(table, batch("a"))
        assert all(one.result(60) for one in (own, *late))
        for caller in (admin, greedy, small):
            caller.transport.close()
