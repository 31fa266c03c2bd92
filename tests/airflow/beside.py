"""Tests of a module that run at the same time, because each of them mostly waits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from tests.airflow.live import Live

Test = Callable[[Live], None]


def beside(test: Test) -> Callable[..., None]:
    """Marks a test that may run while the others of its module do. It gets the running Airflow."""

    def collected(together: Together) -> None:
        together.result(test)

    collected.__name__, collected.__doc__ = test.__name__, test.__doc__
    collected.__module__, collected.__qualname__ = test.__module__, test.__qualname__
    collected.beside = test  # type: ignore[attr-defined]
    return collected


class Together:
    """Runs the tests of a module that were chosen, some at a time, from when the first one begins.

    A test that is run once more runs alone.
    """

    def __init__(self, live: Live, chosen: Sequence[Test], at_once: int) -> None:
        self._live, self._chosen = live, chosen
        self._pool = ThreadPoolExecutor(at_once, thread_name_prefix="row")
        self._begun: dict[Test, Future[None]] | None = None

    def result(self, test: Test) -> None:
        """Waits for the end of a test; raises what it raised."""
        if self._begun is None:
            self._begun = {each: self._pool.submit(each, self._live) for each in self._chosen}
        begun = self._begun.pop(test, None)
        (begun or self._pool.submit(test, self._live)).result()

    def close(self) -> None:
        """Ends the waits of those that have begun; the others do not begin."""
        self._live.stopping.set()
        self._pool.shutdown(cancel_futures=True)


def chosen_tests(request: pytest.FixtureRequest) -> list[Test]:
    """The tests of this module and this parameter that run in this session."""

    def is_ours(item: Any) -> bool:
        call = getattr(item, "callspec", None)
        params = call.params if call else {}
        return item.module is request.module and params.get("live") == own

    own = _parameter(request)
    items = [item for item in request.session.items if is_ours(item)]
    functions = [getattr(item, "function", None) for item in items]
    return [function.beside for function in functions if hasattr(function, "beside")]


def _parameter(request: pytest.FixtureRequest) -> object:
    item = request._pyfuncitem
    call = getattr(item, "callspec", None)
    return call.params.get("live") if call else None
