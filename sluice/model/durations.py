"""Durations in the form of Fluss's table options (docs/fluss/types-and-options.md#durations)."""

from __future__ import annotations

import re
from collections.abc import Mapping

from sluice.errors import InvalidConfig

_UNITS_MS: Mapping[str, float] = {
    **dict.fromkeys(("d", "day", "days"), 86_400_000.0),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000.0),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60_000.0),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1_000.0),
    **dict.fromkeys(("", "ms", "milli", "millis", "millisecond", "milliseconds"), 1.0),
    **dict.fromkeys(("µs", "us", "micro", "micros", "microsecond", "microseconds"), 1e-3),
    **dict.fromkeys(("ns", "nano", "nanos", "nanosecond", "nanoseconds"), 1e-6),
}
_DURATION = re.compile(r"(\d+)\s*([a-zµ]*)")
_ISO_DURATION = re.compile(
    r"p(?:(\d+)d)?(?:t(?=\d)(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?)?", re.IGNORECASE
)


def duration_ms(key: str, text: str) -> int:
    """Parses a duration in Fluss's syntax (``3 min``, ``500ms``, ``PT3M``) to milliseconds.

    :raises InvalidConfig: the text is not a duration; the message names ``key``.
    """
    plain = _DURATION.fullmatch(text.strip().lower())
    if plain and plain[2] in _UNITS_MS:
        return int(int(plain[1]) * _UNITS_MS[plain[2]])
    iso = _ISO_DURATION.fullmatch(text.strip())
    if iso and any(iso.groups()):
        days, hours, minutes, seconds = (float(part or 0) for part in iso.groups())
        return int((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)
    raise InvalidConfig(f"{key} = {text!r} is not a duration; write for example '3 min' or '30s'")
