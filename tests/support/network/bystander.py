"""A client that works on while others attack its server."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

_CALLS = 20


@dataclass
class Bystander:
    """Makes one call again and again, and notes how long each took; an error is its test's."""

    act: Callable[[], object]
    before_s: list[float] = field(default_factory=list)
    during_s: list[float] = field(default_factory=list)
    after_s: list[float] = field(default_factory=list)

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Calls before, during and after the block, at least 20 times each."""
        self._some(self.before_s)
        done, errors = threading.Event(), list[BaseException]()

        def run() -> None:
            try:
                while not done.is_set():
                    self._once(self.during_s)
                    done.wait(0.001)
                self._some(self.during_s, _CALLS - len(self.during_s))
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
        if errors:
            raise errors[0]
        self._some(self.after_s)

    def assert_served(self, limit_s: float = 5.0) -> None:
        """No call took long: far less than a client waits, and on a busy machine too."""
        times = {"before": self.before_s, "during": self.during_s, "after": self.after_s}
        worst = {name: max(found) for name, found in times.items()}
        assert all(found < limit_s for found in worst.values()), worst

    def _some(self, times: list[float], count: int = _CALLS) -> None:
        for _ in range(count):
            self._once(times)

    def _once(self, times: list[float]) -> None:
        started = time.monotonic()
        self.act()
        times.append(time.monotonic() - started)
