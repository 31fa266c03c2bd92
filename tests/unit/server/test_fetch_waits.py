"""Which fetches may wait for data: a user who waits much keeps no other user from waiting."""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path

import pytest

from sluice.server.cluster import EmbeddedCluster
from sluice.server.tablet import fetch
from sluice.wire.grpc_transport import GrpcTransport
from tests.support.processes import wait_for
from tests.support.users import TOKENS, write_users

from .support import Caller, batch, config

WORKERS = 8
PLACES = WORKERS // 2
"""Fetches that wait at once."""


class UserCaller(Caller):
    def __init__(self, address: str, user: str) -> None:
        super().__init__(address)
        self.transport.close()
        host, port = address.removeprefix("grpc://").rsplit(":", 1)
        token = TOKENS[user][1]
        self.transport = GrpcTransport(address, host, int(port), 64 << 20, token=token)


def test_a_user_with_all_waits_gives_one_to_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "WAIT_MAX_MS", 200_000)  # nobody has to be quick
    users = write_users(tmp_path / "users")
    with (
        EmbeddedCluster(
            config(tmp_path / "data", users_file=str(users), max_workers=WORKERS)
        ) as cluster,
        ThreadPoolExecutor(20) as pool,
    ):
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
        assert waiting(greedy).result(60) == b"", "one more of the same user does not wait"
        assert not any(one.done() for one in many)

        own = [waiting(small)]
        early, _ = wait(many, 60, FIRST_COMPLETED)
        assert [one.result() for one in early] == [b""], "one has made room"
        own.append(waiting(small))
        wait_for("the next", lambda: sum(one.done() for one in many) == 2)
        wait_for("both", lambda: list(waits.values()).count("wim") == 2)
        assert waiting(small).result(60) == b"", "both users have half"
        assert not any(one.done() for one in own)

        admin.produce(table, batch("a"))
        assert all(one.result(60) for one in own)
        assert [bool(one.result(60)) for one in many].count(True) == PLACES - 2
        wait_for("no wait", lambda: not waits)
        for caller in (admin, greedy, small):
            caller.transport.close()
