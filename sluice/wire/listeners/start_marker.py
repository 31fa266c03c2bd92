"""How a command on the same machine learns that a server is about to listen on a port.

A starting server binds a local socket whose name holds the port; Linux frees the name with the
process. Other systems have no such names: there a command waits its usual time.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress

_HAS_ABSTRACT_NAMES = sys.platform == "linux"


@contextmanager
def starting(ports: Iterable[int]) -> Iterator[None]:
    """Marks a server of these ports as starting while the block lasts."""
    with ExitStack() as stack:
        for port in ports if _HAS_ABSTRACT_NAMES else ():
            marker = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
            with suppress(OSError):  # another server of this port is also starting
                marker.bind(_name(port))
        yield


def is_starting(port: int) -> bool:
    """Whether a server of this machine has marked the port."""
    if not _HAS_ABSTRACT_NAMES:
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as caller:
        try:
            caller.connect(_name(port))
        except OSError:
            return False
    return True


def _name(port: int) -> str:
    return f"\0sluice-server-starting-{port}"
