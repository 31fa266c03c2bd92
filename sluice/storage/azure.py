"""Azure Data Lake Storage by pyarrow: Iceberg's ``adls.*``, Hadoop's ``fs.azure.*``.

Without credentials in the options, pyarrow uses Azure's DefaultAzureCredential: environment,
workload identity, managed identity, Azure's command line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import fs

from sluice.errors import ConfigurationError
from sluice.storage.options.azure import AZURE_TABLE
from sluice.storage.options.rules import Options, arguments, given, refuse

AZURE_SCHEMES = frozenset({"abfs", "abfss", "wasb", "wasbs"})

_SERVICE = re.compile(r"\.(dfs|blob)\.")
_OLDEST = {"sas_token": 20, "client_id": 21, "client_secret": 21, "tenant_id": 21}
"""Arguments that older major versions of pyarrow lack."""
_MEANING = {"sas_token": "SAS tokens"}
_APPLICATION = ("tenant_id", "client_id", "client_secret")


@dataclass(frozen=True, slots=True)
class AzurePlace:
    """The container and the account of a URI, such as ``abfss://CONTAINER@HOST/PATH``."""

    container: str
    host: str
    """Such as account.dfs.core.windows.net."""

    @classmethod
    def of(cls, uri: str) -> AzurePlace:
        """Parses a URI.

        :raises ConfigurationError: it names no container or no account.
        """
        scheme, _, rest = uri.partition("://")
        container, at, host = rest.partition("/")[0].partition("@")
        if not (container and at and host):
            service = "blob" if scheme.startswith("wasb") else "dfs"
            raise ConfigurationError(
                f"{uri}: write it as {scheme}://CONTAINER@ACCOUNT.{service}.core.windows.net/PATH"
            )
        return cls(container, host)

    @property
    def account(self) -> str:
        """The name of the storage account."""
        return self.host.partition(".")[0]

    @property
    def names(self) -> tuple[str, ...]:
        """How options may end that are meant for this account, the most exact first."""
        hosts = [self.host, *(_SERVICE.sub(f".{s}.", self.host, count=1) for s in ("dfs", "blob"))]
        ends = [*hosts, self.account, *(f"{self.container}.{host}" for host in hosts)]
        return tuple(dict.fromkeys(ends))


def azure_options(options: Mapping[str, str], place: AzurePlace) -> dict[str, object]:
    """Arguments for pyarrow's AzureFileSystem; other values come from the environment.

    :raises ConfigurationError: a value is not valid, or of another account.
    """
    return _arguments(given(options), place)


def refuse_azure(options: Mapping[str, str], place: AzurePlace) -> None:
    """Refuses options that pyarrow's AzureFileSystem cannot honour.

    :raises ConfigurationError: names the option, its value, and what to do.
    """
    found = given(options)
    refuse(AZURE_TABLE, found, _arguments(found, place), place.names)


def azure_file_system(arguments: Mapping[str, object]) -> fs.FileSystem:
    """Makes a file system from the result of :func:`azure_options`; sends no request yet.

    pyarrow has no timeouts for it: Azure's own client tries a request up to four times.

    :raises ConfigurationError: this pyarrow is too old for an argument, or was built without Azure.
    """
    version = int(pa.__version__.split(".")[0])
    for name in arguments:
        if version < _OLDEST.get(name, 0):
            what = _MEANING.get(name, "the sign-in of applications")
            raise ConfigurationError(
                f"pyarrow {pa.__version__} does not have {what} for Azure:"
                f" pip install 'pyarrow>={_OLDEST[name]}'"
            )
    try:
        kind = fs.AzureFileSystem
    except ImportError as error:
        raise ConfigurationError(
            "this pyarrow was built without Azure; install the wheel: pip install pyarrow"
        ) from error
    return kind(**arguments)


def _arguments(options: Options, place: AzurePlace) -> dict[str, object]:
    found = arguments(AZURE_TABLE, options, place.names)
    endpoint = found.pop("endpoint", None)
    where = _at_endpoint(str(endpoint)) if endpoint else _at_host(place.host)
    if "sas_token" in where:  # Iceberg applies the endpoint last
        return where
    return {**_credentials(found, str(where["account_name"])), **where}


def _credentials(found: Mapping[str, object], account: str) -> dict[str, object]:
    """One kind of credentials, in Iceberg's order."""
    if "sas_token" in found:
        return {"sas_token": found["sas_token"]}
    owner = found.get("key_account")
    if (owner is None) != ("shared_key" not in found):
        lack = "name" if owner is None else "key"
        raise ConfigurationError(
            f"adls.auth.shared-key.account.{lack} is missing; set both options, or neither"
        )
    if owner is not None:
        if owner != account:
            raise ConfigurationError(
                f"adls.auth.shared-key.account.name={owner}: the files are in account {account};"
                " set the name and the key of that account"
            )
        return {"account_key": found["shared_key"]}
    if "account_key" in found:
        return {"account_key": found["account_key"]}
    return {name: found[name] for name in _APPLICATION if name in found}


def _at_host(host: str) -> dict[str, object]:
    """The account's two services, which share all of the host but one label."""
    account, dot, rest = host.partition(".")
    domain = dot + rest
    if not _SERVICE.search(domain):
        raise ConfigurationError(
            f"{host} is not the host of a storage account, such as {account}.dfs.core.windows.net"
        )
    return {
        "account_name": account,
        "blob_storage_authority": _SERVICE.sub(".blob.", domain, count=1),
        "dfs_storage_authority": _SERVICE.sub(".dfs.", domain, count=1),
    }


def _at_endpoint(url: str) -> dict[str, object]:
    """The endpoint in place of the account's host, such as an emulator's http://HOST:PORT/ACCOUNT.

    It may carry a SAS token, which then counts.
    """
    parts = urlsplit(url)
    account = parts.path.strip("/")
    found: dict[str, object] = {}
    if account:
        found["account_name"] = account
        found |= {f"{service}_storage_authority": parts.netloc for service in ("blob", "dfs")}
    else:
        found = _at_host(parts.netloc)
    found |= {f"{service}_storage_scheme": parts.scheme for service in ("blob", "dfs")}
    if parts.query:
        found["sas_token"] = f"?{parts.query}"
    return found
