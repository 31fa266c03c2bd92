"""How the files of one lake table are reached, as the table itself says when it is loaded.

A catalog may give endpoint, region and keys with each table: in the properties of its FileIO, or as
storage credentials for prefixes of locations. Iceberg's own client uses them, and so must every
reader and writer of files here. The user's own options come first.

Sources: ``SupportsStorageCredentials`` and ``S3FileIO`` of Iceberg 1.12; ``LoadTableResult`` in
Iceberg's open-api/rest-catalog-open-api.yaml.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sluice.errors import ConfigurationError
from sluice.masking import secrets_in
from sluice.storage import credentials_end_ms, login_store, storage_options

_TOKEN, _GCS_TOKEN = "s3.session-token", "gcs.oauth2.token"
RENEW_AFTER = 0.75
"""Fraction of the life of keys after which new ones are asked for."""
_RENEW_MIN_MS = 5_000
"""Time before keys are renewed at the earliest, also if this machine's clock is wrong."""
_ASSUMED_LIFE_MS = 900_000
"""Life of a session token whose end the catalog does not tell: the shortest that AWS gives one."""


@dataclass(frozen=True, slots=True)
class PrefixOptions:
    """The options for all locations that begin with a prefix; empty: all others."""

    prefix: str
    options: Mapping[str, str] = field(repr=False)


_OF_THE_CATALOG = ("s3.delete-enabled",)
"""Options with which a catalog keeps files that Sluice would delete."""
_NO_OPTIONS = PrefixOptions("", {})


@dataclass(frozen=True, slots=True)
class TableStorage:
    """The storage options of one table. Immutable; can be pickled."""

    places: tuple[PrefixOptions, ...] = ()
    """The longest prefix first."""
    read_ms: int = 0
    """When the catalog gave them, epoch milliseconds."""
    expires_ms: int | None = None
    """When the first of the keys ends, epoch milliseconds. None: they do not end."""
    own: frozenset[str] | None = field(default=None, compare=False)
    """The names of the options that a catalog has not sent; None: they are not known."""

    @classmethod
    def of(
        cls,
        file_io: Mapping[str, str],
        credentials: Mapping[str, Mapping[str, str]],
        user: Mapping[str, str],
        location: str,
        read_ms: int,
    ) -> TableStorage:
        """Merges what the catalog has given with what the user has configured.

        :param file_io: the properties of the table's FileIO.
        :param credentials: its storage credentials by prefix.
        :param user: the user's options of the catalog. They override the others.
        :param location: of the table.
        :param read_ms: now, epoch milliseconds.
        :raises ConfigurationError: the end of the keys is not a number.
        """
        own = storage_options(user)
        given = storage_options(file_io)
        found = {prefix: _over(given, storage_options(one)) for prefix, one in credentials.items()}
        merged = {prefix: _over(one, own) for prefix, one in {"": given, **found}.items()}
        places = sorted(merged, key=len, reverse=True)
        ends = (
            _expires_ms(place if ":" in place else location, one, own, read_ms)
            for place, one in merged.items()
        )
        return cls(
            tuple(PrefixOptions(prefix, merged[prefix]) for prefix in places),
            read_ms,
            min((end for end in ends if end is not None), default=None),
        )

    def options_for(self, uri: str) -> Mapping[str, str]:
        """The options for a location: those of the longest prefix."""
        return self.place_of(uri).options

    def place_of(self, uri: str) -> PrefixOptions:
        """The longest prefix of a location, and its options.

        A prefix that ends with a slash is one of the folder itself, too.
        """
        folder = f"{uri}/"
        return next((one for one in self.places if folder.startswith(one.prefix)), _NO_OPTIONS)

    @property
    def renew_ms(self) -> float:
        """When new keys should be asked for, epoch milliseconds; infinite if they do not end."""
        if self.expires_ms is None:
            return float("inf")
        life_ms = (self.expires_ms - self.read_ms) * RENEW_AFTER
        return self.read_ms + max(life_ms, _RENEW_MIN_MS)

    def has_ended(self, now_ms: float) -> bool:
        """Whether a key has ended by then, epoch milliseconds."""
        return self.expires_ms is not None and now_ms >= self.expires_ms

    def refusal(self, error: ConfigurationError) -> ConfigurationError:
        """The error of an option; says so if the catalog has sent the option."""
        option = error.details.get("option")
        if option is None or self.own is None or option in self.own:
            return error
        do = "change it there"
        if option not in _OF_THE_CATALOG:
            do = f"{do}, or override it with datalake.iceberg.{option}"
        return ConfigurationError(f"{error}. The catalog sends this option: {do}", **error.details)

    def secrets(self) -> Iterable[str]:
        """The values to mask in all texts."""
        return [secret for one in self.places for secret in secrets_in(one.options)]

    def to_json(self) -> dict[str, Any]:
        """The content of a keys file: it holds secrets."""
        places = [{"prefix": one.prefix, "options": dict(one.options)} for one in self.places]
        return {"places": places, "read_ms": self.read_ms, "expires_ms": self.expires_ms}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> TableStorage:
        """:raises KeyError, TypeError: it is not the content of a keys file."""
        places = tuple(PrefixOptions(one["prefix"], one["options"]) for one in content["places"])
        return cls(places, content["read_ms"], content["expires_ms"])


def _over(options: Mapping[str, str], others: Mapping[str, str]) -> dict[str, str]:
    """Options overridden by others. Keys of one store are never mixed from both."""
    stores = {login_store(name) for name in others} - {""}
    kept = {name: value for name, value in options.items() if login_store(name) not in stores}
    return {**kept, **others}


def _expires_ms(
    uri: str, options: Mapping[str, str], user: Mapping[str, str], read_ms: int
) -> int | None:
    """When the keys among these options end; None if they are the user's own, or do not end."""
    given = {name: value for name, value in options.items() if name not in user}
    if (told := credentials_end_ms(uri, given)) is not None:
        return told
    has_token = _TOKEN in given or _GCS_TOKEN in given
    return read_ms + _ASSUMED_LIFE_MS if has_token else None
