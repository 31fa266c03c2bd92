"""The gRPC listener of a server: puts handlers behind the calls of :mod:`sluice.wire.apis`.

An error that ends a call travels as a gRPC status whose trailing metadata ``fluss-error-bin``
holds an ``ErrorResponse``.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn

import grpc
import structlog
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from sluice.errors import (
    AuthenticateError,
    AuthorizationError,
    ConfigurationError,
    FlussError,
    code_of,
)
from sluice.wire import fluss_services_pb2
from sluice.wire.apis import APIS, SERVICE, Api
from sluice.wire.error_codes import ERROR_KEY, to_error_response
from sluice.wire.handlers import Handler, Handlers, serve_call
from sluice.wire.tls import ServerTls
from sluice.wire.tokens import UsersFile
from sluice.wire.transport import RESPONSE_OVERHEAD_BYTES

DETAIL_CHARS_MAX = 1024
"""Longest error text in the metadata of a status."""

CALLS_PER_WORKER = 4
"""Most calls at once, those that wait for a worker included, for each worker: a request is in
memory as soon as it has arrived. Further calls are refused unread, with RESOURCE_EXHAUSTED."""

STREAMS_MAX = 128
"""Most calls at once on one connection: further calls wait at the client."""

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
    -1: grpc.StatusCode.INTERNAL,
}
"""The nearest gRPC status of a Fluss error code; INVALID_ARGUMENT for others."""

_log = structlog.get_logger("sluice.grpc")


class GrpcServer:
    """A gRPC server over handlers. Start once, stop once."""

    def __init__(
        self,
        handlers: Handlers,
        host: str,
        port: int,
        *,
        max_message_bytes: int,
        max_workers: int,
        tls: ServerTls | None = None,
        tokens: UsersFile | None = None,
    ) -> None:
        """:param tokens: the users whose calls are answered; None: all callers."""
        self._tls = tls
        self._address = f"{f'[{host}]' if ':' in host else host}:{port}"
        self._health = health.HealthServicer()
        self._pool = ThreadPoolExecutor(max_workers, thread_name_prefix="grpc")
        self._server = grpc.server(
            self._pool,
            maximum_concurrent_rpcs=CALLS_PER_WORKER * max_workers,
            interceptors=() if tokens is None else (_BearerTokens(tokens),),
            options=[
                ("grpc.max_receive_message_length", max_message_bytes),
                ("grpc.max_send_message_length", max_message_bytes + RESPONSE_OVERHEAD_BYTES),
                ("grpc.max_concurrent_streams", STREAMS_MAX),
                # Two servers on one port would share its calls silently.
                ("grpc.so_reuseport", 0),
            ],
        )
        for role, calls in handlers.items():
            methods = {api.name: _method(api, call) for api, call in calls.items()}
            handler = grpc.method_handlers_generic_handler(SERVICE[role], methods)
            self._server.add_generic_rpc_handlers((handler,))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        self._services = [SERVICE[role] for role in handlers]
        assert all(
            name.removeprefix("fluss.") in fluss_services_pb2.DESCRIPTOR.services_by_name
            for name in self._services
        )
        reflection.enable_server_reflection(
            (*self._services, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server
        )

    def start(self) -> int:
        """Binds the port and starts to serve; returns the port that was bound.

        :raises ConfigurationError: the address cannot be bound.
        """
        try:
            if self._tls is None:
                port = self._server.add_insecure_port(self._address)
            else:
                port = self._server.add_secure_port(self._address, self._tls.credentials())
        except RuntimeError as error:
            what = str(error).split("; set GRPC_VERBOSITY")[0]  # no help for a used port
            raise ConfigurationError(
                f"cannot listen on grpc://{self._address}: {what}; choose another address with"
                f" --listen grpc://{self._address.rpartition(':')[0]}:PORT"
            ) from error
        self._server.start()
        for name in ("", *self._services):
            self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        return int(port)

    def stop(self, grace_s: float) -> None:
        """Accepts no new calls; ends running calls after the grace period."""
        self._health.enter_graceful_shutdown()
        self._server.stop(grace_s).wait()
        self._pool.shutdown(wait=True)


class _BearerTokens(grpc.ServerInterceptor):  # type: ignore[misc]
    """Checks the bearer token of each call before its message is read.

    Health checks need no token. Reflection and unknown calls need any token.
    """

    def __init__(self, tokens: UsersFile) -> None:
        self._tokens = tokens
        self._apis = {api.grpc_method(role): api for api in APIS for role in api.roles}

    def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        if details.method.startswith(f"/{health.SERVICE_NAME}/"):
            return continuation(details)
        try:
            self._check(details)
        except (AuthenticateError, AuthorizationError) as error:
            refused = error
            _log.warning("call refused", method=details.method, error=str(error))
            # As a stream that is never read: the request stays unread.
            return grpc.stream_unary_rpc_method_handler(lambda _, context: _abort(context, refused))
        return continuation(details)

    def _check(self, details: Any) -> None:
        for name, value in details.invocation_metadata:
            if name == "authorization":
                scheme, _, token = value.partition(" ")
                if scheme.lower() == "bearer" and token:
                    user = self._tokens.of_token(token.strip())
                    break
        else:
            raise AuthenticateError(
                "the server requires a bearer token, and none was sent: set client.token"
                " (SLUICE_CLIENT_TOKEN), or the password of Airflow's connection"
            )
        api = self._apis.get(details.method)
        if api is not None:
            self._tokens.allow(user, api)


def _method(api: Api, call: Handler) -> grpc.RpcMethodHandler:
    def answer(payload: bytes, context: grpc.ServicerContext) -> bytes:
        try:
            return serve_call(api, call, payload)
        except FlussError as error:
            _abort(context, error)
        except Exception as error:
            _log.exception("call failed", api=api.name)
            _abort(context, error)

    return grpc.unary_unary_rpc_method_handler(answer)


def _abort(context: grpc.ServicerContext, error: BaseException) -> NoReturn:
    response = to_error_response(error)
    # gRPC limits metadata to about 8 kB, encoded.
    response.error_message = response.error_message[:DETAIL_CHARS_MAX]
    context.set_trailing_metadata(((ERROR_KEY, response.SerializeToString()),))
    status = _STATUS.get(code_of(error), grpc.StatusCode.INVALID_ARGUMENT)
    context.abort(status, response.error_message[:200])
    raise AssertionError("abort returned")  # pragma: no cover
