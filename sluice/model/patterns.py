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


class TablePatterns:
    """Names and patterns that many tables are compared with: see :func:`matches`."""

    def __init__(self, given: Iterable[str]) -> None:
        found = [*given]
        self._names = frozenset(name for name in found if not is_pattern(name))
        self._patterns = tuple(name for name in found if is_pattern(name))

    def matches(self, path: TablePath) -> bool:
        return str(path) in self._names or matches(path, self._patterns)
