"""The listeners of the embedded cluster: one server for each address, over the same handlers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from sluice.config import ServerConfig
from sluice.errors import AuthenticateError, ConfigurationError
from sluice.server.listen_addresses import GRPC, ListenAddress
from sluice.server.metadata import Servers
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import Api, Role
from sluice.wire.grpc.server import GrpcLimits, GrpcServer
from sluice.wire.listeners.admission import within_files
from sluice.wire.listeners.handlers import Handler, Handlers
from sluice.wire.listeners.tokens import UsersFile
from sluice.wire.native.memory import Limits
from sluice.wire.native.sasl import AUTHENTICATE
from sluice.wire.native.server import NativeServer, bind
from sluice.wire.sockets.tls import ServerTls

NATIVE_MEMORY_FRAMES = 4
"""Memory for native requests and responses in flight, as a multiple of the largest request."""

GRPC_CONNECTIONS_MAX = 4096
"""Most connections of a gRPC listener. Those of one peer are counted late, so it has more."""

NATIVE_CONNECTIONS_MAX = 1024
"""Most connections of a native listener."""

_ROLES = (Role.COORDINATOR, Role.TABLET)


@dataclass(frozen=True, slots=True)
class ListenerSecurity:
    """TLS and logins, which all listeners share."""

    tls: ServerTls | None = None
    """Used by gRPC listeners only."""
    tokens: UsersFile | None = None

    @classmethod
    def of(cls, config: ServerConfig) -> ListenerSecurity:
        """Loads the files that the settings name.

        :raises ConfigurationError: a file cannot be used, or only one of certificate and key is
            set.
        """
        certificate, key = config.tls_certificate, config.tls_key
        if bool(certificate) != bool(key):
            lacks = "server.tls_key" if certificate else "server.tls_certificate"
            raise ConfigurationError(
                f"{lacks} is not set: TLS needs both server.tls_certificate and server.tls_key"
            )
        return cls(
            ServerTls(Path(certificate), Path(key)) if certificate else None,
            UsersFile(Path(config.users_file)) if config.users_file else None,
        )


MakeHandlers = Callable[[Callable[[], Servers], Mapping[Api, Handler]], Handlers]
"""Makes the handlers of one listener from its server addresses and its additional calls."""


def authenticate(request: pb.AuthenticateRequest) -> pb.AuthenticateResponse:
    """Handles Authenticate without logins, like a Fluss listener of protocol PLAINTEXT.

    :raises AuthenticateError: the client requests another protocol.
    """
    if request.protocol.upper() != "PLAINTEXT":
        raise AuthenticateError(
            f"this listener does not support {request.protocol} logins, only PLAINTEXT:"
            " connect without user and password"
        )
    return pb.AuthenticateResponse()


def check_free(listen: ListenAddress) -> None:
    """Checks that no other process listens on the ports.

    :raises ConfigurationError: a port is in use.
    """
    by_port = {port: role for role, port in listen.ports.items() if port}
    for port, role in by_port.items():
        bind(listen.host, port, role, listen.scheme).close()


class Listener:
    """Listens on one address. Metadata that its clients request names its own ports."""

    def __init__(
        self,
        listen: ListenAddress,
        handlers: MakeHandlers,
        config: ServerConfig,
        security: ListenerSecurity,
    ) -> None:
        self._listen = listen
        self._ports: Mapping[Role, int] = listen.ports
        self._server: GrpcServer | NativeServer
        if listen.scheme == GRPC:
            self._server = GrpcServer(
                handlers(self.servers, {}),
                listen.host,
                listen.ports[Role.COORDINATOR],
                limits=GrpcLimits(
                    max_message_bytes=config.max_message_bytes,
                    max_workers=config.max_workers,
                    max_connections=within_files(GRPC_CONNECTIONS_MAX),
                    age_s=config.idle_timeout_ms / 1000,
                ),
                tls=security.tls,
                tokens=security.tokens,
            )
        else:
            self._server = NativeServer(
                handlers(self.servers, {AUTHENTICATE: authenticate}),
                listen.host,
                listen.ports,
                max_workers=config.max_workers,
                limits=Limits(
                    max_frame_bytes=config.max_message_bytes,
                    max_bytes=NATIVE_MEMORY_FRAMES * config.max_message_bytes,
                    max_connections=within_files(NATIVE_CONNECTIONS_MAX),
                    idle_s=config.idle_timeout_ms / 1000,
                ),
                tokens=security.tokens,
            )

    @property
    def address(self) -> str:
        """The coordinator's address, which clients use to connect."""
        return self._listen.address(self._ports[Role.COORDINATOR])

    def servers(self) -> Servers:
        """The addresses of both roles, as returned to clients."""
        coordinator, tablet = (
            self._listen.client_address(role, self._ports[role]) for role in _ROLES
        )
        return Servers(coordinator, tablet)

    def start(self) -> None:
        """Binds the ports and accepts calls.

        :raises ConfigurationError: the address cannot be bound.
        """
        bound = self._server.start()
        self._ports = dict.fromkeys(Role, bound) if isinstance(bound, int) else bound

    def stop(self, grace_s: float, handlers_s: float | None = None) -> bool:
        """Stops after at most ``grace_s`` for calls in progress. Does nothing before ``start``.

        :param handlers_s: how long to wait for handlers that still run then; None: until they end.
        :return: whether all handlers have ended.
        """
        return self._server.stop(grace_s, handlers_s)
