"""What Iceberg's CatalogUtil demands of a catalog's options, before a JVM is there to say so."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

_PREFIX = "datalake.iceberg."
NEEDS: dict[str, tuple[str, ...]] = {
    "hadoop": ("warehouse",),
    "hive": (),
    "rest": ("uri",),
    "glue": (),
    "nessie": ("uri", "warehouse"),
    "jdbc": ("uri", "warehouse"),
    "bigquery": (),
}
"""Every type of Iceberg 1.11 and 1.12, and the options without which it opens no catalog."""
_ELSEWHERE = {"type": "catalog-type"}
"""What Flink calls an option of Iceberg's."""
_NAMES = ("type", "catalog-impl", "uri", "warehouse")
_ALIKE = 0.65
_NEARLY_THE_SAME = 0.85
"""Nearer than catalog-id or Iceberg's own lock-impl are to catalog-impl."""


def type_of(options: Mapping[str, str]) -> str:
    """The type as Iceberg compares it: capital letters do not count. Empty if none is given."""
    return options.get("type", "").lower()


def wrong(options: Mapping[str, str]) -> str:
    """What Iceberg refuses whatever else is given; empty if nothing."""
    kind, own = options.get("type"), options.get("catalog-impl")
    if kind is not None and own is not None:
        return f"{_PREFIX}type={kind} and {_PREFIX}catalog-impl: leave one of them out"
    if own == "":
        return f"{_PREFIX}catalog-impl is empty: give a class, or leave it out and give a type"
    if kind is None or kind.lower() in NEEDS:
        return ""
    near = get_close_matches(kind.lower(), NEEDS, 1, _ALIKE)
    meant = f" (did you mean {near[0]}?)" if near else ""
    return (
        f"{_PREFIX}type={kind!r}: Iceberg knows no such catalog; give one of"
        f" {', '.join(NEEDS)}{meant}"
    )


def missing(options: Mapping[str, str]) -> str:
    """What is missing, and where to write it; empty if nothing.

    Without a type Iceberg takes hive. That is meant, unless an option looks like a type misspelt.
    """
    if "type" not in options and "catalog-impl" not in options:
        meant = _meant("type", options, _NEARLY_THE_SAME)
        meant = meant or _meant("catalog-impl", options, _NEARLY_THE_SAME)
        return f"{_PREFIX}type is not given; {meant}" if meant else ""
    for option in NEEDS.get(type_of(options), ()):
        if not options.get(option):
            why = (
                f"{_PREFIX}type={options['type']} needs {_PREFIX}{option}, which is not given:"
                f" write it where the type is written (in Airflow: iceberg.{option} in the field"
                " Lake of the Fluss connection)"
            )
            meant = _meant(option, options, _ALIKE)
            return f"{why}; {meant}" if meant else why
    return ""


def _meant(option: str, options: Mapping[str, str], alike: float) -> str:
    """Which of the options given may be this one, misspelt; empty if none."""
    others = [name for name in options if name not in _NAMES]
    foreign = [name for name in others if name == _ELSEWHERE.get(option)]
    foreign = [name for name in foreign if options[name].lower() != "hive"]  # as without a type
    near = foreign or get_close_matches(option, others, 1, alike)
    return f"{_PREFIX}{near[0]}: did you mean {_PREFIX}{option}?" if near else ""
