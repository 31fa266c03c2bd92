"""The rules for names and types of columns: one list, with whom each rule protects.

A *refused* table could never be tiered, because Iceberg makes no such table, and Fluss with an
Iceberg lake refuses it, too. Of any other rule only some readers suffer: the table is tiered, and
commands, rounds and doctor say which.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sluice.errors import UnsupportedLakeOption
from sluice.iceberg_rules.layout import SYSTEM_NAMES, Layout
from sluice.model import DataType, TableInfo, TypeRoot

_METADATA_NAMES = frozenset(
    {
        "_file",
        "_pos",
        "_deleted",
        "_spec_id",
        "_partition",
        "_row_id",
        "_last_updated_sequence_number",
        "_change_ordinal",
        "_commit_snapshot_id",
    }
)
"""Metadata columns of Iceberg (``MetadataColumns``). Fluss itself reserves ``_change_type``."""
_KEPT_DIGITS = 3
"""Fluss's row formats keep TIME in milliseconds (docs/fluss/rows.md#compacted-rows)."""
_ROW_FORMATS = ("INDEXED", "COMPACTED")


@dataclass(frozen=True, slots=True)
class Rule:
    """What names or types must be like."""

    whom: str
    """Whom it protects."""
    problems: Callable[[TableInfo], Iterator[str]]
    """What is wrong with a table."""
    is_refused: bool = False
    """Whether a table that breaks it has no lake table."""
    layout: Layout | None = None
    """The layout of the lake tables that it is about; None: any."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A rule that a table breaks."""

    whom: str
    text: str
    is_refused: bool

    def __str__(self) -> str:
        return f"{self.text} ({self.whom})"


def problems(info: TableInfo, layout: Layout | None = None) -> list[Problem]:
    """The rules that a table breaks; those for which it is refused come first.

    :param layout: that of the lake table; None: it is not known.
    """
    found = [
        Problem(rule.whom, text, rule.is_refused)
        for rule in RULES
        if None in (layout, rule.layout) or layout is rule.layout
        for text in rule.problems(info)
    ]
    return sorted(found, key=lambda one: not one.is_refused)


def cautions(info: TableInfo, layout: Layout | None = None) -> list[str]:
    """Who cannot read all of a table that is tiered, and why.

    :param layout: that of the lake table; None: it is not known.
    """
    return [str(one) for one in problems(info, layout) if not one.is_refused]


def check_names_and_types(info: TableInfo) -> None:
    """:raises UnsupportedLakeOption: Iceberg makes no table with these names."""
    for one in problems(info):
        if one.is_refused:
            raise UnsupportedLakeOption(f"table {info.path}: {one.text}; rename it")


def _taken_by_the_bucket(info: TableInfo) -> Iterator[str]:
    for key in info.descriptor.bucket_keys:
        name = f"{key}_bucket"
        if name in info.schema.names and info.bucket_count:
            yield f"column {name} has the name of the partition field that buckets by {key}"


def _same_path(info: TableInfo) -> Iterator[str]:
    """Iceberg finds fields by their path: column ``a.b`` is in the way of field b of column a."""
    paths = Counter(path for path in _paths(info))
    for path in sorted(path for path, count in paths.items() if count > 1):
        yield f"two fields have the name {path} (a field b inside column a is named a.b)"


def _same_but_for_case(info: TableInfo) -> Iterator[str]:
    by_lower: dict[str, list[str]] = {}
    for name in dict.fromkeys(_paths(info)):
        by_lower.setdefault(name.lower(), []).append(name)
    for alike in by_lower.values():
        if len(alike) > 1:
            yield f"columns {' and '.join(alike)} differ in case only"


def _system_names_but_for_case(info: TableInfo) -> Iterator[str]:
    for name in info.schema.names:
        if name not in SYSTEM_NAMES and name.lower() in SYSTEM_NAMES:
            yield f"columns {name} and {name.lower()} differ in case only in a legacy lake table"


def _metadata_names(info: TableInfo) -> Iterator[str]:
    for name in info.schema.names:
        if name in _METADATA_NAMES:
            yield f"column {name} has the name of a metadata column of Iceberg"


def _times(info: TableInfo) -> Iterator[str]:
    found = [one.name for one in info.schema.columns if _has_time(one.data_type)]
    if len(found) == 1:
        yield f"column {found[0]} has the type TIME"
    elif found:
        yield f"columns {', '.join(found[:-1])} and {found[-1]} have the type TIME"


def _cut_times(info: TableInfo) -> Iterator[str]:
    log_format = info.descriptor.properties.get("table.log.format", "ARROW").upper()
    if not info.has_primary_key and log_format not in _ROW_FORMATS:
        return
    for one in info.schema.columns:
        if one.data_type.root is TypeRoot.TIME and (one.data_type.precision or 0) > _KEPT_DIGITS:
            what = f"column {one.name} is {one.data_type}, and its table keeps milliseconds"
            is_key = one.name in info.schema.primary_key
            yield f"{what}: two keys may become one" if is_key else what


def _hashed_times(info: TableInfo) -> Iterator[str]:
    if info.has_primary_key:  # its rows keep milliseconds, as hashed
        return
    for name in info.descriptor.bucket_keys:
        found = info.schema.column(name).data_type
        if found.root is TypeRoot.TIME and (found.precision or 0) > _KEPT_DIGITS:
            yield (
                f"bucket key {name} is {found}: Fluss buckets by its milliseconds, Iceberg by its"
                " microseconds, so a filter on one value may miss rows"
            )


RULES = (
    Rule("Iceberg: it makes no such table", _taken_by_the_bucket, is_refused=True),
    Rule("Iceberg: it makes no such table", _same_path, is_refused=True),
    Rule("Spark: it cannot read the table", _same_but_for_case),
    Rule("Spark: it cannot read the table", _system_names_but_for_case, layout=Layout.LEGACY),
    Rule("Spark: SELECT * fails, name the other columns", _metadata_names),
    Rule("Spark: it cannot read the table; other engines can", _times),
    Rule("rows with finer times: use TIME(3), or TIMESTAMP(6)", _cut_times),
    Rule("engines that look in one bucket only: use TIME(3)", _hashed_times),
)
"""What Spark 4.1 and PyIceberg 0.12 do was tried (tests/spark/rounds/test_names.py)."""


def _paths(info: TableInfo) -> Iterator[str]:
    for column in info.schema.columns:
        yield column.name
        yield from _inside(column.name, column.data_type)


def _inside(path: str, kind: DataType) -> Iterator[str]:
    """The names of the fields inside a column, as Iceberg has them."""
    parts = [(one.name, one.data_type) for one in kind.fields]
    if kind.element is not None:
        parts = [("element", kind.element)]
    if kind.key is not None and kind.value is not None:
        parts = [("key", kind.key), ("value", kind.value)]
    for name, inner in parts:
        yield f"{path}.{name}"
        yield from _inside(f"{path}.{name}", inner)


def _has_time(kind: DataType) -> bool:
    inside = [kind.element, kind.key, kind.value, *(one.data_type for one in kind.fields)]
    return kind.root is TypeRoot.TIME or any(_has_time(one) for one in inside if one is not None)
