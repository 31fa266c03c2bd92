"""Which options configure file systems, and which of them are the keys of a store."""

from __future__ import annotations

from collections.abc import Mapping

_PREFIXES = ("s3.", "s3a.", "client.", "gcs.", "adls.", "hadoop.", "fs.")
_KEYS = {
    "s3": ("s3.access-key", "s3.secret", "s3.session-token"),
    "gcs": ("gcs.oauth2.", "gcs.no-auth"),
    "adls": ("adls.auth.", "adls.sas-token", "adls.connection-string", "adls.token"),
}
"""The prefixes of the options with which one logs in to a store."""
_ENDS = (
    "s3.session-token-expires-at-ms",
    "gcs.oauth2.token-expires-at",
    "adls.sas-token-expires-at-ms.",
)


def storage_options(options: Mapping[str, str]) -> dict[str, str]:
    """The options that configure file systems. Executors get no others, such as logins."""
    return {name: value for name, value in options.items() if name.startswith(_PREFIXES)}


def keys_of_store(name: str) -> str:
    """The store whose keys an option is one of; empty if it is no key."""
    return next((store for store, names in _KEYS.items() if name.startswith(names)), "")


def keys_expire_ms(options: Mapping[str, str]) -> int | None:
    """When the first of the temporary keys among these options ends, epoch milliseconds."""
    ends = [value for name, value in options.items() if name.startswith(_ENDS)]
    return min((int(end) for end in ends if end.isdigit()), default=None)
