"""Serves the calls of a gRPC listener: who may call, how many at once, and how errors travel.

Each call has a thread from its headers on, but only a call whose message has arrived gets one of
the workers. gRPC reads a message only once a thread asks for it. So a call is checked and admitted
before its message is read, and a refused call never reads it.

An error that ends a call travels as a gRPC status whose trailing metadata ``fluss-error-bin``
holds an ``ErrorResponse``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

import grpc
import structlog

from sluice.errors import (
    AuthenticateError,
    FlussError,
    StorageBackpressure,
    UnsupportedVersion,
    code_of,
)
from sluice.masking import cut
from sluice.model import NOBODY, Caller
from sluice.wire.apis import APIS, Api
from sluice.wire.error_codes import ERROR_KEY, to_error_response
from sluice.wire.listeners.admission import Admission, Admitted, peer_of
from sluice.wire.listeners.fair_turns import FairTurns, party_of
from sluice.wire.listeners.handlers import Handler, serve_call
from sluice.wire.listeners.refusals import RefusalLog
from sluice.wire.listeners.tokens import UsersFile

DETAIL_CHARS_MAX = 1024
"""Longest error text in the metadata of a status."""

SEND_S = 60.0
"""Longest time until a client has read the answer to its call."""

_STATUS: dict[int, grpc.StatusCode] = {
    1: grpc.StatusCode.UNAVAILABLE,
    2: grpc.StatusCode.UNIMPLEMENTED,
    4: grpc.StatusCode.NOT_FOUND,
    5: grpc.StatusCode.FAILED_PRECONDITION,
    6: grpc.StatusCode.ALREADY_EXISTS,
    7: grpc.StatusCode.NOT_FOUND,
    8: grpc.StatusCode.ALREADY_EXISTS,
    9: grpc.StatusCode.NOT_FOUND,
    13: grpc.StatusCode.RESOURCE_EXHAUSTED,
    19: grpc.StatusCode.OUT_OF_RANGE,
    21: grpc.StatusCode.NOT_FOUND,
    25: grpc.StatusCode.DEADLINE_EXCEEDED,
    26: grpc.StatusCode.UNAVAILABLE,
    36: grpc.StatusCode.NOT_FOUND,
    42: grpc.StatusCode.ALREADY_EXISTS,
    46: grpc.StatusCode.UNAUTHENTICATED,
    48: grpc.StatusCode.PERMISSION_DENIED,
    53: grpc.StatusCode.NOT_FOUND,
    72: grpc.StatusCode.RESOURCE_EXHAUSTED,
    -1: grpc.StatusCode.INTERNAL,
}
"""The nearest gRPC status of a Fluss error code; INVALID_ARGUMENT for others."""

_NO_MESSAGE = "call ended: its message did not arrive"

_log = structlog.get_logger("sluice.grpc")


class Receiver:
    """Admits calls, then receives their messages."""

    def __init__(self, refusals: RefusalLog) -> None:
        self._refusals = refusals

    def admit(
        self, context: grpc.ServicerContext, admission: Admission, user: str = ""
    ) -> Admitted:
        """Admits a call; its handler releases it once, as gRPC does when the call has ended.

        Ends the call (:func:`abort`) if its peer has too many.
        """
        admitted = self.begin(context, admission, 2, user)
        if not context.add_callback(admitted.release):
            admitted.release()  # it has already ended
        return admitted

    def begin(
        self,
        context: grpc.ServicerContext,
        admission: Admission,
        holds: int = 1,
        user: str = "",
    ) -> Admitted:
        """Admits a call until its handler releases it; otherwise like :meth:`admit`."""
        client = context.peer()
        try:
            return admission.admit(peer_of(client), context.cancel, holds, user, client)
        except StorageBackpressure as error:
            self.refuse("call over a limit", context, error)

    def message(
        self,
        messages: Iterator[bytes],
        context: grpc.ServicerContext,
        admitted: Admitted,
    ) -> bytes:
        """Waits for the one message of a call, which then keeps its place."""
        try:
            payload = next(messages, None)
            admitted.settle()
        except grpc.RpcError:  # the call was cancelled
            if admitted.dropped:
                self._refusals.warning(_NO_MESSAGE, peer=admitted.peer)
            raise
        except StorageBackpressure as error:
            self.refuse(_NO_MESSAGE, context, error)
        if payload is None:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the call has no message")
            raise AssertionError("abort returned")  # pragma: no cover
        return payload

    def refuse(
        self, kind: str, context: grpc.ServicerContext, error: FlussError, api: Api | None = None
    ) -> NoReturn:
        """Ends a call with an error, and logs it."""
        known = {} if api is None else {"api": api.name}
        self._refusals.warning(kind, peer=peer_of(context.peer()), error=str(error), **known)
        abort(context, error)


class ApiCalls:
    """The calls of :mod:`sluice.wire.apis`, and every other that needs a token."""

    def __init__(
        self,
        admission: Admission,
        receiver: Receiver,
        max_workers: int,
        tokens: UsersFile | None,
        used: Callable[[str], None],
    ) -> None:
        """:param tokens: the users whose calls are answered; None: all callers.
        :param used: told the address of the client of each call that may be made.
        """
        self._used = used
        self._admission = admission
        self._receiver = receiver
        self._workers = FairTurns(max_workers)
        self._tokens = tokens

    def handlers(self, calls: Mapping[Api, Handler]) -> dict[str, grpc.RpcMethodHandler]:
        """The handlers by name. Each reads its message itself, once the call was admitted."""
        return {
            api.name: grpc.stream_unary_rpc_method_handler(self._method(api, call))
            for api, call in calls.items()
        }

    def _method(self, api: Api, call: Handler) -> Callable[[Iterator[bytes], Any], bytes]:
        def answer(messages: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
            user = self._user(context, api)
            admitted = self._receiver.admit(context, self._admission, user.name)
            self._used(admitted.client)
            try:
                payload = self._receiver.message(messages, context, admitted)
                party = party_of(admitted.peer, user.name)
                self._wait_for_worker(context, party)
                try:
                    response = _served(api, call, payload, user, party, context)
                finally:
                    self._workers.give_back()
                admitted.expect_end(SEND_S)
                return response
            finally:
                admitted.release()

        return answer

    def _wait_for_worker(self, context: grpc.ServicerContext, party: str) -> None:
        if self._workers.take(party) and not context.is_active():
            self._workers.give_back()
            context.abort(grpc.StatusCode.CANCELLED, "nobody waits for the answer")

    def streamed(self, stream: Callable[[Any, Any], Iterator[Any]]) -> Callable[[Any, Any], Any]:
        """A stream that needs any token, is pending until its end, and so may have to make room."""

        def answer(messages: Any, context: grpc.ServicerContext) -> Iterator[Any]:
            self._user(context)
            admitted = self._receiver.admit(context, self._admission)
            self._used(admitted.client)
            try:
                yield from stream(messages, context)
            finally:
                admitted.release()

        return answer

    def not_offered(self) -> grpc.GenericRpcHandler:
        """Refuses calls that no other handler knows. Their names need a token, too."""
        return _NotOffered(self._refuse_not_offered)

    def _refuse_not_offered(self, api: Api | None, context: grpc.ServicerContext) -> NoReturn:
        self._user(context, api)
        abort(context, UnsupportedVersion("this server does not offer the call"))

    def _user(self, context: grpc.ServicerContext, api: Api | None = None) -> Caller:
        """The user who calls. Ends the call of whom it is not allowed to.

        The message is not read. Reflection and unknown calls have no ``api``, and no caller.
        """
        if self._tokens is None:
            return NOBODY
        try:
            user = self._tokens.of_token(_bearer_token(context))
            return NOBODY if api is None else self._tokens.allow(user, api)
        except FlussError as error:
            self._receiver.refuse("call refused", context, error, api)


class _NotOffered(grpc.GenericRpcHandler):  # type: ignore[misc]
    def __init__(self, refuse: Callable[[Api | None, grpc.ServicerContext], NoReturn]) -> None:
        self._refuse = refuse
        self._apis = {api.grpc_method(role): api for api in APIS for role in api.roles}

    def service(self, details: Any) -> grpc.RpcMethodHandler:
        api = self._apis.get(details.method)
        return grpc.stream_unary_rpc_method_handler(
            lambda _, context: self._refuse(api, context)  # the message is not read
        )


def _served(
    api: Api,
    call: Handler,
    payload: bytes,
    user: Caller,
    party: str,
    context: grpc.ServicerContext,
) -> bytes:
    try:
        return serve_call(api, call, payload, user=user, party=party)
    except FlussError as error:
        abort(context, error)
    except Exception as error:
        _log.exception("call failed", api=api.name)
        abort(context, error)


def _bearer_token(context: grpc.ServicerContext) -> str:
    """:raises AuthenticateError: there is none."""
    for name, value in context.invocation_metadata():
        if name == "authorization":
            scheme, _, token = value.partition(" ")
            if scheme.lower() == "bearer" and token:
                return str(token).strip()
    raise AuthenticateError(
        "the server requires a bearer token, and none was sent: set client.token"
        " (SLUICE_CLIENT_TOKEN), or the password of Airflow's connection"
    )


def abort(context: grpc.ServicerContext, error: BaseException) -> NoReturn:
    """Ends a call with an error."""
    response = to_error_response(error)
    # gRPC limits metadata to about 8 kB, encoded.
    response.error_message = cut(response.error_message, DETAIL_CHARS_MAX)
    context.set_trailing_metadata(((ERROR_KEY, response.SerializeToString()),))
    status = _STATUS.get(code_of(error), grpc.StatusCode.INVALID_ARGUMENT)
    context.abort(status, cut(response.error_message, 200))
    raise AssertionError("abort returned")  # pragma: no cover
