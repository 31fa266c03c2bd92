"""Opens files of Fluss's remote storage, by default with the cluster's own credentials.

A user's ``client.fs.*`` options come first. The cluster's token fills in what they leave out:
credentials that expire, endpoint and region (docs/fluss/messages.md#file-system-tokens). The
environment of this process supplies the rest.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa
from pyarrow import fs

from sluice.client.connection.connection import Connection
from sluice.clock import Clock, SystemClock
from sluice.errors import CorruptMessage, FlussError, SecurityTokenError, UnsupportedVersion
from sluice.json_text import json_of
from sluice.storage import S3_SCHEMES, file_system, s3_file_system, s3_options
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb

_LOG = logging.getLogger(__name__)
_RENEW_AFTER = 0.75
"""Fraction of a token's lifetime after which it is renewed, as Fluss's option
client.filesystem.security.token.renewal.time-ratio.
"""
_ASK_AGAIN_MS = 10_000
"""Minimum time between two token requests, regardless of a token's expiration."""
_CREDENTIALS_IN_TOKEN = {
    "access_key_id": "access_key",
    "access_key_secret": "secret_key",
    "security_token": "session_token",
}
_CREDENTIALS = frozenset(_CREDENTIALS_IN_TOKEN.values())
_IDENTITIES = frozenset({"access_key", "role_arn", "anonymous"})
"""Arguments that say whose credentials count."""


@dataclass(frozen=True, slots=True)
class FileToken:
    """The cluster's credentials and settings for its remote storage."""

    scheme: str
    s3: Mapping[str, object] = field(repr=False)
    """Credentials, endpoint and region, as arguments of pyarrow's S3FileSystem."""
    expires_ms: int | None
    """Epoch milliseconds; None if the token never expires."""

    @classmethod
    def of(cls, answer: pb.GetFileSystemSecurityTokenResponse) -> FileToken:
        """Parses a response.

        :raises CorruptMessage: the token holds no credentials; its bytes are not shown.
        """
        s3 = s3_options({pair.key: pair.value for pair in answer.addition_info})
        if answer.token and answer.schema in S3_SCHEMES:
            s3 |= _credentials(answer.token)
        expires_ms = answer.expiration_time if answer.HasField("expiration_time") else None
        return cls(answer.schema, s3, expires_ms)


class RemoteFiles:
    """Opens remote files for one client. Safe for use by many threads."""

    def __init__(self, connection: Connection, clock: Clock | None = None) -> None:
        self._connection = connection
        self._options = connection.config.fs
        self._s3_options = s3_options(self._options)
        # With credentials and a region or endpoint in the options, no token is needed.
        self._has_identity = not _IDENTITIES.isdisjoint(self._s3_options)
        self._is_complete = self._has_identity and (
            "endpoint_override" in self._s3_options or "region" in self._s3_options
        )
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()  # guards the rest; held during a token request
        self._token = FileToken("", {}, None)
        self._renew_ms = 0.0
        self._s3: fs.FileSystem | None = None

    def open(self, uri: str) -> pa.NativeFile:
        """Opens a file for random reads; the caller closes it.

        :raises ConfigurationError: an option is not valid, or hdfs lacks Hadoop's library.
        :raises NoFileSystem: no installed library supports the scheme.
        :raises FlussError: the cluster did not respond to the token request.
        :raises OSError: the file does not exist, or access is denied.
        """
        scheme, _, rest = uri.partition("://")
        if scheme in S3_SCHEMES:
            return self._s3_now().open_input_file(rest)
        found, path = file_system(uri, self._options)
        return found.open_input_file(path)

    def forget_token(self) -> None:
        """Forgets the token, which may be revoked; the next ``open`` requests a new one."""
        with self._lock:
            self._renew_ms = 0

    def _s3_now(self) -> fs.FileSystem:
        with self._lock:
            now_ms = self._clock.now_ms()
            if not self._is_complete and now_ms >= self._renew_ms:
                token = self._renewed(now_ms)
                if token != self._token:
                    self._token, self._s3 = token, None
            if self._s3 is None:
                self._s3 = s3_file_system(self._arguments())
            return self._s3

    def _arguments(self) -> Mapping[str, object]:
        """Returns the user's options, completed by the token; never mixes their credentials."""
        told = dict(self._token.s3)
        if self._has_identity:
            told = {name: value for name, value in told.items() if name not in _CREDENTIALS}
        return {**told, **self._s3_options}

    def _renewed(self, now_ms: int) -> FileToken:
        api = apis.GET_FILESYSTEM_SECURITY_TOKEN
        ends_ms = self._token.expires_ms or math.inf
        try:
            request = pb.GetFileSystemSecurityTokenRequest()
            token = self._connection.call_tablet(api, request, FileToken.of)
        except (SecurityTokenError, UnsupportedVersion) as error:
            # The options or the environment may suffice; if not, the storage reports that itself.
            _LOG.warning("the cluster issued no token for its remote storage: %s", error)
            token = FileToken("", {}, None)
        except FlussError as error:
            if not self._token.scheme or now_ms >= ends_ms:
                raise
            _LOG.warning(
                "the token for the remote storage was not renewed and stays in use: %s", error
            )
            self._renew_ms = now_ms + _ASK_AGAIN_MS
            return self._token
        ends_ms = token.expires_ms or math.inf
        self._renew_ms = now_ms + max(_ASK_AGAIN_MS, _RENEW_AFTER * (ends_ms - now_ms))
        return token


def _credentials(token: bytes) -> dict[str, object]:
    try:
        content = json_of(token)
        found = {ours: content.get(theirs) for theirs, ours in _CREDENTIALS_IN_TOKEN.items()}
    except (ValueError, AttributeError) as error:
        raise CorruptMessage("the token for the remote storage is not a JSON object") from error
    if not isinstance(found["access_key"], str) or not isinstance(found["secret_key"], str):
        raise CorruptMessage("the token for the remote storage holds no S3 credentials")
    return {name: value for name, value in found.items() if value}
