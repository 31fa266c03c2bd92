"""SASL PLAIN, the way a client of Fluss's native protocol says who it is (reference part 1.4)."""

from __future__ import annotations

import random as random_module
from collections.abc import Callable
from dataclasses import dataclass, field

from sluice.errors import AuthenticateError, ConfigurationError, RetriableAuthenticateError
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import BOTH, Api

AUTHENTICATE = Api(
    1038, "Authenticate", pb.AuthenticateRequest, pb.AuthenticateResponse, BOTH, idempotent=True
)
"""Only the native protocol has it: gRPC authenticates in its own way."""

_MECHANISM = "PLAIN"
_FIRST_WAIT_S = 0.1
_LONGEST_WAIT_S = 5.0
_JITTER = 0.2


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user and a password; the password is never shown."""

    username: str
    password: str = field(repr=False)

    def __post_init__(self) -> None:
        """:raises ConfigurationError: for what SASL PLAIN cannot carry."""
        if not self.username:
            raise ConfigurationError("client.password is set, client.username is not")
        if "\0" in self.username + self.password:
            raise ConfigurationError("client.username and client.password cannot hold a NUL")

    def token(self) -> bytes:
        """What PLAIN sends: no identity to act as, then user and password."""
        return f"\0{self.username}\0{self.password}".encode()


def authenticate(
    credentials: Credentials,
    exchange: Callable[[pb.AuthenticateRequest], pb.AuthenticateResponse],
    sleep: Callable[[float], object],
    random: Callable[[], float] = random_module.random,
) -> None:
    """Says who the client is, again while the server says that it should try again.

    :param exchange: sends one request; its own deadline ends the tries.
    :param sleep: raises once there is no time left to wait.
    :raises AuthenticateError: user or password are wrong, or the server wants another mechanism.
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
