"""One TCP connection to one server: sends requests, receives responses in any order.

A thread reads. Each caller sends its own request and waits for the response with its request id.
Every wait has a deadline. An error that ends the connection reaches every waiting caller as a
separate exception.
"""

from __future__ import annotations

import select
import socket
import threading
import time
from contextlib import suppress

from sluice.errors import CorruptMessage, FlussError, NetworkError, RequestTimeOut
from sluice.wire.messages import frames
from sluice.wire.messages.frames import FrameReader, ResponseType

REQUEST_ID_MAX = 2**31 - 1

_GIVEN_UP = "the connection was closed by this client"


class _Waiting:
    """A request without a response yet. Filled by the reading thread, then ``done`` is set."""

    __slots__ = ("answer", "done", "error", "sent")

    def __init__(self) -> None:
        self.done = threading.Event()
        self.sent = False
        self.answer: tuple[ResponseType, memoryview] | None = None
        self.error: FlussError | None = None


class Link:
    """A connection, used once: it is never reopened. Safe for use by many threads."""

    def __init__(self, address: str, sock: socket.socket, max_frame_bytes: int, idle_s: float):
        """Takes over the connected socket. :param address: how errors name the server."""
        self._address = address
        self._socket = sock
        self._max_frame_bytes = max_frame_bytes
        self._idle_s = idle_s
        self._send_lock = threading.Lock()  # held while writing to, or closing, the socket
        self._lock = threading.Lock()  # guards the rest
        self._waiting: dict[int, _Waiting] = {}
        self._next_id = 0
        self._answers = 0
        self._retired = False
        self._ended: FlussError | None = None
        sock.setblocking(False)
        self._thread = threading.Thread(
            target=self._read, name=f"sluice-read-{address}", daemon=True
        )
        self._thread.start()

    @property
    def usable(self) -> bool:
        """Whether it accepts new requests."""
        with self._lock:
            return self._ended is None and not self._retired

    def exchange(
        self, key: int, version: int, body: bytes, deadline: float
    ) -> tuple[ResponseType, memoryview]:
        """Sends a request and waits for its response: SUCCESS or ERROR, and its message.

        :param deadline: of ``time.monotonic()``.
        :raises FlussError: RequestTimeOut, or the error that ended the connection. The detail
            ``sent=False`` means that the request was not sent completely.
        """
        waiting = _Waiting()
        with self._lock:
            if self._ended is not None:
                raise _copied(self._ended, sent=False)
            if self._retired:  # it may be closed any moment: nothing new is sent over it
                raise NetworkError(_GIVEN_UP, sent=False)
            request_id, heard = self._next_id, self._answers
            self._next_id += 1
            self._waiting[request_id] = waiting
            self._retired |= self._next_id > REQUEST_ID_MAX
        try:
            prefix = frames.request_prefix(key, version, request_id, len(body))
            self._send(waiting, [memoryview(prefix), memoryview(body)], deadline)
            answered = waiting.done.wait(max(0.0, deadline - time.monotonic()))
        finally:
            self._leave(request_id)
        if not answered and not waiting.done.is_set():
            self._retire_if_silent(heard)
            raise RequestTimeOut("the server sent no response")
        if waiting.error is not None:
            raise waiting.error
        assert waiting.answer is not None
        return waiting.answer

    def close(self, error: FlussError, *, only_idle: bool = False) -> None:
        """Ends the connection; all waiting callers get the error.

        :param only_idle: does nothing if a caller waits.
        """
        with self._lock:
            if self._ended is not None or (only_idle and self._waiting):
                return
            self._ended = error
            waiting, self._waiting = list(self._waiting.values()), {}
        for one in waiting:
            one.error = _copied(error, sent=None if one.sent else False)
            one.done.set()
        with suppress(OSError):  # wakes the reading thread, which then closes the socket
            self._socket.shutdown(socket.SHUT_RDWR)

    def retire(self) -> None:
        """Ends the connection once no caller waits for it."""
        with self._lock:
            self._retired = True
        self._close_if_left()

    # ---- on the callers' threads ----

    def _leave(self, request_id: int) -> None:
        with self._lock:
            self._waiting.pop(request_id, None)
        self._close_if_left()

    def _close_if_left(self) -> None:
        with self._lock:
            left = self._retired and not self._waiting
        if left:
            self.close(NetworkError(_GIVEN_UP))

    def _retire_if_silent(self, heard: int) -> None:
        """Retires the connection if nothing arrived in the meantime: the server may be down."""
        with self._lock:
            silent = self._answers == heard
        if silent:
            self.retire()

    def _send(self, waiting: _Waiting, parts: list[memoryview], deadline: float) -> None:
        if not self._send_lock.acquire(timeout=max(0.0, deadline - time.monotonic())):
            raise RequestTimeOut("earlier requests are still waiting to be sent", sent=False)
        try:
            total = left = sum(len(part) for part in parts)
            while left:
                if self._ended is not None:
                    raise _copied(self._ended, sent=False)
                # This may complete the frame, and the server may act and close before it returns.
                waiting.sent = True
                try:
                    count = self._socket.sendmsg(parts)
                except BlockingIOError:
                    waiting.sent = False
                    if not _ready(self._socket, select.POLLOUT, deadline - time.monotonic()):
                        timeout = RequestTimeOut("the server does not read the request", sent=False)
                        if left < total:  # no request can follow an incomplete frame
                            self.close(NetworkError("the deadline of a request cut it off"))
                        raise timeout from None
                    continue
                left -= count
                waiting.sent = not left
                parts = _after(parts, count)
        except OSError as error:
            waiting.sent = False
            broken = _hung_up(f"the connection broke: {error}")
            self.close(broken)
            raise _copied(broken, sent=False) from error
        except FlussError:
            raise
        except BaseException:  # such as Ctrl-C: the frame may be incomplete
            self.close(NetworkError("a request was interrupted"))
            raise
        finally:
            self._send_lock.release()

    # ---- on the reading thread ----

    def _read(self) -> None:
        reader = FrameReader(self._max_frame_bytes)
        try:
            while self._ended is None:
                try:
                    count = self._socket.recv_into(reader.free_buffer())
                except BlockingIOError:
                    if not _ready(self._socket, select.POLLIN, self._idle_s):
                        idle = f"the connection was idle for {self._idle_s:g} s"
                        self.close(NetworkError(idle), only_idle=True)
                    continue
                if count == 0:
                    where = " inside a frame" if reader.inside else ""
                    raise _hung_up(f"the server closed the connection{where}")
                frame = reader.received(count)
                if frame is not None:
                    self._deliver(frame)
        except FlussError as error:
            self.close(error)
        except OSError as error:
            self.close(_hung_up(f"the connection broke: {error}"))
        except BaseException as error:  # such as MemoryError: else callers wait for ever
            self.close(NetworkError(f"reading failed: {type(error).__name__}: {error}"))
        finally:
            with self._send_lock:
                self._socket.close()

    def _deliver(self, frame: memoryview) -> None:
        head, body = frames.parse_response(frame)
        if head.type is ResponseType.SERVER_FAILURE or head.request_id is None:
            raise frames.parse_error(body)
        with self._lock:
            waiting = self._waiting.pop(head.request_id, None)
            known = 0 <= head.request_id < self._next_id
            self._answers += 1
        if waiting is None:
            if known:
                return  # its caller's deadline has passed
            raise CorruptMessage(
                f"the server answered request {head.request_id}, which was never sent"
            )
        waiting.answer = head.type, body
        waiting.done.set()


def _ready(sock: socket.socket, event: int, timeout_s: float) -> bool:
    """Waits until the socket can be used or has ended; False if the time passed before."""
    poll = select.poll()
    poll.register(sock, event)
    return bool(poll.poll(max(0.0, timeout_s) * 1000))


def _after(parts: list[memoryview], count: int) -> list[memoryview]:
    """The parts without their first ``count`` bytes."""
    rest = []
    for part in parts:
        if count < len(part):
            rest.append(part[count:])
        count = max(0, count - len(part))
    return rest


def _hung_up(text: str) -> NetworkError:
    """The error for a connection that the other side ended."""
    return NetworkError(text, hung_up=True)


def _copied(error: FlussError, *, sent: bool | None) -> FlussError:
    """A copy of an error for one caller: exceptions cannot be shared between threads."""
    details = error.details if sent is None else {**error.details, "sent": sent}
    return type(error)(error.message, **details)
