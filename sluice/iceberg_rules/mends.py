"""The statements of Spark SQL that mend a column of the lake which does not fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sluice.iceberg_rules.types import Fit, JsonType, fit, quoted, spark_type


def add_column(path: tuple[str, ...], kind: JsonType) -> str:
    """The change that adds a column, or a field inside one."""
    return f"ADD COLUMN {quoted(*path)} {spark_type(kind)}"


def rename_column(path: tuple[str, ...], name: str) -> str:
    """The change that renames a column, or a field inside one."""
    return f"RENAME COLUMN {quoted(*path)} TO {quoted(name)}"


def drop_not_null(path: tuple[str, ...]) -> str:
    """The change that allows nulls in a column, or in a field inside one."""
    return f"ALTER COLUMN {quoted(*path)} DROP NOT NULL"


def changes_of(fluss: JsonType, lake: JsonType, path: tuple[str, ...]) -> list[str] | None:
    """The changes by which a type of the lake takes the values of Fluss's; None: there are none.

    :param path: of the column, or of the field inside it.
    """
    if fit(fluss, lake) is not Fit.NO:
        return []
    if isinstance(fluss, str) or isinstance(lake, str):
        both = isinstance(fluss, str) and isinstance(lake, str)
        if both and fit(lake, fluss) is Fit.WIDER:
            return [f"ALTER COLUMN {quoted(*path)} TYPE {spark_type(fluss)}"]
        return None
    if fluss["type"] != lake["type"]:
        return None
    found: list[str] = []
    for more in _inside(fluss, lake, path):
        if more is None:
            return None
        found += more
    return found


def _inside(
    fluss: dict[str, Any], lake: dict[str, Any], path: tuple[str, ...]
) -> Iterator[list[str] | None]:
    if fluss["type"] == "struct":
        yield from _of_struct(fluss, lake, path)
        return
    for part in ("element",) if fluss["type"] == "list" else ("key", "value"):
        inner = (*path, part)
        if lake.get(f"{part}-required") and not fluss.get(f"{part}-required"):
            yield [drop_not_null(inner)]
        yield changes_of(fluss[part], lake[part], inner)


def _of_struct(
    fluss: dict[str, Any], lake: dict[str, Any], path: tuple[str, ...]
) -> Iterator[list[str] | None]:
    known: dict[str, Mapping[str, Any]] = {one["name"]: one for one in fluss["fields"]}
    found: dict[str, Mapping[str, Any]] = {one["name"]: one for one in lake["fields"]}
    lacks = [name for name in known if name not in found]
    others = [name for name in found if name not in known]
    if len(lacks) == len(others) == 1 and _fits(known[lacks[0]], found[others[0]]):
        yield [rename_column((*path, others[0]), lacks[0])]
        lacks, others = [], []
    for name in lacks:
        yield [add_column((*path, name), known[name]["type"])]
    for name, one in found.items():
        if one["required"] and (name in others or (name in known and not known[name]["required"])):
            yield [drop_not_null((*path, name))]
    for name in known.keys() & found.keys():
        yield changes_of(known[name]["type"], found[name]["type"], (*path, name))


def _fits(fluss: Mapping[str, Any], lake: Mapping[str, Any]) -> bool:
    return fit(fluss["type"], lake["type"]) is not Fit.NO
