"""SASL PLAIN, the login of Fluss's native protocol (docs/fluss/rpc.md#login)."""

from __future__ import annotations

import random as random_module
from collections.abc import Callable
from dataclasses import dataclass, field

from sluice.errors import AuthenticateError, ConfigurationError, RetriableAuthenticateError
from sluice.model import Caller
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import API_VERSIONS, BOTH, BY_KEY, Api
from sluice.wire.listeners.tokens import User, UsersFile

AUTHENTICATE = Api(
    1038, "Authenticate", pb.AuthenticateRequest, pb.AuthenticateResponse, BOTH, idempotent=True
)
"""For the native protocol only: gRPC sends a bearer token with each call."""

BEFORE_LOGIN = frozenset({API_VERSIONS.key, AUTHENTICATE.key})
"""Api keys of the calls that a client may send before it has logged in."""

_MECHANISM = "PLAIN"
_FIRST_WAIT_S = 0.1
_LONGEST_WAIT_S = 5.0
_JITTER = 0.2
_STRANGER = Caller("", is_admin=False)


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user and a password; the password is never shown."""

    username: str
    password: str = field(repr=False)

    def __post_init__(self) -> None:
        """:raises ConfigurationError: SASL PLAIN cannot carry the user or the password."""
        if not self.username:
            raise ConfigurationError("client.password is set, client.username is not")
        if "\0" in self.username + self.password:
            raise ConfigurationError("client.username and client.password cannot have a NUL")

    def token(self) -> bytes:
        """The token of PLAIN: an empty authorization identity, the user, the password."""
        return f"\0{self.username}\0{self.password}".encode()


class Login:
    """The server's side: the user of one connection, and the calls allowed to that user.

    Only the thread that serves a connection's Authenticate changes it.
    """

    def __init__(self, tokens: UsersFile) -> None:
        self._tokens = tokens
        self._user: User | None = None

    @property
    def done(self) -> bool:
        """Whether a user has logged in."""
        return self._user is not None

    @property
    def user(self) -> str:
        """The name of the user who has logged in; empty if nobody has."""
        return "" if self._user is None else self._user.name

    def authenticate(self, request: pb.AuthenticateRequest) -> pb.AuthenticateResponse:
        """Logs a user in. Further requests succeed and change nothing, as in Fluss: its official
        client sends an empty token after the accepted one.

        :raises AuthenticateError: not PLAIN, no user and password, or wrong ones.
        """
        if request.protocol.upper() != _MECHANISM:
            raise AuthenticateError(
                f"this listener does not support {request.protocol[:64]!r} logins, only"
                f" {_MECHANISM}: set client.username and client.password"
            )
        if self._user is not None:
            return pb.AuthenticateResponse()
        try:
            acts_as, name, password = request.token.decode().split("\0")
        except ValueError:
            raise AuthenticateError(
                f"a token of {_MECHANISM} is an empty identity, user and password with NUL between"
            ) from None
        if acts_as not in ("", name):
            raise AuthenticateError(f"{name[:64]!r} cannot act as another user")
        self._user = self._tokens.of_login(name, password)
        return pb.AuthenticateResponse(challenge=b"")

    def allow(self, api: Api) -> Caller:
        """Checks that the user may make a call.

        :raises AuthenticateError: no user has logged in, or the token was withdrawn.
        :raises AuthorizationError: the user's role does not allow the call.
        """
        if api is API_VERSIONS:
            return _STRANGER  # with this call a client finds out that it must log in
        if self._user is None:
            raise self.missing(api.key)
        return self._tokens.allow(self._user, api)

    @staticmethod
    def missing(api_key: int) -> AuthenticateError:
        """The error of a call that needs a login first."""
        known = BY_KEY.get(api_key)
        return AuthenticateError(
            f"{known.name if known else f'api key {api_key}'}: log in first by SASL {_MECHANISM}"
            " (client.username and client.password; in Fluss's own clients"
            " client.security.protocol = sasl)"
        )


def authenticate(
    credentials: Credentials,
    exchange: Callable[[pb.AuthenticateRequest], pb.AuthenticateResponse],
    sleep: Callable[[float], object],
    random: Callable[[], float] = random_module.random,
) -> None:
    """Logs the client in, and tries again as long as the server requests a retry.

    :param exchange: sends one request; its own deadline ends the attempts.
    :param sleep: raises once there is no time left to wait.
    :raises AuthenticateError: user or password are wrong, or the server requires another mechanism.
    """
    request = pb.AuthenticateRequest(protocol=_MECHANISM, token=credentials.token())
    wait_s = _FIRST_WAIT_S
    while True:
        try:
            reply = exchange(request)
        except RetriableAuthenticateError:
            sleep(wait_s * (1 + _JITTER * (2 * random() - 1)))
            wait_s = min(wait_s * 2, _LONGEST_WAIT_S)
            continue
        if reply.challenge:
            raise AuthenticateError(
                f"the server answers {_MECHANISM} with a challenge of {len(reply.challenge)} bytes,"
                f" which {_MECHANISM} does not have"
            )
        return
