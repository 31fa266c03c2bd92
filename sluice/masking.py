"""Masks secrets in all texts that leave a process: reasons, notes, files, logs and statuses.

Patterns find texts that look like secrets. Callers can pass further values that they know to be
secret.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterable
from urllib.parse import quote

MASK = "***"
TEXT_CHARS_MAX = 65_536
"""Longest text that is searched; longer texts are truncated first."""
REASON_CHARS_MAX = 4_096
"""Longest reason of a failure that is sent or stored (seed 001)."""
_VALUE_CHARS_MIN = 4
"""Shorter values are not masked, because they occur in ordinary words."""
_REPEATS_MAX = 8
_CUT = "…"
_MARKS = str.maketrans("", "", f"*{_CUT}")

# The time of a search grows with the length of the text only, whatever the text is. A repeat that
# something must follow is bounded, or begins at one place of its run of characters only. If what
# must follow cannot be part of the repeat, the repeat is never shortened ("{0,64}+", "*+").
_RUN_START = r"(?<![\w.-])"
_NAME = (
    r"[\w.-]*?(?:password|passwd|passphrase|pwd|secret|token|credential|"
    r"(?:access|api|private|account|shared|storage|encryption|session)[-_. ]?key|"
    r"signature|jaas[-_.]?config)[\w.-]{0,64}+(?: (?:key|id))?"
)
_QUOTE = r"(?:\\{0,3}[\"'])"
_VALUE = (
    r"(?:\\{1,3}\"[^\"]{0,4096}?\\{1,3}\"|\"(?:[^\"\\]|\\.){0,4096}(?:\"|\Z)"
    r"|'(?:[^'\\]|\\.){0,4096}(?:'|\Z)|\\{0,3}[\"']?[^\s,;&\"')}\]<]+)"
)
_IN_QUERY = re.compile(r"(?i)signature|\bsig=|credential|token|\bkey=")


def _without_query(address: re.Match[str]) -> str:
    """A signed address without its query; another address as it is."""
    return f"{address[1]}?{MASK}" if _IN_QUERY.search(address[2]) else address[0]


_MASKS: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (
        re.compile(
            r"-----BEGIN ([A-Z ]{0,40})PRIVATE KEY-----"
            r"(?:[^-]++|-(?!----END))*+(?:-----END)?"
        ),
        rf"-----BEGIN \1PRIVATE KEY----- {MASK} -----END",
    ),
    # user:password in an address; keys of object stores may hold slashes
    (
        re.compile(r"(?i)\b((?:s3[an]?|wasbs?|abfss?|gs|oss)://)[^/\s:@]{1,512}+:[^\s@]{1,1024}+@"),
        rf"\1{MASK}@",
    ),
    (
        re.compile(r"(?i)\b([a-z][a-z0-9+.-]{0,31}://)[^/\s:@]{0,512}+:[^/\s@]{1,1024}+@"),
        rf"\1{MASK}@",
    ),
    (re.compile(r"(?i)\b(jdbc:oracle:\w{1,16}:)[^/\s@]{1,128}+/[^\s@]{1,512}+@"), rf"\1{MASK}@"),
    # the query of a signed address
    (
        re.compile(r"(?i)\b([a-z][a-z0-9+.-]{0,31}://[^\s?\"'<>]{1,1024}+)\?([^\s\"'<>]*+)"),
        _without_query,
    ),
    (
        re.compile(r"(?i)\b(bearer|basic|digest|negotiate)\s+[a-z0-9._~+/=-]{8,}"),
        rf"\1 {MASK}",
    ),
    (re.compile(r"\b(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{12,20}\b"), MASK),  # keys of AWS
    (re.compile(r"\beyJ[\w-]{8,4096}+\.[\w-]{1,4096}+\.[\w-]*"), MASK),  # a JSON web token
    (re.compile(r"\b(?:gh[pousr]_|github_pat_|glpat-|xox[abprs]-|ya29\.|hvs\.)[\w-]{8,}"), MASK),
    # Hadoop's XML, then any element with such a name
    (
        re.compile(rf"(?i)(<name>\s*{_NAME}\s*</name>\s*<value>)[^<]*"),
        rf"\1{MASK}",
    ),
    (
        re.compile(r"(?i)(<(\w{0,32}(?:key|token|signature|secret|password)\w{0,32})>)[^<]*"),
        rf"\1{MASK}",
    ),
    (
        re.compile(
            rf"(?i)(\b(?:proxy-)?authorization{_QUOTE}?\s{{0,8}}[:=]\s{{0,8}})"
            rf"(?!(?:bearer|basic|digest|negotiate|aws4-hmac-sha256)\b){_VALUE}"
        ),
        rf"\1{MASK}",
    ),
    (re.compile(r"(?i)(\b(?:set-)?cookie\s{0,8}:\s{0,8})[^\r\n]+"), rf"\1{MASK}"),
    # a token in the place of a user
    (re.compile(r"(?i)\b(https?://)[^/\s:@]{1,1024}+@"), rf"\1{MASK}@"),
    # password 'value'
    (
        re.compile(
            rf"(?i)({_RUN_START}[\w.-]*?(?:password|passwd|passphrase|pwd|secret)"
            r"[\w.-]{0,64}+\s{1,8})"
            r"([\"'])(?:(?!\2)[^\r\n]){1,1024}\2"
        ),
        rf"\1{MASK}",
    ),
    # --password value
    (re.compile(rf"(?i)((?<!\S)--?{_NAME}[ \t]+)(?!-){_VALUE}"), rf"\1{MASK}"),
    # "name": "value", name=value, name: value, name -> value
    (
        re.compile(
            rf"(?i)({_RUN_START}{_NAME}{_QUOTE}?\s{{0,8}}(?:=>|->|(?<=-)>|[=:]|%3[ad])\s{{0,8}})"
            rf"{_VALUE}"
        ),
        rf"\1{MASK}",
    ),
    (re.compile(rf"(?i)((?<![\w.-])(?:pass|auth)=){_VALUE}"), rf"\1{MASK}"),
    (re.compile(r"(?i)((?<![\w])sig=)[^\s,;&\"')}\]]+"), rf"\1{MASK}"),
)
_USER_INFO = re.compile(r"(?i)\A[a-z][a-z0-9+.-]{0,31}://([^\s:@]{0,512}:([^\s@]{1,1024}))@")
_SECRET_NAME = re.compile(rf"(?i)\A{_NAME}\Z")


def mask(text: str, secrets: Iterable[str] = ()) -> str:
    """Masks passwords, tokens, keys and signatures in a text.

    A text of more than ``TEXT_CHARS_MAX`` characters is truncated.

    :param secrets: values to mask wherever they occur; values of fewer than four characters are
        ignored.
    """
    if not text:
        return ""  # most heartbeats have no text
    text = text[:TEXT_CHARS_MAX]
    for secret in sorted({s for s in secrets if len(s) >= _VALUE_CHARS_MIN}, key=len, reverse=True):
        for form in {secret, quote(secret, safe=""), json.dumps(secret)[1:-1]}:
            text = text.replace(form, MASK)
    for pattern, replacement in _MASKS:
        text = pattern.sub(replacement, text)
    return text


def is_secret_name(name: str) -> bool:
    """Whether an option of this name has a secret value."""
    return _SECRET_NAME.match(name) is not None


def secrets_of(uri: str) -> tuple[str, ...]:
    """The secrets in ``user:password`` of a URI, to mask them in texts without the URI."""
    found = _USER_INFO.match(uri)
    return () if found is None else found.groups()


def reason_text(text: str, secrets: Iterable[str] = ()) -> str:
    """A reason as it is sent and stored: masked, and at most 4,096 characters long.

    Characters that UTF-8 cannot encode (half of a surrogate pair in a file name) become ``?``.
    """
    hidden = tuple(secrets)
    shown = mask(text[: 4 * REASON_CHARS_MAX], hidden).encode("utf-8", "replace").decode("utf-8")
    shown = cut_reason(shown)
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
    left = iter(mask(text, secrets).translate(_MARKS))
    return not all(char in left for char in text.translate(_MARKS))


class MaskingFormatter(logging.Formatter):
    """Formats log records, with secrets masked in messages and tracebacks."""

    def __init__(self, fmt: str, secrets: Iterable[str] = ()) -> None:
        super().__init__(fmt)
        self.secrets = tuple(secrets)

    def format(self, record: logging.LogRecord) -> str:
        return mask(super().format(record), self.secrets)
