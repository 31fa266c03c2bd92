"""S3 by pyarrow: Iceberg's ``s3.*``, ``client.*`` and ``http-client.*``, Hadoop's ``fs.s3a.*``.

What no option says comes from the environment, as with any of AWS's clients: keys, profile, web
identity, the role of a container or instance, region, endpoint.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import fs

from sluice.errors import ConfigurationError
from sluice.storage.options.rules import Given, Options, arguments, given, refuse
from sluice.storage.options.s3 import ANONYMOUS, S3_TABLE, SSE_S3, providers
from sluice.storage.timeouts import DEFAULT_TIMEOUTS, StorageTimeouts

S3_SCHEMES = frozenset({"s3", "s3a", "s3n"})

_HADOOP = "fs.s3a."
_SYNONYMS = ("s3.", "s3a.")
"""How Fluss also writes ``fs.s3a.``; the first that is set counts."""
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_CERTIFICATES = "AWS_CA_BUNDLE"
_OLDEST_WITH_CERTIFICATES = 21  # major version of pyarrow
_KEYS = ("access_key", "secret_key", "session_token")
_ROLE = ("role_arn", "session_name", "external_id")
_AWS_HOST = re.compile(r"(^|\.)amazonaws\.com(\.cn)?$")


def s3_options(options: Mapping[str, str], bucket: str = "") -> dict[str, object]:
    """Arguments for pyarrow's S3FileSystem; other values come from the environment.

    :param bucket: ``fs.s3a.bucket.BUCKET.*`` count before ``fs.s3a.*``.
    :raises ConfigurationError: a value is not valid.
    """
    return _arguments(_given(options, bucket))


def refuse_s3(options: Mapping[str, str], bucket: str = "") -> None:
    """Refuses options that pyarrow's S3FileSystem cannot honour.

    :raises ConfigurationError: names the option, its value, and what to do.
    """
    found = _given(options, bucket)
    passed = _arguments(found)
    refuse(S3_TABLE, found, passed)
    _refuse_unmade_role(found, passed)
    _refuse_sse_elsewhere(found, passed)


def s3_file_system(
    arguments: Mapping[str, object], timeouts: StorageTimeouts = DEFAULT_TIMEOUTS
) -> fs.S3FileSystem:
    """Makes an S3 file system from the result of :func:`s3_options`; sends no request yet.

    :raises ConfigurationError: one of the two keys is missing.
    """
    have = {name for name in ("access_key", "secret_key") if name in arguments}
    if len(have) == 1:
        lack = "s3.secret-access-key" if "access_key" in have else "s3.access-key-id"
        raise ConfigurationError(f"S3: {lack} is missing; set both keys, or neither")
    return fs.S3FileSystem(
        **{**_from_environment(), **arguments},
        connect_timeout=timeouts.connect_s,
        request_timeout=timeouts.request_s,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=timeouts.attempts_max),
    )


def _from_environment() -> dict[str, object]:
    """What pyarrow does not read from the environment by itself, unlike keys and region."""
    found: dict[str, object] = {}
    if endpoint := _endpoint_of_environment():
        found["endpoint_override"] = endpoint
    certificates = os.environ.get(_CERTIFICATES)
    if certificates and int(pa.__version__.split(".")[0]) >= _OLDEST_WITH_CERTIFICATES:
        found["tls_ca_file_path"] = certificates
    return found


def _endpoint_of_environment() -> str | None:
    return next((os.environ[name] for name in _ENDPOINTS if os.environ.get(name)), None)


def _given(options: Mapping[str, str], bucket: str) -> Options:
    found = given(options)
    for prefix in reversed((f"{_HADOOP}bucket.{bucket}.", *_SYNONYMS)):
        if prefix == f"{_HADOOP}bucket..":
            continue
        for name in [each for each in found if each.startswith(prefix)]:
            found[_HADOOP + name.removeprefix(prefix)] = found[name]
    return found


def _arguments(options: Options) -> dict[str, object]:
    found = arguments(S3_TABLE, options)
    _choose_credentials(found, options)
    proxy = {
        part: found.pop(f"proxy_{part}", None)
        for part in ("scheme", "host", "port", "username", "password")
    }
    if proxy["host"] and "proxy_options" not in found:
        is_secure = proxy["scheme"] == "https"
        port = proxy["port"] or (443 if is_secure else 80)  # as Hadoop
        proxy |= {"scheme": "https" if is_secure else "http", "port": port}
        found["proxy_options"] = {part: value for part, value in proxy.items() if value}
    return found


def _choose_credentials(found: dict[str, object], options: Options) -> None:
    """Leaves one kind of credentials, the one that Iceberg's and Hadoop's clients would use."""
    region = found.pop("role_region", None)
    if "role_arn" in found and _makes_role(options):
        found.setdefault("region", region)
        if found["region"] is None:
            del found["region"]
        lost: tuple[str, ...] = _KEYS
    elif _provider(options) == {ANONYMOUS}:
        found["anonymous"] = True
        lost = _KEYS + _ROLE
    else:
        lost = _ROLE
    for name in lost:
        found.pop(name, None)


def _makes_role(options: Options) -> bool:
    """Whether the JVM's client assumes the role, too: it does so only if a class is named."""
    factory = options.get("client.factory", Given("", "")).value
    return "AssumeRole" in factory or any("AssumedRole" in each for each in _provider(options))


def _provider(options: Options) -> set[str]:
    for name in ("client.credentials-provider", "fs.s3a.aws.credentials.provider"):
        if name in options:
            return providers(options[name].value)
    return set()


def _refuse_unmade_role(options: Options, passed: Mapping[str, object]) -> None:
    arn = options.get("client.assume-role.arn")
    if arn and "client.factory" not in options and "access_key" not in passed:
        raise ConfigurationError(
            f"{arn.name}={arn.value}: Iceberg assumes this role only with"
            " client.factory=org.apache.iceberg.aws.AssumeRoleAwsClientFactory; set both options"
        )


def _refuse_sse_elsewhere(options: Options, passed: Mapping[str, object]) -> None:
    """SSE-S3 is what AWS does with every object, without being asked; other stores may not."""
    endpoint = str(passed.get("endpoint_override") or _endpoint_of_environment() or "")
    asked = [
        options[n] for n, v in SSE_S3.items() if n in options and options[n].value.lower() in v
    ]
    if not asked or not endpoint:
        return
    option = asked[0]
    host = urlsplit(endpoint if "//" in endpoint else f"//{endpoint}").hostname or ""
    if not _AWS_HOST.search(host):
        raise ConfigurationError(
            f"{option.name}={option.value}: pyarrow, which writes the data files, cannot ask"
            f" {host} to encrypt them; set default encryption for the bucket, then remove"
            f" {option.name}"
        )
