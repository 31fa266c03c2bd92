"""--property of `sluice create-table`: options of Fluss, and custom properties.

See docs/fluss/types-and-options.md#table-options
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import click

from sluice.did_you_mean import closest

_PREFIX = "table."
"""What the names of Fluss's own table options begin with. Others are custom properties."""
_INSTEAD = {
    "table.datalake.enabled": "--datalake or --no-datalake",
    "table.datalake.freshness": "--freshness",
}
_OF_FLINK = {
    "auto-increment.fields": "--auto-increment",
    "bucket.key": "--bucket-key",
    "bucket.num": "--buckets",
}
"""Options of Flink SQL's CREATE TABLE that become other parts of the table in Fluss."""
_OF_LAKES = ("iceberg.", "paimon.", "lance.")
_ALIKE = 0.85


def checked_properties(
    ctx: click.Context, param: click.Parameter, value: tuple[str, ...]
) -> dict[str, str]:
    """KEY=VALUE texts as a mapping.

    The server checks options that begin with ``table.``: it may know newer ones.

    :raises click.BadParameter: one has no key or no value, or means an option of its own.
    """
    del ctx, param
    found = {}
    for text in value:
        key, equals, content = (part.strip() for part in text.partition("="))
        if not key or not equals or not content:
            raise click.BadParameter(f"{text!r} does not have the form KEY=VALUE")
        if key in _INSTEAD:
            raise click.BadParameter(f"use {_INSTEAD[key]} instead of {key}")
        if key in _OF_FLINK:
            raise click.BadParameter(
                f"use {_OF_FLINK[key]} instead of {key}, which is an option of Flink SQL"
            )
        if f"{_PREFIX}{key}" in _options():
            raise click.BadParameter(
                f"{key!r} is no option of Fluss; did you mean '{_PREFIX}{key}'?"
            )
        found[key] = content
    return found


def options_of_fluss(given: Mapping[str, str]) -> dict[str, str]:
    """Those that are options of Fluss; the others are custom properties, as in Flink SQL."""
    return {key: value for key, value in given.items() if key.startswith(_PREFIX)}


def notes_on(custom: Iterable[str]) -> list[str]:
    """Notes about custom properties whose names are nearly those of options."""
    meant = {option: repr(option) for option in _options()}
    meant |= {option.removeprefix(_PREFIX): shown for option, shown in meant.items()}
    meant |= _OF_FLINK
    notes = []
    for key in custom:
        near = None if key.startswith(_OF_LAKES) else closest(key, meant, cutoff=_ALIKE)
        if near is not None:
            notes.append(
                f"{key} is a custom property, which Fluss ignores; did you mean {meant[near]}?"
            )
    return notes


def _options() -> frozenset[str]:
    """The options that Fluss 0.9.1 knows."""
    from sluice.server.coordinator.catalog.options import KNOWN

    return KNOWN
