"""TLS of the gRPC port: server certificates, client authorities, and advice on handshake errors."""

from __future__ import annotations

import os
import ssl
import threading
from pathlib import Path
from typing import Any

import grpc
import structlog

from sluice.errors import ConfigurationError

_log = structlog.get_logger("sluice.tls")

_Stamp = tuple[tuple[int, int, int], ...]
_Pair = tuple[bytes, bytes]
"""Key and certificates, in gRPC's form."""


class ServerTls:
    """A server's certificate and key, read again as the files change.

    A renewed certificate is used from the next connection on. If it is incomplete or does not match
    its key, the earlier one stays in use, and the log reports the reason.
    """

    def __init__(self, certificate: Path, key: Path) -> None:
        """:raises ConfigurationError: the files cannot be used; names file and reason."""
        self._certificate, self._key = certificate, key
        self._lock = threading.Lock()  # guards _stamp
        self._stamp = self._stamped()
        self._first = self._read()

    def credentials(self) -> Any:
        """The credentials for gRPC's server."""
        first = grpc.ssl_server_certificate_configuration([self._first])
        return grpc.dynamic_ssl_server_credentials(first, self._renewed)

    def _renewed(self) -> Any:
        """gRPC calls this before each handshake; None: nothing has changed."""
        try:
            with self._lock:
                stamp = self._stamped()
                if stamp == self._stamp:
                    return None
                self._stamp = stamp  # logged once for each change
                pair = self._read()
                if self._stamped() != stamp:
                    self._stamp = ()  # only one of the two files was changed: read again
                    return None
        except ConfigurationError as error:
            _log.error("the earlier certificate stays in use", error=str(error))
            return None
        _log.info("certificate read again", file=str(self._certificate))
        return grpc.ssl_server_certificate_configuration([pair])

    def _stamped(self) -> _Stamp:
        found = []
        for setting, path in self._files():
            try:
                stat = path.stat()
            except OSError as error:
                raise ConfigurationError(f"{setting}: {path}: {error.strerror}") from error
            found.append((stat.st_mtime_ns, stat.st_size, stat.st_ino))
        return tuple(found)

    def _read(self) -> _Pair:
        for setting, path in self._files():
            if not os.access(path, os.R_OK):
                raise ConfigurationError(f"{setting}: {path}: the file is not readable")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(self._certificate, self._key, password=_no_password)
            return self._key.read_bytes(), self._certificate.read_bytes()
        except (OSError, ValueError) as error:
            if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
                why = "the key does not belong to the certificate"
            else:
                why = (
                    "provide a certificate (and those between it and its authority) and its key"
                    f" without password, both as PEM ({error})"
                )
            raise ConfigurationError(
                f"server.tls_certificate {self._certificate}, server.tls_key {self._key}: {why}"
            ) from error

    def _files(self) -> tuple[tuple[str, Path], ...]:
        return ("server.tls_certificate", self._certificate), ("server.tls_key", self._key)


def channel_credentials(authorities: str) -> Any:
    """The credentials for gRPC's client.

    :param authorities: certificates as PEM; empty: those that gRPC contains.
    :raises ConfigurationError: they are not valid certificates.
    """
    if not authorities:
        return grpc.ssl_channel_credentials()
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=authorities)
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"client.tls_ca: not the certificates of an authority as PEM ({error})"
        ) from error
    return grpc.ssl_channel_credentials(authorities.encode())


NO_TLS_THERE = (
    "the server does not speak TLS on this port: unset client.tls and client.tls_ca, or enable TLS"
    " at the server (server.tls_certificate)"
)
TLS_THERE = (
    "the server speaks TLS on this port: set client.tls_ca to the certificate of its authority, or"
    " client.tls = true if a public authority has signed it"
)
_OTHER_HOST = (
    "the server's certificate does not name this host: use an address that it names, or issue a"
    " certificate for this host"
)
_MEANINGS = (
    ("WRONG_VERSION_NUMBER", NO_TLS_THERE),
    (
        "certificate has expired",
        "the certificate of the server or of its authority has expired: renew it"
        " (server.tls_certificate)",
    ),
    (
        "certificate is not yet valid",
        "the certificate of the server or of its authority is not valid yet: is the clock of this"
        " machine right?",
    ),
    ("Hostname Verification Check failed", _OTHER_HOST),
    ("is not in peer certificate", _OTHER_HOST),  # of gRPC that is older
    (
        "CERTIFICATE_VERIFY_FAILED",
        "no authority that this client trusts has signed the server's certificate: set"
        " client.tls_ca to the certificate of the authority that has",
    ),
)
"""Phrases of gRPC's and OpenSSL's errors, and the advice for each."""


def handshake_advice(details: str) -> str | None:
    """Advice for the error text of a failed handshake; None for other failures."""
    return next((text for words, text in _MEANINGS if words in details), None)


def _no_password() -> str:
    raise ValueError("the key needs a password")
