"""One connection of a native listener: reads requests, calls the handlers, writes responses."""

from __future__ import annotations

import asyncio
import math
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import structlog

from sluice.errors import AuthenticateError, FlussError, RecordTooLarge, UnsupportedVersion
from sluice.model import NOBODY
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import Api, Role
from sluice.wire.error_codes import to_error_response
from sluice.wire.listeners.admission import peer_of
from sluice.wire.listeners.fair_turns import party_of
from sluice.wire.listeners.handlers import Handler, serve_call
from sluice.wire.messages.frames import (
    FrameReader,
    RequestHead,
    encode_error,
    encode_failure,
    parse_request,
    response_prefix,
)
from sluice.wire.native.memory import (
    CHUNK_BYTES,
    STEP_BYTES,
    ConnectionUsage,
    RequestUsage,
    Transfer,
)
from sluice.wire.native.sasl import AUTHENTICATE, BEFORE_LOGIN, Login
from sluice.wire.native.workers import Answer, Request, SharedState

MAY_WAIT = frozenset({apis.FETCH_LOG.key})
"""Calls that may wait for data; their responses are not sent in order."""

LOGIN_BYTES_MAX = 64 * 1024
"""Largest request of a client that has not logged in."""

REQUEST_HEAD_BYTES = 8
"""Api key, version and request id."""

PIECE_BYTES = 64 * 1024
"""Bytes of a response that are sent in one wait; a slow client's progress is counted in them."""

JOIN_BYTES = 16 * 1024
"""Up to this size, head and body of a response are sent together: a copy costs less than a call."""

DRAIN_S = 2.0
"""Time to read from a refused client: closing at once would discard the error."""

_log = structlog.get_logger("sluice.native")


class Connection:
    """Lives on the loop's thread from ``run`` to its end."""

    def __init__(
        self,
        peer: socket.socket,
        name: str,
        role: Role,
        handlers: Mapping[Api, Handler],
        shared: SharedState,
        login: Login | None = None,
    ) -> None:
        """:param login: checks the client's login and each call; None: no login is required."""
        self._peer = peer
        self._name = name
        self._host = peer_of(name.rpartition(":")[0])
        self._role = role
        self._calls = {api.key: (api, call) for api, call in handlers.items()}
        self._shared = shared
        self._login = login
        self._rejected = False
        self._logged_in: Callable[[], None] = lambda: None
        self._limits = shared.limits
        self._memory = shared.memory
        self._usage = ConnectionUsage()
        self._loop = asyncio.get_running_loop()
        self._slots = asyncio.Semaphore(self._limits.max_requests)
        self._unanswered = 0
        self._all_answered = asyncio.Event()
        self._all_answered.set()
        self._ending = False
        self._ordered: asyncio.Queue[Request | None] = asyncio.Queue()
        self._write_lock = asyncio.Lock()
        self._is_cut = False  # a response was sent in part: nothing may follow it
        self._reading: asyncio.Task[None] | None = None
        self._arrival: asyncio.Future[bool] = self._loop.create_future()
        self._waits_since_s = 0.0
        self._idle_timer: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Serves the client until it closes the connection or breaks the protocol."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._answer_in_order())
                self._reading = group.create_task(self._read(group))
        except* (OSError, EOFError, TimeoutError, FlussError) as errors:
            _log.debug("connection lost", peer=self._name, error=str(errors.exceptions[0]))
        except* Exception:
            _log.exception("connection failed", peer=self._name)
        finally:
            if self._idle_timer is not None:
                self._idle_timer.cancel()
            self._memory.release_all(self._usage)  # of requests without a response
            self._peer.close()

    def on_login(self, callback: Callable[[], None]) -> None:
        """Sets what is called once the client has logged in, on the pool; it may raise."""
        self._logged_in = callback

    def end(self) -> None:
        """Stops reading; answers the requests that were read, then closes the connection."""
        self._ending = True
        self._ordered.put_nowait(None)  # a read task cancelled before its start does not
        if self._reading is not None:
            self._reading.cancel()

    # -- reading

    async def _read(self, group: asyncio.TaskGroup) -> None:
        try:
            await self._read_requests(group)
        except FlussError as error:
            # The traceback would keep the memory of an incomplete frame.
            await self._refuse(error.with_traceback(None))
        except asyncio.CancelledError:
            if not self._ending:
                raise
        finally:
            self._ordered.put_nowait(None)

    async def _read_requests(self, group: asyncio.TaskGroup) -> None:
        limit = self._limits.max_frame_bytes
        reader = FrameReader(limit, REQUEST_HEAD_BYTES, grow_from=STEP_BYTES)
        while not self._ending and (request := await self._next_request(reader)) is not None:
            if self._is_stranger and request.head.api_key not in BEFORE_LOGIN:
                assert self._login is not None
                # Checked here: it would wait for a worker, and others behind it.
                self._memory.release(request.usage)
                await self._refuse(self._login.missing(request.head.api_key), request.head)
                return
            self._unanswered += 1
            self._all_answered.clear()
            if self._is_stranger:
                self._ordered.put_nowait(request)
                await self._all_answered.wait()  # the next request may need this login
            elif request.head.api_key in MAY_WAIT:
                group.create_task(self._answer(request))
            else:
                self._ordered.put_nowait(request)

    async def _next_request(self, reader: FrameReader) -> Request | None:
        """The next request, once there is memory for it; None if the client closed the connection.

        :raises FlussError: the frame is not valid, exceeds the limit, or arrives too slowly.
        """
        await self._slots.acquire()
        usage = self._memory.add_request(self._usage)
        frame = None
        try:
            if await self._start_frame(reader):
                frame = await self._rest_of_frame(reader, usage)
        finally:
            if frame is None:
                self._memory.release(usage)
        if frame is None:
            return None
        head, payload = parse_request(frame)
        return Request(head, payload, usage)

    async def _start_frame(self, reader: FrameReader) -> bool:
        """Waits for the first bytes of a frame; False if the client closed the connection.

        :raises TimeoutError: the connection was idle.
        """
        idle = False
        while True:
            try:
                count = self._peer.recv_into(reader.free_buffer())
            except (BlockingIOError, InterruptedError):
                if idle:
                    raise TimeoutError from None
                # It has unanswered requests: then the client waits for this server.
                idle = not await self._is_readable() and not self._unanswered
                continue
            if count:
                reader.received(count)
            return count > 0

    async def _is_readable(self) -> bool:
        """Waits until the client sends or leaves; False if it did not within ``idle_s``.

        Nothing is read here: what a timeout cancels may have read a request, which would be lost.
        """
        ready: asyncio.Future[bool] = self._loop.create_future()
        self._arrival = ready
        self._waits_since_s = self._loop.time()
        if self._idle_timer is None:
            self._look_for_idleness_in(self._limits.idle_s)
        self._loop.add_reader(self._peer, _resolve, ready, True)
        try:
            return await ready
        finally:
            self._loop.remove_reader(self._peer)

    def _look_for_idleness_in(self, seconds: float) -> None:
        self._idle_timer = self._loop.call_later(seconds, self._end_idle_wait)

    def _end_idle_wait(self) -> None:
        """One timer for many waits, each of which may begin again before it fires."""
        left_s = self._waits_since_s + self._limits.idle_s - self._loop.time()
        if left_s > 0:
            self._look_for_idleness_in(left_s)
        else:
            self._idle_timer = None
            _resolve(self._arrival, False)

    @property
    def _is_stranger(self) -> bool:
        """Whether the client must log in and has not."""
        return self._login is not None and not self._login.done

    def _check_size(self, rest: int) -> None:
        """:raises AuthenticateError: before its login, a client sends more than a login."""
        if self._is_stranger and rest > LOGIN_BYTES_MAX:
            raise AuthenticateError(
                f"a request of {rest:,} bytes before the login, where the limit is"
                f" {LOGIN_BYTES_MAX:,}"
            )

    async def _rest_of_frame(self, reader: FrameReader, usage: RequestUsage) -> memoryview:
        """Receives the rest of a frame, as memory is free for its bytes.

        :raises EOFError: the client closed the connection inside the frame.
        :raises TimeoutError: the client stalled inside the frame.
        """
        transfer = self._memory.begin(self._usage)
        counted = 0  # and not yet received
        try:
            while True:
                buffer = reader.free_buffer()
                if reader.rest:
                    self._check_size(reader.rest)
                    counted = counted or await self._memory.take(usage, transfer, reader.rest)
                    buffer = buffer[:counted]
                try:  # without a timer, which costs more than a small frame
                    count = self._peer.recv_into(buffer)
                    transfer.moved(count)
                except (BlockingIOError, InterruptedError):
                    count = await transfer.wait(self._loop.sock_recv_into(self._peer, buffer))
                if not count:
                    raise EOFError("the client closed the connection inside a frame")
                if reader.rest:
                    counted -= count
                frame = reader.received(count)
                if frame is not None:
                    return frame
        finally:
            self._memory.end(transfer)

    async def _refuse(self, error: FlussError, head: RequestHead | None = None) -> None:
        """Sends the reason for closing, and reads a little longer so that it arrives.

        :param head: of the request that is refused; None: of a frame that is not complete.
        """
        self._shared.refusals.warning(
            "frame refused", peer=self._name, role=self._role.name, error=str(error)
        )
        with suppress(TimeoutError, EOFError):
            async with asyncio.timeout(DRAIN_S):
                if isinstance(error, RecordTooLarge):
                    # The head after the length names the request that failed.
                    head, _ = parse_request(memoryview(await self._exactly(REQUEST_HEAD_BYTES)))
                if head is None:
                    frame = encode_failure(to_error_response(error))
                else:
                    frame = encode_error(head.request_id, to_error_response(error))
                await self._all_answered.wait()
                self._check_complete()
                await self._loop.sock_sendall(self._peer, frame)
                self._peer.shutdown(socket.SHUT_WR)
                scrap = bytearray(JOIN_BYTES)
                left = float(LOGIN_BYTES_MAX) if self._is_stranger else math.inf
                while left > 0 and (got := await self._loop.sock_recv_into(self._peer, scrap)):
                    left -= got

    async def _exactly(self, count: int) -> bytes:
        got = b""
        while len(got) < count:
            more = await self._loop.sock_recv(self._peer, count - len(got))
            if not more:
                raise EOFError("the client closed the connection inside a frame")
            got += more
        return got

    # -- answering

    async def _answer_in_order(self) -> None:
        while (request := await self._ordered.get()) is not None:
            await self._answer(request)

    async def _answer(self, request: Request) -> None:
        """Makes and sends the response to a request, then releases its memory."""
        try:
            make = self._shared.make_before_login if self._is_stranger else self._shared.make
            prefix, body = await make(self._call, request, self._party)
            async with self._write_lock:
                self._check_complete()
                self._is_cut = True
                await self._send(prefix, body)
                self._is_cut = False
            if self._rejected:
                self.end()
        finally:
            self._unanswered -= 1
            if not self._unanswered:
                self._all_answered.set()
            self._memory.release(request.usage)
            self._slots.release()

    @property
    def _party(self) -> str:
        return party_of(self._host, "" if self._login is None else self._login.user)

    def _call(self, request: Request) -> Answer:
        """Runs on the pool."""
        head = request.head
        try:
            api, call = self._find(head)
            user = NOBODY
            if self._login is not None:
                if api is AUTHENTICATE:
                    call = self._authenticate
                else:
                    user = self._login.allow(api)
            payload, version = bytes(request.payload), head.api_version
            body = serve_call(api, call, payload, version, user, party=self._party)
            return response_prefix(head.request_id, len(body)), body
        except FlussError as error:
            return encode_error(head.request_id, to_error_response(error)), b""
        except Exception as error:
            _log.exception("call failed", api_key=head.api_key, peer=self._name)
            return encode_error(head.request_id, to_error_response(error)), b""

    def _authenticate(self, request: pb.AuthenticateRequest) -> pb.AuthenticateResponse:
        """As in Fluss, a failed login gets a response, then the connection is closed."""
        assert self._login is not None
        try:
            response = self._login.authenticate(request)
        except AuthenticateError as error:
            self._rejected = True
            self._shared.refusals.warning("login refused", peer=self._name, error=str(error))
            raise
        self._logged_in()
        return response

    def _find(self, head: RequestHead) -> tuple[Api, Handler]:
        """:raises UnsupportedVersion: this server has no such call, or no such version of it."""
        found = self._calls.get(head.api_key)
        if found is None:
            known = apis.BY_KEY.get(head.api_key)
            name = f"{known.name} ({head.api_key})" if known else str(head.api_key)
            raise UnsupportedVersion(
                f"this {self._role.name.lower()} does not offer the api key {name};"
                " ApiVersions lists the calls that it offers"
            )
        newest = found[0].max_version
        if not 0 <= head.api_version <= newest:
            raise UnsupportedVersion(
                f"{found[0].name}: version {head.api_version} is not supported; this server has"
                f" 0 to {newest}"
            )
        return found

    def _check_complete(self) -> None:
        """Checks that the previous response was sent completely.

        A client that did not read all of it may be disconnected only later.

        :raises EOFError: the client would read the next response as the rest of that one.
        """
        if self._is_cut:
            raise EOFError("an earlier response to the client was cut off")

    async def _send(self, prefix: bytes, body: bytes) -> None:
        """Sends a response as fast as the client reads it, a large one without a copy.

        :raises TimeoutError: the client reads nothing.
        :raises NetworkError: the client reads too slowly while others wait for memory.
        """
        parts = [prefix + body] if len(body) <= JOIN_BYTES else [prefix, body]
        sent = self._sent_now(parts)
        rest = [memoryview(parts[0])[sent:]]
        rest += [memoryview(part)[max(sent - len(prefix), 0) :] for part in parts[1:]]
        if not any(len(part) for part in rest):
            return
        transfer = self._memory.begin(self._usage)
        try:
            for part in rest:
                await self._send_part(transfer, part)
        finally:
            self._memory.end(transfer)

    async def _send_part(self, transfer: Transfer, part: memoryview) -> None:
        """Sends pieces; after each wait, sends as much as the socket accepts at once."""
        position = 0
        while position < len(part):
            piece = part[position : position + PIECE_BYTES]
            await transfer.wait(self._loop.sock_sendall(self._peer, piece), len(piece))
            position += len(piece)
            sent = self._sent_now([part[position : position + CHUNK_BYTES]])
            transfer.moved(sent)
            position += sent

    def _sent_now(self, parts: Sequence[bytes | memoryview]) -> int:
        """Sends without a wait; returns the number of bytes that the socket accepted."""
        try:
            return self._peer.sendmsg(parts)
        except (BlockingIOError, InterruptedError):
            return 0


def _resolve(future: asyncio.Future[bool], found: bool) -> None:
    if not future.done():
        future.set_result(found)


def send_failure(peer: socket.socket, error: FlussError) -> None:
    """Sends a client the reason why its connection is closed, if the socket is writable."""
    with suppress(OSError):
        peer.send(encode_failure(to_error_response(error)))
