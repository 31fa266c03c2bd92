"""Names of tables as a run takes them: ``DATABASE.TABLE``, or with wildcards."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from sluice.model.paths import TablePath


def is_pattern(name: str) -> bool:
    """Whether a name has a wildcard."""
    return any(char in name for char in "*?[")


def matches(path: TablePath, patterns: Iterable[str]) -> bool:
    """Whether a table matches one of these patterns; upper and lower case differ."""
    name = str(path)
    return any(fnmatchcase(name, one) for one in patterns)
