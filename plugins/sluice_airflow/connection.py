"""What a connection of type ``fluss`` says, checked and frozen. Knows nothing of Airflow."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from sluice.config import SETTINGS_VARIABLE, ClientConfig, is_pem
from sluice.did_you_mean import did_you_mean
from sluice.errors import ConfigurationError
from sluice.masking import is_secret_name, mask
from sluice_airflow.provider_info import FIELDS

TRANSPORTS = ("grpc", "fluss")
DEFAULT_PORT = 9123
CONF_PREFIX = "spark.sluice."
"""Of Spark properties that the driver takes as settings."""


@dataclass(frozen=True, slots=True)
class FlussConnection:
    """One Fluss cluster, the lake that its tables go to, and where jobs keep their files."""

    bootstrap: str
    """Address of a coordinator: grpc://HOST:PORT."""
    deployment_id: str = "default"
    """Tells two Airflows apart that tier one cluster; part of every lease id."""
    work_uri: str = ""
    """A folder that Airflow and Spark both reach."""
    datalake: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Lake options by Fluss's names without ``datalake.``: format, iceberg.type, ..."""
    fs: Mapping[str, str] = field(default_factory=dict, repr=False)
    """How Fluss's remote storage is reached, by Fluss's names without ``client.fs.``."""
    username: str = ""
    """Who logs in by SASL PLAIN; empty: nobody."""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    """Bearer token, with transport grpc; empty: none is sent."""
    tls: bool = False
    """With transport grpc: a public authority has signed the server's certificate."""
    tls_ca: str = field(default="", repr=False)
    """With transport grpc: authorities one of which has; a PEM file, or its text."""

    @classmethod
    def parse(
        cls,
        connection_id: str,
        host: str | None,
        port: int | None,
        extra: Mapping[str, Any],
        login: str | None = None,
        password: str | None = None,
    ) -> FlussConnection:
        """Checks the fields of a connection.

        :raises ConfigurationError: names connection, field, value and what is allowed.
        """
        if not host:
            raise ConfigurationError(
                f"connection {connection_id!r}: no host; give the coordinator's host and port"
            )
        _check_names(f"connection {connection_id!r}: extra", extra, FIELDS)
        transport = extra.get("transport") or "grpc"
        if transport not in TRANSPORTS:
            raise ConfigurationError(
                f"connection {connection_id!r}: transport {transport!r}; use grpc or fluss"
            )
        _check_login(connection_id, transport, login, password)
        tls, tls_ca = _tls(connection_id, transport, extra)
        work_uri = extra.get("work_uri") or ""
        _check_work_uri(connection_id, work_uri)
        by_token = transport == "grpc"
        return cls(
            bootstrap=f"{transport}://{host}:{port or DEFAULT_PORT}",
            deployment_id=extra.get("deployment_id") or "default",
            work_uri=work_uri,
            datalake=_options(connection_id, "datalake", extra.get("datalake"), "datalake."),
            fs=_options(connection_id, "fs", extra.get("fs"), "client.fs."),
            username=login or "",
            password="" if by_token else password or "",
            token=password or "" if by_token else "",
            tls=tls,
            tls_ca=tls_ca,
        )

    def require_work_uri(self) -> str:
        """:raises ConfigurationError: if the connection names no work folder."""
        if not self.work_uri:
            raise ConfigurationError(
                "the Fluss connection has no work_uri: give a folder that Airflow and Spark both"
                " reach, such as file:///srv/sluice/work or s3://bucket/sluice"
            )
        return self.work_uri

    def client_config(self) -> ClientConfig:
        """How Airflow's own tasks talk to the cluster."""
        return ClientConfig(
            self.bootstrap,
            username=self.username,
            password=self.password,
            token=self.token,
            tls=self.tls,
            tls_ca=self.tls_ca,
            fs=self.fs,
        )

    def spark_conf(self) -> dict[str, str]:
        """Spark properties that tell the driver of lake and cluster; none of them is secret."""
        return {
            f"{CONF_PREFIX}{name}": value
            for name, value in self._settings().items()
            if not _is_secret(name, value)
        }

    def secret_settings(self) -> dict[str, str]:
        """The rest of the driver's settings, ``section.key`` to value."""
        found = {k: v for k, v in self._settings().items() if _is_secret(k, v)}
        if self.username:
            found |= {"client.username": self.username, "client.password": self.password}
        if self.token:
            found["client.token"] = self.token
        if is_pem(self.tls_ca):  # no secret, but many lines
            found["client.tls_ca"] = self.tls_ca
        return found

    def secret_environment(self) -> dict[str, str]:
        """The same as the driver reads it: one variable, which only its own user can see."""
        found = self.secret_settings()
        return {SETTINGS_VARIABLE: json.dumps(found)} if found else {}

    def secrets(self) -> list[str]:
        """Values that no log may show."""
        found = self.secret_settings()
        public = ("client.username", "client.tls_ca")
        return [value for name, value in found.items() if value and name not in public]

    def settings(self) -> dict[str, str]:
        """All settings of the driver, ``section.key`` to value, secret ones too."""
        return {**self._settings(), **self.secret_settings()}

    def _settings(self) -> dict[str, str]:
        return {
            **{f"datalake.{name}": value for name, value in self.datalake.items()},
            **{f"client.fs.{name}": value for name, value in self.fs.items()},
            **({"client.tls": "true"} if self.tls else {}),
            **({"client.tls_ca": self.tls_ca} if self.tls_ca and not is_pem(self.tls_ca) else {}),
        }


def _check_names(where: str, given: Iterable[str], known: Iterable[str]) -> None:
    """:raises ConfigurationError: one of the names is unknown; the value may be secret."""
    for name in given:
        if name not in known:
            hint = did_you_mean(name, known) or f"; the known keys are {', '.join(known)}"
            raise ConfigurationError(f"{where}: unknown key {name!r}{hint}")


def _check_login(
    connection_id: str, transport: str, login: str | None, password: str | None
) -> None:
    """:raises ConfigurationError: the transport cannot send that."""
    if login and transport != "fluss":
        raise ConfigurationError(
            f"connection {connection_id!r}: it has a login, which only transport fluss can send;"
            f" the transport is {transport}, where the password alone is the bearer token"
        )
    if password and not login and transport == "fluss":
        raise ConfigurationError(f"connection {connection_id!r}: a password without a login")


def _check_work_uri(connection_id: str, uri: str) -> None:
    """:raises ConfigurationError: it holds a secret, which would stand in XComs and in plans."""
    if (shown := mask(uri)) != uri:
        raise ConfigurationError(
            f"connection {connection_id!r}: work_uri {shown} holds a password or a key, which"
            " XComs, logs and command lines would show; leave it out: a work folder's storage takes"
            " credentials from the environment (AWS_ACCESS_KEY_ID, ...)"
        )


def _tls(connection_id: str, transport: str, extra: Mapping[str, Any]) -> tuple[bool, str]:
    """:raises ConfigurationError: not true or false, or a transport without TLS."""
    given = extra.get("tls")
    tls = str(given).lower() == "true"
    if given not in (None, "") and str(given).lower() not in ("true", "false"):
        raise ConfigurationError(f"connection {connection_id!r}: tls {given!r}; use true or false")
    tls_ca = extra.get("tls_ca") or ""
    if not isinstance(tls_ca, str):
        kind = type(tls_ca).__name__
        raise ConfigurationError(f"connection {connection_id!r}: tls_ca is a text, not {kind}")
    if (tls or tls_ca) and transport == "fluss":
        raise ConfigurationError(
            f"connection {connection_id!r}: tls and tls_ca are for transport grpc; Fluss's own"
            " protocol has no TLS"
        )
    return tls, tls_ca


def _is_secret(name: str, value: str) -> bool:
    return is_secret_name(name) or mask(value) != value  # an address may hold a password


def _options(connection_id: str, name: str, value: Any, prefix: str) -> Mapping[str, str]:
    """Options flat: ``{"iceberg": {"type": "hadoop"}}`` says the same as ``iceberg.type``."""
    if value in (None, ""):
        return MappingProxyType({})
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except json.JSONDecodeError as error:
            # Its message holds a place, never the text, which may hold secrets.
            raise ConfigurationError(
                f"connection {connection_id!r}: {name} is not JSON: {error}"
            ) from None
    if not isinstance(value, Mapping):
        raise ConfigurationError(
            f"connection {connection_id!r}: {name} is a JSON object of options, not"
            f" {type(value).__name__}"
        )
    where = f"connection {connection_id!r}: {name}"
    found = dict(_flat(where, value, "", prefix))
    if name == "datalake":
        _check_names(where, [key.partition(".")[0] for key in found], ("format", "iceberg"))
    return MappingProxyType(found)


def _flat(where: str, options: Mapping[str, Any], path: str, prefix: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for name, value in options.items():
        key = path + name.removeprefix(prefix)
        if isinstance(value, Mapping):
            found += _flat(where, value, key + ".", prefix)
        elif isinstance(value, bool):
            found.append((key, str(value).lower()))
        elif isinstance(value, str | int | float):
            found.append((key, str(value)))
        else:
            kind = type(value).__name__
            raise ConfigurationError(f"{where}: {key} is a {kind}; give a text or a number")
    return found
