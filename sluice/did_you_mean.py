"""Suggestions for names that do not exist: settings, columns, options, types."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """The end of an error message about an unknown name: ``; did you mean 'NAME'?``, or nothing.

    Upper and lower case count as equal.

    :param cutoff: how similar a suggestion must be, from 0 to 1.
    """
    found = closest(name, known, cutoff=cutoff)
    return f"; did you mean {found!r}?" if found else ""


def closest(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """The known name that is most similar to ``name``; None if none is similar."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    found = get_close_matches(name.lower(), by_lower, n=1, cutoff=cutoff)
    return by_lower[found[0]] if found else None


def is_slip(name: str, meant: str) -> bool:
    """Whether one slip makes the other name: a letter changed, missing, added, or two swapped.

    Upper and lower case count as equal. For short names, where similarity says little.
    """
    short, long = sorted((name.lower(), meant.lower()), key=len)
    same = next((i for i, letter in enumerate(short) if letter != long[i]), len(short))
    short, long = short[same:], long[same:]
    if len(short) < len(long):
        return short == long[1:]
    return short[1:] == long[1:] or (short[1::-1] == long[:2] and short[2:] == long[2:])
