"""One connection: what it says of a request that the server may have acted on."""

import socket
import threading
import time

import pytest

from sluice.errors import NetworkError
from sluice.wire.native_link import Link


class SlowToReturn(socket.socket):
    """A socket whose ``sendmsg`` returns only when the peer has long seen the bytes."""

    def sendmsg(self, *arguments: object) -> int:  # type: ignore[override]
        count = super().sendmsg(*arguments)  # type: ignore[arg-type]
        time.sleep(0.2)
        return count


def test_a_request_that_left_whole_is_never_said_to_be_unsent() -> None:
    """The server reads it, acts and closes before the sending thread goes on."""
    here, there = socket.socketpair()
    sock = SlowToReturn(fileno=here.detach())
    link = Link("fluss://test:1", sock, 1 << 20, 60.0)

    def act_and_close() -> None:
        there.recv(1 << 16)
        there.close()

    peer = threading.Thread(target=act_and_close)
    peer.start()
    with pytest.raises(NetworkError) as caught:
        link.exchange(1001, 0, b"create", time.monotonic() + 10)
    peer.join()
    assert caught.value.details.get("sent") is not False


def test_a_request_on_an_ended_connection_is_said_to_be_unsent() -> None:
    here, there = socket.socketpair()
    link = Link("fluss://test:1", here, 1 << 20, 60.0)
    link.close(NetworkError("over"))
    with pytest.raises(NetworkError) as caught:
        link.exchange(1001, 0, b"create", time.monotonic() + 10)
    assert caught.value.details.get("sent") is False
    there.close()
