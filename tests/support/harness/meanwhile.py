"""Something that goes on beside a block of a test."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Meanwhile:
    """Runs something beside a block; what it raised comes out at the end."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self._error = error

    def __enter__(self) -> Meanwhile:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join(180)
        assert not self._thread.is_alive(), "what ran meanwhile hangs"
        if self._error is not None:
            raise self._error
