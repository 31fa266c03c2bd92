"""Characters that a terminal, a log or a browser would obey instead of showing become visible."""

from __future__ import annotations

import re

_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b\u200e"
    "\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb\U000110bd\U000110cd"
    "\U00013430-\U0001345f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e007f]"
)
"""C0, C1, marks of direction and of no width, ends of lines and paragraphs, halves of a surrogate
pair. The joiners U+200C and U+200D belong to ordinary texts of some languages."""
_LINE_END = re.compile("[ \t]*(?:\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029])[ \t\r\n\v\f\x85]*")


def visible(text: str) -> str:
    r"""A text of several lines: other control characters as ``\x1b``, ``\u202e``."""
    if text.isprintable():
        return text
    return _UNSAFE.sub(_shown, text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    """A text as one line: what ends a line, with the blanks around it, becomes one blank."""
    if text.isprintable():
        return text
    return visible(_LINE_END.sub(" ", text)).replace("\n", " ").replace("\t", " ")


def _shown(found: re.Match[str]) -> str:
    char = found[0]
    if char in "\n\t":
        return char
    code = ord(char)
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
