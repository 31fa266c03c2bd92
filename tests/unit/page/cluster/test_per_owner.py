"""What is kept of an owner: one value for all threads, and none after its end."""

from __future__ import annotations

import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest

from sluice.page.cluster.per_owner import PerOwner
from tests.support.programs.processes import wait_for


class Owner:
    pass


def test_many_threads_get_the_one_value_of_an_owner() -> None:
    values: PerOwner[Owner, object] = PerOwner()
    owner, other = Owner(), Owner()
    together = threading.Barrier(8)
    made: list[object] = []

    def make() -> object:
        made.append(object())
        return made[-1]

    def ask(_: int) -> object:
        together.wait(30)
        return values.of(owner, make)

    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(ask, range(8)))
    assert found == set(made)
    assert len(made) == 1
    assert values.of(other, make) is made[1]


def test_a_value_ends_with_its_owner_and_so_do_its_threads() -> None:
    pools: PerOwner[Owner, ThreadPoolExecutor] = PerOwner()
    owner = Owner()
    pool = pools.of(owner, lambda: ThreadPoolExecutor(2))
    thread = pool.submit(threading.current_thread).result(30)
    value = weakref.ref(pool)
    del pool
    gc.collect()
    assert value() is not None
    assert thread.is_alive()
    del owner
    gc.collect()
    assert value() is None
    wait_for("the thread to end", lambda: not thread.is_alive())


def test_a_failure_to_make_a_value_leaves_none() -> None:
    values: PerOwner[Owner, int] = PerOwner()
    owner = Owner()

    def fail() -> int:
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        values.of(owner, fail)
    assert values.of(owner, lambda: 7) == 7
