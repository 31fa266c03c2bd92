"""The output that a page shows against the one that was seen.

What differs from run to run is left out of the comparison: times, durations that were measured,
ids, free ports, runs of spaces, and the lines of tables. Dates alone are compared, as partitions
bear them, and so are durations that are configured, such as a freshness. Of the time that is left
until something happens, its largest unit is compared.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

_NUMBER = r"\d[\d,]*(?:\.\d+)?"
_UNIT = r"(?:µs|us|ms|s|min|h|d|seconds?|minutes?|hours?|days?)"
_DURATION = rf"{_NUMBER} ?{_UNIT}\b(?: {_NUMBER} ?{_UNIT}\b)*"
_MEASURED = (
    # What a command took, at the end of its line: "2 rows appended in 0.5 s", "..., 2.7 s".
    rf"((?:appended|upserted|deleted|sent) in |, ){_DURATION}(?=$|,)",
    # The duration of a round, behind its outcome.
    rf"(\b(?:committed|nothing new|failed) ){_DURATION}",
    # Ages: "23 s ago", and the age of the oldest row in the column of the lag.
    rf"(){_DURATION}(?= ago\b)",
    rf"(\brows?, ){_DURATION}",
)
_VARYING = [
    (re.compile(pattern), stands_for)
    for pattern, stands_for in (
        (r"\x1b\[[0-9;?]*[A-Za-z]", ""),
        (r"\s+", " "),
        (r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d([.,]\d+)?)? ?(Z|UTC|[+-]\d\d:?\d\d)?", "<time>"),
        (r"\b\d\d:\d\d:\d\d([.,]\d+)?\b", "<time>"),
        (r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "<uuid>"),
        (r"\b\d{12,}\b", "<id>"),
        (r"\b[0-9a-f]{16,}\b", "<hex>"),
        (r'(_ms": )\d+', r"\1<ms>"),
        (r"(\bseconds\b.*?)\d+\.\d+", r"\1<duration>"),
        (rf"\b{_NUMBER} [kMG]B\b(?!/s)", "<size>"),
        (rf"\b{_NUMBER} (rows|MB|MiB|bytes)/s", "<rate>"),
        *((measured, r"\1<duration>") for measured in _MEASURED),
        (rf"\bin {_NUMBER} ?({_UNIT})\b(?: {_DURATION})?", r"in <\1>"),
        (r"(?i)\bpid \d+", "pid <pid>"),
        (r"\S+/bin/java is Java \d+", "<java> is Java <version>"),
        (r"((?:127\.0\.0\.1|localhost|0\.0\.0\.0):)[1-6]\d{4}\b", r"\1<port>"),
        (r"[─━═]+", "─"),
    )
]
_JOB = re.compile(r"\[\d+\]\s+(\d+|Done\b.*|Terminated\b.*)")


def normalized(line: str) -> str:
    """The line without what differs from run to run."""
    for pattern, stands_for in _VARYING:
        line = pattern.sub(stands_for, line)
    return line.strip()


def matches(expected: Sequence[str], seen: Sequence[str]) -> bool:
    """Whether the output is the expected one; ``...`` stands for any lines, or any text of one."""
    parts: list[list[str]] = [[]]
    for line in _compared(expected):
        if line == "...":
            parts.append([])
        else:
            parts[-1].append(line)
    left = _compared(seen)
    first, *middle = parts
    if not _same(first, left[: len(first)]):
        return False
    if not middle:
        return len(left) == len(first)
    left = left[len(first) :]
    for part in middle[:-1]:
        starts = range(len(left) - len(part) + 1)
        at = next((at for at in starts if _same(part, left[at : at + len(part)])), None)
        if at is None:
            return False
        left = left[at + len(part) :]
    last = middle[-1]
    return len(left) >= len(last) and _same(last, left[len(left) - len(last) :])


def difference(expected: Sequence[str], seen: Sequence[str]) -> str:
    """The lines that differ, with ``-`` for the page and ``+`` for what was seen."""
    ours, theirs = _shown(expected), _shown(seen)
    lines = []
    matcher = difflib.SequenceMatcher(
        None, [normalized(line) for line in ours], [normalized(line) for line in theirs], False
    )
    for kind, i1, i2, j1, j2 in matcher.get_opcodes():
        if kind == "equal":
            lines += [f"  {line}" for line in theirs[j1:j2]]
        else:
            lines += [f"- {line}" for line in ours[i1:i2]]
            lines += [f"+ {line}" for line in theirs[j1:j2]]
    return "\n".join(lines)


def _same(expected: Sequence[str], seen: Sequence[str]) -> bool:
    if len(expected) != len(seen):
        return False
    return all(map(_same_line, expected, seen))


def _same_line(expected: str, seen: str) -> bool:
    if "..." not in expected:
        return expected == seen
    return bool(re.fullmatch(".*".join(map(re.escape, expected.split("..."))), seen))


def _shown(lines: Sequence[str]) -> list[str]:
    """Without what a shell says of its jobs, and without empty lines at both ends."""
    kept = [line for line in lines if not _JOB.fullmatch(line.strip())]
    while kept and not kept[-1].strip():
        kept.pop()
    while kept and not kept[0].strip():
        kept.pop(0)
    return kept


def _compared(lines: Sequence[str]) -> list[str]:
    return [normalized(line) for line in _shown(lines)]
