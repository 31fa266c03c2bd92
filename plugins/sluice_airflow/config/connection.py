"""The checked fields of a connection of type ``fluss``. Does not import Airflow."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from sluice.config import SETTINGS_VARIABLE, ClientConfig, is_pem
from sluice.did_you_mean import did_you_mean
from sluice.errors import ConfigurationError
from sluice.json_text import json_of
from sluice.masking import is_secret_name, know, mask, secrets_in, secrets_of
from sluice_airflow.provider_info import FIELDS

TRANSPORTS = ("grpc", "fluss")
DEFAULT_PORT = 9123
UNNAMED = "default"
"""The id that Airflow's form filled in up to 0.1. Many Airflows have it, so it names none."""
CONF_PREFIX = "spark.sluice."
"""Prefix of the Spark properties that the driver reads as settings."""


@dataclass(frozen=True, slots=True)
class FlussConnection:
    """A Fluss cluster, the lake of its tables, and the work folder of the runs."""

    bootstrap: str
    """Address of a coordinator: grpc://HOST:PORT or fluss://HOST:PORT."""
    deployment_id: str = ""
    """Name of this Airflow in every lease id. Empty: Airflow's own, see ``deployment``."""
    work_uri: str = ""
    """A folder that Airflow and Spark can both write."""
    datalake: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Lake options, named as in Fluss without ``datalake.``: format, iceberg.type, ..."""
    fs: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Options of Fluss's remote storage, named as in Fluss without ``client.fs.``."""
    username: str = ""
    """User for SASL PLAIN. Empty: no login."""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    """Bearer token, with transport grpc. Empty: none is sent."""
    tls: bool = False
    """With transport grpc: use TLS, and accept a certificate of a public authority."""
    tls_ca: str = field(default="", repr=False)
    """With transport grpc: certificates of the accepted authorities; a PEM file or its text."""

    def __post_init__(self) -> None:
        know(self.secrets())

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
        """Checks the fields of a connection and freezes them.

        :raises ConfigurationError: names connection, field, value and the allowed values.
        """
        if not host:
            raise ConfigurationError(
                f"connection {connection_id!r}: no host; give the coordinator's host and port"
            )
        check_names(f"connection {connection_id!r}: extra", extra, FIELDS)
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
        where = f"connection {connection_id!r}"
        deployment_id = str(extra.get("deployment_id") or "").strip()
        return cls(
            bootstrap=f"{transport}://{host}:{port or DEFAULT_PORT}",
            deployment_id="" if deployment_id == UNNAMED else deployment_id,
            work_uri=work_uri,
            datalake=_options(f"{where}: datalake", "datalake", extra.get("datalake"), "datalake."),
            fs=_options(f"{where}: fs", "fs", extra.get("fs"), "client.fs."),
            username=login or "",
            password="" if by_token else password or "",
            token=password or "" if by_token else "",
            tls=tls,
            tls_ca=tls_ca,
        )

    def with_datalake(self, options: Mapping[str, Any] | None) -> FlussConnection:
        """Returns the connection with these lake options over its own.

        :raises ConfigurationError: names the option.
        """
        if not options:
            return self
        given = _options("argument of the DAG file: datalake", "datalake", options, "datalake.")
        return replace(self, datalake=MappingProxyType({**self.datalake, **given}))

    def require_work_uri(self) -> str:
        """:raises ConfigurationError: if the connection names no work folder."""
        if not self.work_uri:
            raise ConfigurationError(
                "the Fluss connection has no work_uri: set it to a folder that Airflow and Spark"
                " can both write, such as file:///srv/sluice/work or s3://bucket/sluice"
            )
        return self.work_uri

    def client_config(self, timeout_ms: int | None = None) -> ClientConfig:
        """Returns the settings of a client that runs in an Airflow task.

        :param timeout_ms: how long a call waits for a cluster that does not answer, in
            milliseconds. None: two minutes.
        """
        config = ClientConfig(
            self.bootstrap,
            username=self.username,
            password=self.password,
            token=self.token,
            tls=self.tls,
            tls_ca=self.tls_ca,
            fs=self.fs,
        )
        if timeout_ms is None:
            return config
        return replace(
            config,
            request_timeout_ms=timeout_ms,
            retry_timeout_ms=timeout_ms,
            connect_timeout_ms=timeout_ms,
        )

    def spark_conf(self) -> dict[str, str]:
        """Returns the driver's settings that are not secret, as Spark properties."""
        return {
            f"{CONF_PREFIX}{name}": value
            for name, value in self._settings().items()
            if not _is_secret(name, value)
        }

    def secret_settings(self) -> dict[str, str]:
        """Returns the driver's other settings, ``section.key`` to value."""
        found = {k: v for k, v in self._settings().items() if _is_secret(k, v)}
        if self.username:
            found |= {"client.username": self.username, "client.password": self.password}
        if self.token:
            found["client.token"] = self.token
        if is_pem(self.tls_ca):  # no secret, but many lines
            found["client.tls_ca"] = self.tls_ca
        return found

    def secret_environment(self) -> dict[str, str]:
        """Returns the secret settings as the one environment variable that the driver reads."""
        found = self.secret_settings()
        return {SETTINGS_VARIABLE: json.dumps(found)} if found else {}

    def secrets(self) -> list[str]:
        """Returns the values that must not appear in a log."""
        found = self.secret_settings()
        public = ("client.username", "client.tls_ca")
        whole = [value for name, value in found.items() if value and name not in public]
        parts = [*secrets_in(found), *(part for value in whole for part in secrets_of(value))]
        return list(dict.fromkeys([*whole, *parts]))

    def settings(self) -> dict[str, str]:
        """Returns all settings of the driver, ``section.key`` to value, including secrets."""
        return {**self._settings(), **self.secret_settings()}

    def _settings(self) -> dict[str, str]:
        return {
            **{f"datalake.{name}": value for name, value in self.datalake.items()},
            **{f"client.fs.{name}": value for name, value in self.fs.items()},
            **({"client.tls": "true"} if self.tls else {}),
            **({"client.tls_ca": self.tls_ca} if self.tls_ca and not is_pem(self.tls_ca) else {}),
        }


def check_names(where: str, given: Iterable[str], known: Iterable[str]) -> None:
    """:raises ConfigurationError: one of the names is unknown; the value may be secret."""
    for name in given:
        if name not in known:
            hint = did_you_mean(name, known) or f"; the known keys are {', '.join(known)}"
            raise ConfigurationError(f"{where}: unknown key {name!r}{hint}")


def _check_login(
    connection_id: str, transport: str, login: str | None, password: str | None
) -> None:
    """:raises ConfigurationError: the transport cannot send this login."""
    if login and transport != "fluss":
        raise ConfigurationError(
            f"connection {connection_id!r}: a login needs transport fluss, but the transport is"
            f" {transport}; remove the login (the password alone is the bearer token), or set"
            " transport to fluss"
        )
    if password and not login and transport == "fluss":
        raise ConfigurationError(
            f"connection {connection_id!r}: a password without a login; transport fluss needs both"
        )


def _check_work_uri(connection_id: str, uri: str) -> None:
    """:raises ConfigurationError: the URI holds a secret, which XComs and plans would show."""
    if (shown := mask(uri)) != uri:
        raise ConfigurationError(
            f"connection {connection_id!r}: work_uri {shown} holds a password or a key, which"
            " XComs, logs and command lines would show; remove it, and set the storage's"
            " credentials in the environment of Airflow and Spark (AWS_ACCESS_KEY_ID, ...)"
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
        raise ConfigurationError(
            f"connection {connection_id!r}: tls_ca must be a string, not {kind}"
        )
    if (tls or tls_ca) and transport == "fluss":
        raise ConfigurationError(
            f"connection {connection_id!r}: tls and tls_ca need transport grpc; Fluss's native"
            " protocol has no TLS"
        )
    return tls, tls_ca


def _is_secret(name: str, value: str) -> bool:
    return is_secret_name(name) or mask(value) != value  # an address may hold a password


def _options(where: str, name: str, value: Any, prefix: str) -> Mapping[str, str]:
    """Flattens options: ``{"iceberg": {"type": "hadoop"}}`` becomes ``iceberg.type``."""
    if value in (None, ""):
        return MappingProxyType({})
    if isinstance(value, str):
        try:
            value = json_of(value)
        except ValueError as error:
            # The message holds a position, never the text, which may hold secrets.
            raise ConfigurationError(f"{where} is not valid JSON: {error}") from None
    if not isinstance(value, Mapping):
        raise ConfigurationError(f"{where} must be a JSON object, not {type(value).__name__}")
    found = dict(_flat(where, value, "", prefix))
    if name == "datalake":
        check_names(where, [key.partition(".")[0] for key in found], ("format", "iceberg"))
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
            raise ConfigurationError(f"{where}: {key} must be a string or a number, not {kind}")
    return found
