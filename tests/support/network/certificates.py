"""Certificates made on the spot: an authority, and what it signs for a server."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

HOSTS = ("localhost", "127.0.0.1")
_DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Files:
    """A certificate and its key, as PEM files."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates; its own is what a client trusts."""

    def __init__(self, name: str = "test authority") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        builder = _builder(self._name, self._name, self._key, _now() + 30 * _DAY)
        constraints = x509.BasicConstraints(ca=True, path_length=0)
        signed = builder.add_extension(constraints, critical=True).sign(self._key, hashes.SHA256())
        self.pem = signed.public_bytes(serialization.Encoding.PEM).decode()

    def sign(self, folder: Path, *hosts: str, days: int = 30) -> Files:
        """A server's certificate for hosts (names, addresses); ended if ``days`` is negative."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = [_alternative(host) for host in hosts or HOSTS]
        builder = _builder(_named("server"), self._name, key, _now() + days * _DAY)
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        signed = builder.sign(self._key, hashes.SHA256())
        folder.mkdir(parents=True, exist_ok=True)
        files = Files(folder / "server.pem", folder / "server.key")
        _put(files.certificate, signed.public_bytes(serialization.Encoding.PEM))
        secret = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        _put(files.key, secret)
        return files


@cache
def authority() -> Authority:
    """One for all tests of a process."""
    return Authority()


def _put(path: Path, content: bytes) -> None:
    """Another file in its place: one that is written anew may have the times that it had before."""
    new = path.with_name(f"{path.name}.new")
    new.write_bytes(content)
    new.replace(path)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, until: datetime.datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(_now(), until) - _DAY)
        .not_valid_after(until)
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
