"""Google Cloud Storage by pyarrow: Iceberg's ``gcs.*``, Hadoop's ``fs.gs.*``.

Without credentials in the options, pyarrow uses Google's Application Default Credentials.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.parse import urlsplit

from pyarrow import fs

from sluice.errors import ConfigurationError
from sluice.storage.object_folders import WithFolders
from sluice.storage.options.rules import (
    Given,
    Ignored,
    Options,
    Passed,
    Refused,
    Rule,
    arguments,
    given,
    is_on,
    refuse,
)
from sluice.storage.timeouts import DEFAULT_TIMEOUTS, StorageTimeouts

GCS_SCHEMES = frozenset({"gs", "gcs"})

_NO_END = datetime(2200, 1, 1, tzinfo=UTC)
"""For a token without an end: pyarrow requires one."""
_KEY_FILE = "GOOGLE_APPLICATION_CREDENTIALS"
_CHAIN_TYPES = ("application_default", "compute_engine", "service_account_json_keyfile")
_ENCRYPTION = (
    "pyarrow, which writes the data files, cannot encrypt with a key of the customer's; set a"
    " default Cloud KMS key for the bucket, then remove the option"
)
_USER_PROJECT = (
    "pyarrow, which writes the data files, cannot name the project that pays; use a bucket whose"
    " owner pays, and remove the option"
)
_DELEGATES = "pyarrow impersonates without delegates; let the account impersonate the last directly"
_AUTH_TYPE = (
    "pyarrow, which writes the data files, cannot sign in this way; use Application Default"
    " Credentials, or gcs.oauth2.token"
)
_TUNING = Ignored("tunes Iceberg's client only")
_REFRESH = Ignored("Sluice asks the catalog itself")


def _host(value: str) -> tuple[str, str]:
    """Scheme and place of an endpoint such as http://localhost:4443."""
    parts = urlsplit(value if "//" in value else f"https://{value}")
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ValueError(f"{value!r} is not a URL such as https://storage.googleapis.com")
    return parts.scheme, parts.netloc


def _anonymous(value: str) -> bool | None:
    return is_on(value) or None


def _unauthenticated(value: str) -> bool | None:
    return value.strip().lower() == "unauthenticated" or None


def _end(value: str) -> datetime:
    if not value.strip().isdecimal():
        raise ValueError(f"{value!r} is not a time in epoch milliseconds")
    return datetime.fromtimestamp(int(value) / 1000, UTC)


def _is_other_auth(value: str) -> bool:
    return value.strip().lower() not in ("", "unauthenticated", *_CHAIN_TYPES)


def _is_other_key_file(value: str) -> bool:
    return os.environ.get(_KEY_FILE) != value


def _pays(value: str) -> bool:
    return value.strip().lower() not in ("", "disabled")


_KEY_FILE_RULE = Refused(
    f"pyarrow takes this file from the environment only; set {_KEY_FILE} to it", _is_other_key_file
)

GCS_TABLE: dict[str, Rule] = {
    # Iceberg: GCPProperties
    "gcs.project-id": Passed("project_id"),
    "gcs.service.host": Passed("endpoint", _host),
    "gcs.no-auth": Passed("anonymous", _anonymous),
    "gcs.oauth2.token": Passed("access_token"),
    "gcs.oauth2.token-expires-at": Passed("credential_token_expiration", _end),
    "gcs.impersonate.service-account": Passed("target_service_account"),
    "gcs.impersonate.delegates": Refused(_DELEGATES),
    "gcs.impersonate.lifetime-seconds": _TUNING,
    "gcs.impersonate.scopes": Ignored("pyarrow asks for cloud-platform, as Iceberg does"),
    "gcs.user-project": Refused(_USER_PROJECT),
    "gcs.encryption-key": Refused(_ENCRYPTION, is_secret=True),
    "gcs.decryption-key": Refused(_ENCRYPTION, is_secret=True),
    "gcs.oauth2.refresh-credentials-endpoint": _REFRESH,
    "gcs.oauth2.refresh-credentials-enabled": _REFRESH,
    "gcs.client-lib-token": _TUNING,
    "gcs.channel.read.chunk-size-bytes": _TUNING,
    "gcs.channel.write.chunk-size-bytes": _TUNING,
    "gcs.delete.batch-size": _TUNING,
    "gcs.analytics-core.": _TUNING,
    # Hadoop
    "fs.gs.project.id": Passed("project_id"),
    "fs.gs.storage.root.url": Passed("endpoint", _host),
    "fs.gs.auth.null.enabled": Passed("anonymous", _anonymous),
    "fs.gs.auth.type": Passed("anonymous", _unauthenticated),
    "fs.gs.auth.impersonation.service.account": Passed("target_service_account"),
    "fs.gs.auth.service.account.json.keyfile": _KEY_FILE_RULE,
    "google.cloud.auth.service.account.json.keyfile": _KEY_FILE_RULE,
    "fs.gs.auth.access.token.provider": Refused(_AUTH_TYPE, unless=("access_token",)),
    "fs.gs.auth.access.token.provider.impl": Refused(_AUTH_TYPE, unless=("access_token",)),
    "fs.gs.requester.pays.mode": Refused(_USER_PROJECT, _pays),
    "fs.gs.requester.pays.project.id": Ignored("read with fs.gs.requester.pays.mode"),
    "fs.gs.encryption.algorithm": Refused(_ENCRYPTION),
    "fs.gs.encryption.key": Refused(_ENCRYPTION, is_secret=True),
    "fs.gs.encryption.key.hash": Ignored("read with fs.gs.encryption.key"),
}
_OTHER_AUTH = Refused(_AUTH_TYPE, _is_other_auth, unless=("access_token",))


def gcs_options(options: Mapping[str, str]) -> dict[str, object]:
    """Arguments for pyarrow's GcsFileSystem; other values come from the environment.

    :raises ConfigurationError: a value is not valid.
    """
    return _arguments(given(options))


def refuse_gcs(options: Mapping[str, str]) -> None:
    """Refuses options that pyarrow's GcsFileSystem cannot honour.

    :raises ConfigurationError: names the option, its value, and what to do.
    """
    found = given(options)
    passed = _arguments(found)
    refuse(GCS_TABLE, found, passed)
    refuse({"fs.gs.auth.type": _OTHER_AUTH}, found, passed)  # it is passed or refused
    token = found.get("gcs.oauth2.token")
    if token and is_on(found.get("gcs.no-auth", Given("", "")).value):
        raise ConfigurationError("gcs.no-auth=true and gcs.oauth2.token exclude each other")


def gcs_file_system(
    arguments: Mapping[str, object], timeouts: StorageTimeouts = DEFAULT_TIMEOUTS
) -> fs.FileSystem:
    """Makes a file system from the result of :func:`gcs_options`; sends no request yet.

    :raises ConfigurationError: this pyarrow was built without it.
    """
    try:
        kind = fs.GcsFileSystem
    except ImportError as error:
        raise ConfigurationError(
            "this pyarrow was built without GCS; install the wheel: pip install pyarrow"
        ) from error
    made = kind(**arguments, retry_time_limit=timeouts.all_attempts)
    return fs.PyFileSystem(WithFolders(made))


def _arguments(options: Options) -> dict[str, object]:
    found = arguments(GCS_TABLE, options)
    endpoint = found.pop("endpoint", None)
    if isinstance(endpoint, tuple):
        found["scheme"], found["endpoint_override"] = endpoint
    if "access_token" in found:  # as Iceberg: then nothing else counts
        found.setdefault("credential_token_expiration", _NO_END)
        lost: tuple[str, ...] = ("anonymous", "target_service_account")
    else:
        lost = ("credential_token_expiration",)
        if "anonymous" in found:
            lost += ("target_service_account",)
    for name in lost:
        found.pop(name, None)
    return found
