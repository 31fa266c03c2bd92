"""The lake's options that clients get with a tiered table.

See docs/fluss/types-and-options.md#options-of-the-lake
"""

from __future__ import annotations

from collections.abc import Mapping

from sluice.config import DatalakeConfig
from sluice.formats.types.descriptors import with_properties
from sluice.masking import is_secret_name, mask
from sluice.server.coordinator.catalog.entries import TableEntry

_SECRET_WORDS = ("password", "secret", "key", "pass")
"""Fluss leaves out options with such a word in their name; this server also the last one."""


def lake_options(datalake: DatalakeConfig) -> Mapping[str, str]:
    """``datalake.FORMAT.*`` as ``table.datalake.FORMAT.*``, without secrets.

    Fluss leaves secrets out by their name. This server also knows further names (``token``,
    ``credential``, ``pass``, ``jwt``) and secrets inside a value, such as a password in an address.
    Headers that a REST catalog gets may let in who sends them, so only known ones are handed out.
    """
    if datalake.format != "iceberg":
        return {}
    return {
        f"table.datalake.iceberg.{name}": value
        for name, value in datalake.iceberg.items()
        if not _is_secret(name, value)
    }


def _is_secret(name: str, value: str) -> bool:
    lower = name.lower()
    named = any(word in lower for word in _SECRET_WORDS) or is_secret_name(name)
    return named or mask(value) != value


def described(entry: TableEntry, options: Mapping[str, str]) -> bytes:
    """The table's JSON in answers: with the lake's options if it is tiered.

    They are never stored, so that a table follows the server's configuration.
    """
    if not options or not entry.info.datalake_enabled:
        return entry.json
    return with_properties(entry.json, options)
