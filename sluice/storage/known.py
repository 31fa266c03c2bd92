"""Which options configure file systems, which of them nobody knows, when their keys end."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from urllib.parse import parse_qs

from sluice.did_you_mean import closest
from sluice.errors import ConfigurationError
from sluice.storage.azure import AZURE_SCHEMES, AzurePlace
from sluice.storage.gcs import GCS_SCHEMES, GCS_TABLE
from sluice.storage.options.azure import AZURE_TABLE
from sluice.storage.options.rules import (
    HADOOP_PREFIX,
    Options,
    Passed,
    Rule,
    Table,
    given,
    has_name,
)
from sluice.storage.options.s3 import S3_TABLE
from sluice.storage.s3 import S3_SCHEMES

_TABLE: dict[str, Rule] = {**S3_TABLE, **GCS_TABLE, **AZURE_TABLE}
_ICEBERG = ("s3.", "client.", "http-client.", "gcs.", "adls.")
_HADOOP = ("fs.", "dfs.", "google.cloud.")
_HADOOP_ITSELF = ("hadoop.", "io.", "ipc.", "net.", "ha.")
"""What HDFS's client needs of Hadoop's other options."""
_PREFIXES = (
    *_ICEBERG,
    "s3a.",
    *_HADOOP,
    *(HADOOP_PREFIX + name for name in (*_HADOOP, *_HADOOP_ITSELF)),
)
_ALIKE = 0.6
_ALIKE_IN_HADOOP = 0.9
"""Hadoop has hundreds of options that its own clients read, and no table has."""
_S3_END = "s3.session-token-expires-at-ms"
_GCS_END = "gcs.oauth2.token-expires-at"
_AZURE_END = "adls.sas-token-expires-at-ms."
_AZURE_TOKEN = "adls.sas-token."  # noqa: S105
_OF_A_BUCKET = re.compile(r"^fs\.s3a\.bucket\.[^.]+(\.[^.]+)*?\.(?=(access|secret|session)[.-])")
_FLUSS = ("s3.", "s3a.")
"""How Fluss also writes ``fs.s3a.``."""


def _login(table: Table, arguments: set[str], *others: str) -> tuple[str, ...]:
    """How the options begin that set one of these arguments."""
    names = (
        n for n, rule in table.items() if isinstance(rule, Passed) and rule.argument in arguments
    )
    return (*(name.removesuffix("HOST") for name in names), *others)


_LOGINS = {
    "s3": _login(S3_TABLE, {"access_key", "secret_key", "session_token"}, _S3_END),
    "gcs": _login(GCS_TABLE, {"access_token", "credential_token_expiration", "anonymous"}),
    "azure": _login(
        AZURE_TABLE,
        {"sas_token", "account_key", "key_account", "shared_key", "endpoint"}
        | {"client_id", "client_secret", "tenant_id"},
        _AZURE_END,
        "adls.token",
    ),
}
"""The options with which one logs in to a store: names, and beginnings that end with a dot."""


def storage_options(options: Mapping[str, str]) -> dict[str, str]:
    """The options that configure file systems, and no other: no credentials of a catalog."""
    return {name: value for name, value in options.items() if name.startswith(_PREFIXES)}


def login_store(name: str) -> str:
    """The store that an option is for logging in to; empty: it is no key, token or the like.

    Keys are meant together: those of one source must not be completed by another's.
    """
    plain = _OF_A_BUCKET.sub("fs.s3a.", name.removeprefix(HADOOP_PREFIX))
    spellings = [plain, *("fs.s3a." + plain.removeprefix(e) for e in _FLUSS if plain.startswith(e))]
    for store, names in _LOGINS.items():
        for each in names:
            if each in spellings or (each.endswith(".") and plain.startswith(each)):
                return store
    return ""


def unknown_options(options: Mapping[str, str]) -> list[tuple[str, str | None]]:
    """Options of file systems that neither Iceberg nor Sluice reads, in the order of names.

    Each comes with the known name that is most similar, if one is. Of Hadoop's options, only those
    are listed that are almost like a known one.
    """
    found: list[tuple[str, str | None]] = []
    for name in sorted(options):
        if name.startswith(_ICEBERG):
            if not _is_known(name):
                found.append((name, _closest(name, _ICEBERG, _ALIKE)))
        elif name.startswith(_PREFIXES):
            plain = name.removeprefix(HADOOP_PREFIX)
            like = _closest(plain, _HADOOP, _ALIKE_IN_HADOOP)
            if like and not _is_known(plain):
                found.append((name, HADOOP_PREFIX * (plain != name) + like))
    return found


def credentials_end_ms(uri: str, options: Mapping[str, str]) -> int | None:
    """When the temporary credentials for a URI end, in epoch milliseconds, if options say it.

    None: they have no end, or none is known. The end of a SAS token is also read from the token.

    :param uri: of a file or folder. Of Azure's, any beginning of one: without its account, the ends
        for all accounts count.
    :raises ConfigurationError: the end is not a number.
    """
    scheme = uri.partition("://")[0]
    found = given(options)
    if scheme in S3_SCHEMES:
        return _end(found, _S3_END) if "s3.session-token" in found else None
    if scheme in GCS_SCHEMES:
        return _end(found, _GCS_END) if "gcs.oauth2.token" in found else None
    if scheme in AZURE_SCHEMES:
        try:
            each_of = [AzurePlace.of(uri).names]
        except ConfigurationError:  # the prefix of a catalog's credentials may end before it
            each_of = [(n.removeprefix(_AZURE_TOKEN),) for n in found if n.startswith(_AZURE_TOKEN)]
        return min((end for names in each_of for end in _ends_of_sas(found, names)), default=None)
    return None


def _is_known(name: str) -> bool:
    if has_name(_TABLE, name):
        return True
    return any(
        name.startswith(each) and has_name(S3_TABLE, "fs.s3a." + name.removeprefix(each))
        for each in _FLUSS
    )


def _closest(name: str, prefixes: tuple[str, ...], cutoff: float) -> str | None:
    return closest(name, (each for each in _TABLE if each.startswith(prefixes)), cutoff=cutoff)


def _end(options: Options, name: str) -> int | None:
    if name not in options:
        return None
    option = options[name]
    if not option.value.strip().isdecimal():
        raise ConfigurationError(
            f"{option.name}={option.value}: a time in epoch milliseconds is expected"
        )
    return int(option.value)


def _ends_of_sas(options: Options, names: tuple[str, ...]) -> Iterator[int]:
    """The ends of the token that is used: the first one that is set.

    :param names: how the options of the account may end.
    """
    used = next((n for n in names if _AZURE_TOKEN + n in options), None)
    if used is None:
        return
    for name in names:
        if (told := _end(options, _AZURE_END + name)) is not None:
            yield told
            break
    if signed := parse_qs(options[_AZURE_TOKEN + used].value.removeprefix("?")).get("se"):
        try:
            end = datetime.fromisoformat(signed[0])
        except ValueError:
            return  # the store will say so
        yield int((end if end.tzinfo else end.replace(tzinfo=UTC)).timestamp() * 1000)
