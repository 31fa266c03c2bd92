"""Known values at the end of a text that was cut: their end is missing, so no mask finds them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from sluice.masking.known import (
    B64,
    BACKSLASH,
    KNOWN_MAX,
    RUNS,
    VALUE_CHARS_MIN,
    all_known,
    base64_cores,
    space,
    spellings,
    worth,
)

_ENCODED_MAX = 32
"""Characters of an encoded character, mostly: others are encoded more than five times."""
_TORN_MAX = 64
_TORN_CHAR = re.compile(rf"(?:[\\%&][\\%&#;\w]{{0,{_TORN_MAX}}})?")
"""What a cut leaves of an encoded character."""
_Steps = tuple[tuple[str, ...], ...]
"""The patterns of each character of an encoded value. They are searched one after the other."""


def without_torn(text: str, secrets: Iterable[str] = ()) -> str:
    """A text without the beginning of a known value, or of one of these, at its end.

    Fewer than four characters of a value may stay.
    """
    hidden = tuple({*all_known(), *worth(secrets)})
    while (at := _torn_at(text, hidden)) < len(text):
        text = text[:at]  # the end of a value may be like its beginning
    return text


def _torn_at(text: str, secrets: Sequence[str]) -> int:
    first = len(text)
    for secret in secrets:
        for part, seed, steps in _beginnings(secret):
            start = max(0, len(text) - _ENCODED_MAX * len(steps))
            if text.find(part, start) < 0:  # most values
                continue
            hits = (hit.start() for hit in re.compile(seed).finditer(text, start, len(text)))
            first = min(first, next((at for at in hits if _is_torn(text, at, steps)), first))
    return first


def _is_torn(text: str, start: int, steps: _Steps) -> bool:
    """Whether a value begins here, and goes on behind the end of the text."""
    ends = {start}
    for number, patterns in enumerate(steps):
        near = (at for at in ends if len(text) - at <= _TORN_MAX)
        if number >= VALUE_CHARS_MIN and any(_TORN_CHAR.fullmatch(text, at) for at in near):
            return True
        hits = (re.compile(one).match(text, at) for one in patterns for at in ends)
        ends = {hit.end() for hit in hits if hit is not None}
    return False


@lru_cache(2 * KNOWN_MAX)
def _beginnings(secret: str) -> list[tuple[str, str, _Steps]]:
    """Of each encoding: a text that must occur, a pattern of the first characters, all of them."""
    data = secret.encode("utf-8", "surrogatepass")
    runs = RUNS.findall(secret)
    encoded: list[tuple[Sequence[str], _Steps]] = [(runs, tuple(map(_spellings, runs)))]
    for text in (*base64_cores(data), data.hex(), data.hex().upper()):
        encoded += [(text, tuple((B64.get(char, char),) for char in text))]
    found = []
    for plain, steps in encoded:
        parts = re.findall(r"[A-Za-z0-9]+", "".join(plain[:VALUE_CHARS_MIN]))
        first = "".join(f"(?:{'|'.join(one)})" for one in steps[:VALUE_CHARS_MIN])
        found.append((max(parts, key=len, default=""), f"(?={first})", steps))
    return found


def _spellings(run: str) -> tuple[str, ...]:
    """Each also as short as it may be: the next character may begin like the end of this one."""
    if run[0] == "\\":
        counts = [len(run) * times for times in (1, 2, 4)]
        return (f"{BACKSLASH}{{{len(run)},}}", *(f"{BACKSLASH}{{{one}}}" for one in counts))
    if run[0].isspace():
        return f"(?:{space(run)})+", f"(?:{space(run)})"
    return spellings(run)
