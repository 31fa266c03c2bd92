"""Masks texts: values that are known to be secret, and texts that look like secrets."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import PurePath
from typing import Any

from sluice.masking.characters import one_line, visible
from sluice.masking.forms import MASK, TEXT_CHARS_MAX, is_secret_name, mask_forms
from sluice.masking.known import mask_known, version
from sluice.masking.torn import without_torn

REASON_CHARS_MAX = 4_096
"""Longest reason of a failure that is sent or stored (seed 001)."""
_REPEATS_MAX = 8
_CUT = "…"
_MARKS = str.maketrans("", "", f"*{_CUT}")
_WORD_CHARS_MAX = 64
"""Texts of JSON up to this length often come again, such as names of fields and states."""
_WORD_CUT_MAX = 1_024
"""Characters that a cut text loses at most besides known values."""
_LAST_WORD = re.compile(r"(?<!\S)\S+\Z")
_NO_SECRETS = (int, float, Mapping, list, tuple, set, frozenset)
_CONTINUED = "\n  "
"""Begins further lines of a log record, so that no message looks like two records."""


def mask(text: str, secrets: Iterable[str] = ()) -> str:
    """Masks passwords, tokens, keys and signatures in a text.

    A text of more than ``TEXT_CHARS_MAX`` characters is truncated, see :func:`cut`.

    :param secrets: values to mask wherever they occur, besides those that the process knows; values
        of fewer than four characters are ignored.
    """
    if not text:
        return ""  # most heartbeats have no text
    hidden = tuple(secrets)
    return mask_forms(mask_known(cut(text, TEXT_CHARS_MAX, hidden), hidden))


def cut(text: str, chars_max: int, secrets: Iterable[str] = ()) -> str:
    """The beginning of a text, for whoever masks it later: no half of a secret is at its end."""
    return text if len(text) <= chars_max else without_torn_end(text[:chars_max], secrets)


def without_torn_end(text: str, secrets: Iterable[str] = ()) -> str:
    """A text that was cut, without what may be half of a secret: no mask would find it.

    That is the last word, as a token or an address, and then the beginning of a known value.
    """
    last = _LAST_WORD.search(text, len(text) - min(_WORD_CUT_MAX, len(text) // 2))
    # Of a text of one long word, enough is kept to know it by.
    lost = min(_WORD_CUT_MAX, len(text) // 4) if last is None else len(last[0])
    kept = text if text[-1:].isspace() else text[: len(text) - lost]
    return without_torn(kept, secrets)


def line(text: str, secrets: Iterable[str] = ()) -> str:
    """A text to show as one line: masked, no line ends, and control characters visible."""
    hidden = tuple(secrets)
    masked = mask(text, hidden)
    shown = one_line(masked)
    # A secret may have had such a character inside.
    return shown if shown == masked else mask(shown, hidden)


def lines(text: str, secrets: Iterable[str] = ()) -> str:
    """The same for a text of several lines."""
    hidden = tuple(secrets)
    masked = mask(text, hidden)
    shown = visible(masked)
    return shown if shown == masked else mask(shown, hidden)


def masked_values(value: Any) -> Any:
    """A value of JSON with its texts masked, none of them cut. What JSON has no type for is text.

    JSON itself makes control characters visible.
    """
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        is_word = len(value) <= _WORD_CHARS_MAX
        return _masked_word(value, version()) if is_word else mask_forms(mask_known(value))
    if isinstance(value, Mapping):
        return {_masked_name(name): _masked_part(name, part) for name, part in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [masked_values(part) for part in value]
    return masked_values(str(value) if isinstance(value, PurePath) else repr(value))


def _masked_name(name: Any) -> Any:
    return name if name is None or isinstance(name, int | float) else masked_values(str(name))


def _masked_part(name: Any, part: Any) -> Any:
    """Numbers, and values that have parts themselves, are no secrets by their name."""
    if isinstance(part, _NO_SECRETS) or not part or not is_secret_name(str(name)):
        return masked_values(part)
    return MASK


@lru_cache(4_096)
def _masked_word(word: str, known: int) -> str:
    del known  # with other secrets, the text of then does not count
    return mask(word)


def reason_text(text: str, secrets: Iterable[str] = ()) -> str:
    """A reason as it is sent and stored: as of :func:`lines`, and at most 4,096 characters long.

    Characters that UTF-8 cannot encode (half of a surrogate pair in a file name) become ``?``.
    """
    hidden = tuple(secrets)
    encodable = cut(text, 4 * REASON_CHARS_MAX, hidden).encode("utf-8", "replace").decode("utf-8")
    shown = cut_reason(lines(encodable, hidden))
    for _ in range(_REPEATS_MAX):  # what stands next to a mask may look like a value then
        if not holds_secret(shown, hidden):
            break
        shown = cut_reason(mask(shown, hidden))
    return shown


def cut_reason(text: str) -> str:
    """A text of at most 4,096 characters; a longer one is cut, and ends in ``…``."""
    return text if len(text) <= REASON_CHARS_MAX else text[: REASON_CHARS_MAX - 1] + _CUT


def holds_secret(text: str, secrets: Iterable[str] = ()) -> bool:
    """Whether ``mask`` hides any part of a text, other than asterisks and the end of a cut text."""
    masked = mask(text, secrets)
    if masked == text:
        return False
    left = iter(masked.translate(_MARKS))
    return not all(char in left for char in text.translate(_MARKS))


def record_lines(text: str) -> str:
    """A text as of :func:`lines` for a log. Further lines are indented."""
    return lines(text).replace("\n", _CONTINUED)


class MaskingFormatter(logging.Formatter):
    """Formats log records as of :func:`record_lines`, their tracebacks too."""

    def format(self, record: logging.LogRecord) -> str:
        return record_lines(super().format(record))
