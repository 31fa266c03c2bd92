"""The users file of a server: names, roles and digests of tokens, read again when it changes.

One line per token, ``NAME ROLE SHA256``; ROLE is read, write or admin, SHA256 the digest of the
token in hexadecimal. A comment starts with ``#``. A name may have several lines, so that a new
token can be issued before the old one is removed. The file is no secret if tokens are random.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import threading
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from sluice.errors import AuthenticateError, AuthorizationError, ConfigurationError
from sluice.model import Caller
from sluice.wire.apis import Api
from sluice.wire.listeners.access import Access, required_access

TOKENS_MAX = 1_000
"""Most lines of a users file: each call compares its token with all of them."""

FILE_BYTES_MAX = 1 << 20

_ROLES = {access.role: access for access in Access}
_DIGEST = re.compile(r"[0-9a-fA-F]{64}")
_FORM = "NAME ROLE SHA256, the role read, write or admin, the digest 64 hexadecimal digits"

_log = structlog.get_logger("sluice.tokens")

_Stamp = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class User:
    """A line of the file."""

    name: str
    access: Access
    digest: bytes = field(repr=False)


class UsersFile:
    """The users of a users file. Safe for use by many threads.

    If the file becomes unreadable or gets a wrong line, the users that were read before stay valid,
    and the log reports the reason.
    """

    def __init__(self, path: Path) -> None:
        """:raises ConfigurationError: the file cannot be read, or names file, line and reason."""
        self._path = path
        self._lock = threading.Lock()  # guards the next fields
        self._stamp: _Stamp | None = _stamp(path)
        self._users = _read(path)

    def of_token(self, token: str) -> User:
        """The user of a token.

        :raises AuthenticateError: no user has it.
        """
        found = self._find(hashlib.sha256(token.encode()).digest())
        if found is None:
            raise AuthenticateError(
                "the token is wrong or was withdrawn: set client.token to a token of the server's"
                " users file"
            )
        return found

    def of_login(self, name: str, password: str) -> User:
        """The user of that name whose token is the password.

        :raises AuthenticateError: there is none; the error does not name the wrong one of the two.
        """
        found = self._find(hashlib.sha256(password.encode()).digest())
        if found is None or not hmac.compare_digest(found.name.encode(), name.encode()):
            raise AuthenticateError(
                "user or password is wrong: set client.username to a name of the server's users"
                " file, and client.password to its token"
            )
        return found

    def allow(self, user: User, api: Api) -> Caller:
        """Checks that a user may make a call, by the current content of the file.

        :raises AuthenticateError: the token was withdrawn.
        :raises AuthorizationError: the user's role does not allow the call.
        """
        now = self._find(user.digest)
        if now is None or now.name != user.name:
            raise AuthenticateError(f"the token of {user.name!r} was withdrawn")
        need = required_access(api)
        if now.access < need:
            raise AuthorizationError(
                f"{api.name} needs the role {need.role}; {now.name!r} has the role"
                f" {now.access.role}: use another token, or change the role in the users file"
            )
        return Caller(
            now.name,
            is_admin=now.access is Access.ADMIN,
            may_write=now.access >= Access.WRITE,
        )

    def _find(self, digest: bytes) -> User | None:
        """Compares with every line, so that the time does not reveal the line."""
        found = None
        for user in self._current():
            if hmac.compare_digest(user.digest, digest):
                found = user
        return found

    def _current(self) -> tuple[User, ...]:
        stamp = _stamp(self._path)
        with self._lock:
            if stamp != self._stamp:
                self._stamp = stamp  # logged once for each change
                try:
                    self._users = _read(self._path)
                    _log.info("tokens read again", file=str(self._path), tokens=len(self._users))
                except ConfigurationError as error:
                    _log.error("tokens stay as they were", error=str(error))
            return self._users


def _stamp(path: Path) -> _Stamp | None:
    """A value that differs after each change of the file; None if the file is not accessible."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino


def _read(path: Path) -> tuple[User, ...]:
    where = f"server.users_file: {path}"
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
        lines = content.decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigurationError(f"{where}: {reason}") from error
    if len(content) > FILE_BYTES_MAX:
        raise ConfigurationError(f"{where}: it has more than {FILE_BYTES_MAX:,} bytes")
    users: dict[bytes, User] = {}
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        user = _user(words, f"{where}, line {number}")
        if user.digest in users:
            raise ConfigurationError(f"{where}, line {number}: an earlier line has this token")
        users[user.digest] = user
    if not users:
        raise ConfigurationError(f"{where}: it has no users; write lines of {_FORM}")
    if len(users) > TOKENS_MAX:
        raise ConfigurationError(f"{where}: it has {len(users):,} users, the limit is {TOKENS_MAX}")
    return tuple(users.values())


def _user(words: list[str], where: str) -> User:
    # The words are not shown: one of them may be the token itself.
    if len(words) != 3:
        raise ConfigurationError(f"{where}: {len(words)} words; write {_FORM}")
    name, role, digest = words
    if role not in _ROLES:
        raise ConfigurationError(f"{where}: the second word is not a role; write {_FORM}")
    if not _DIGEST.fullmatch(digest):
        raise ConfigurationError(f"{where}: the third word is not a SHA-256 digest; write {_FORM}")
    return User(name, _ROLES[role], bytes.fromhex(digest))
