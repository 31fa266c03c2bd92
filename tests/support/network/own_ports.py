"""The ports of a server that a test stops and starts again."""

from __future__ import annotations

from itertools import cycle

from tests.support.network.ports import held_port, port_of


class OwnPorts:
    """Nobody else listens on them while the server is stopped, where its clients still look for it.

    Over Fluss's own protocol its tablet server comes back on another port each time.
    """

    def __init__(self, scheme: str) -> None:
        self._keepers = [held_port() for _ in range(3 if scheme == "fluss" else 1)]
        first, *tablets = [port_of(keeper) for keeper in self._keepers]
        self.address = f"{scheme}://127.0.0.1:{first}"
        self._endings = cycle([f"?tablet={port}" for port in tablets] or [""])

    def listen(self) -> str:
        """The server's setting for its next start."""
        return self.address + next(self._endings)

    def close(self) -> None:
        for keeper in self._keepers:
            keeper.close()
