"""What becomes of the options for Azure, by name.

HOST stands for the account's host, as in Iceberg, for the account's name, or for CONTAINER.HOST.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from sluice.storage.options.rules import Ignored, Passed, Refused, Rule, is_set

_TENANT = re.compile(r"^https://[^/]+/(?P<tenant>[^/]+)/oauth2/")
_BEARER = (
    "pyarrow, which writes the data files, cannot sign in with a bearer token; use"
    " adls.sas-token.HOST, or let the environment have the credentials"
)
_PROVIDER = (
    "pyarrow, which writes the data files, cannot run this Java class; use adls.sas-token.HOST, or"
    " let the environment have the credentials"
)
_AUTH = (
    "pyarrow, which writes the data files, cannot sign in in this way; use adls.sas-token.HOST or"
    " fs.azure.account.key.HOST"
)
_ENCRYPTION = (
    "pyarrow, which writes the data files, cannot encrypt with a key of the customer's; set a"
    " default encryption scope for the container, then remove the option"
)
_SECRETS = ("sas_token", "account_key")
_TUNING = Ignored("tunes Iceberg's client only")
_CHAIN = ("sharedkey", "oauth", "sas")
_TOKEN_PROVIDERS = ("ClientCredsTokenProvider", "MsiTokenProvider", "WorkloadIdentityTokenProvider")
"""Of Hadoop, for what pyarrow's own chain or arguments do, too."""


def _sas(value: str) -> str:
    """pyarrow appends it to the URL as it is."""
    return value if value.startswith("?") else f"?{value}"


def _endpoint(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        # It may be a connection string with a key.
        raise ValueError("Iceberg expects the endpoint's URL, such as http://127.0.0.1:10000/NAME")
    return value


def _tenant(value: str) -> str:
    match = _TENANT.match(value)
    if match is None:
        raise ValueError(f"{value!r} does not name a tenant: https://HOST/TENANT/oauth2/token")
    return match["tenant"]


def _is_other_auth(value: str) -> bool:
    return value.strip().lower() not in ("", *_CHAIN)


def _is_other_provider(value: str) -> bool:
    return value.rsplit(".", 1)[-1] not in _TOKEN_PROVIDERS


AZURE_TABLE: dict[str, Rule] = {
    # Iceberg: AzureProperties
    "adls.sas-token.HOST": Passed("sas_token", _sas),
    "adls.sas-token-expires-at-ms.HOST": Ignored("see credentials_end_ms"),
    "adls.connection-string.HOST": Passed("endpoint", _endpoint),
    "adls.auth.shared-key.account.name": Passed("key_account"),
    "adls.auth.shared-key.account.key": Passed("shared_key"),
    "adls.token": Refused(_BEARER, is_secret=True, unless=_SECRETS),
    "adls.token-credential-provider": Refused(_PROVIDER, is_set, unless=_SECRETS),
    "adls.token-credential-provider.": Ignored("read with adls.token-credential-provider"),
    "adls.refresh-credentials-endpoint": Ignored("Sluice asks the catalog itself"),
    "adls.refresh-credentials-enabled": Ignored("Sluice asks the catalog itself"),
    "adls.read.block-size-bytes": _TUNING,
    "adls.write.block-size-bytes": _TUNING,
    # Hadoop
    "fs.azure.sas.fixed.token.HOST": Passed("sas_token", _sas),
    "fs.azure.sas.fixed.token": Passed("sas_token", _sas),
    "fs.azure.sas.HOST": Passed("sas_token", _sas),
    "fs.azure.account.key.HOST": Passed("account_key"),
    "fs.azure.account.key": Passed("account_key"),
    "fs.azure.account.oauth2.client.id.HOST": Passed("client_id"),
    "fs.azure.account.oauth2.client.id": Passed("client_id"),
    "fs.azure.account.oauth2.client.secret.HOST": Passed("client_secret"),
    "fs.azure.account.oauth2.client.secret": Passed("client_secret"),
    "fs.azure.account.oauth2.client.endpoint.HOST": Passed("tenant_id", _tenant),
    "fs.azure.account.oauth2.client.endpoint": Passed("tenant_id", _tenant),
    "fs.azure.account.auth.type": Refused(_AUTH, _is_other_auth),
    "fs.azure.account.auth.type.HOST": Refused(_AUTH, _is_other_auth),
    "fs.azure.account.oauth.provider.type": Refused(_PROVIDER, _is_other_provider),
    "fs.azure.account.oauth.provider.type.HOST": Refused(_PROVIDER, _is_other_provider),
    "fs.azure.sas.token.provider.type": Refused(_PROVIDER, unless=_SECRETS),
    "fs.azure.sas.token.provider.type.HOST": Refused(_PROVIDER, unless=_SECRETS),
    "fs.azure.encryption.": Refused(_ENCRYPTION, is_secret=True),
}
