"""Masks texts that look like secrets: by the names next to them, and by their own form."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

MASK = "***"
TEXT_CHARS_MAX = 65_536
"""Longest text that is searched; longer texts are truncated first."""
_FOLDED = str.maketrans({"\u0130": "i", "\u0131": "i", "\u017f": "s", "\u212a": "k"})
"""What patterns take for a letter of ASCII if they ignore case."""

# The time of a search grows with the length of the text only, whatever the text is. A repeat that
# something must follow is bounded, or begins at one place of its run of characters only. If what
# must follow cannot be part of the repeat, the repeat is never shortened ("{0,64}+", "*+").
_RUN_START = r"(?<![\w.-])"
_NAME = (
    r"[\w.-]*?(?:password|passwd|passphrase|pwd|secret|token|credential|"
    r"(?:access|api|private|account|shared|storage|(?:en|de)cryption|session)[-_. ]?key|"
    r"connection[-_.]?string|(?<![a-z0-9])sas(?![a-z0-9])|sse[-_.]?key|key[-_.]?json|signature|jaas[-_.]?config"
    # of requests to a catalog; what others hold than this one is not known
    r"|(?<![a-z0-9-])header(?:\.|__)(?!x-iceberg-access-delegation\b))"
    r"[\w.-]{0,64}+(?: (?:key|id))?"
)
_STRINGS = ("connectionstring", "connection-string", "connection_string", "connection.string")
_NAMES = (
    *("password", "passwd", "passphrase", "pwd", "secret", "token", "credential", "key"),
    *("signature", "jaas", "header", "sas", *_STRINGS),
)
_TOKENS = ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xox", "ya29.", "hvs.")
_QUOTE = r"(?:\\{0,3}[\"'])"
_VALUE = (
    r"(?:\\{1,3}\"[^\"]{0,4096}?(?:\\{1,3}\"|\Z)|\"(?:[^\"\\]|\\.){0,4096}(?:\"|\Z)"
    r"|'(?:[^'\\]|\\.){0,4096}(?:'|\Z)|\\{0,3}[\"']?[^\s,;&\"')}\]<]+)"
)
_IN_QUERY = re.compile(r"(?i)signature|\bsig=|credential|token|\bkey=")


def _without_query(address: re.Match[str]) -> str:
    """A signed address without its query; another address as it is."""
    return f"{address[1]}?{MASK}" if _IN_QUERY.search(address[2]) else address[0]


_MASKS: tuple[
    tuple[tuple[str, ...], re.Pattern[str], str | Callable[[re.Match[str]], str]], ...
] = (  # what a text must have for the pattern, in small letters; the pattern; what replaces it
    (
        ("private key-----",),
        re.compile(
            r"-----BEGIN ([A-Z ]{0,40})PRIVATE KEY-----"
            r"(?:[^-]++|-(?!----END))*+(?:-----END)?"
        ),
        rf"-----BEGIN \1PRIVATE KEY----- {MASK} -----END",
    ),
    # user:password in an address; keys of object stores may hold slashes
    (
        ("://",),
        re.compile(r"(?i)\b((?:s3[an]?|wasbs?|abfss?|gs|oss)://)[^/\s:@]{1,512}+:[^\s@]{1,1024}+@"),
        rf"\1{MASK}@",
    ),
    (
        ("://",),
        re.compile(r"(?i)\b([a-z][a-z0-9+.-]{0,31}://)[^/\s:@]{0,512}+:[^/\s@]{1,1024}+@"),
        rf"\1{MASK}@",
    ),
    (
        ("jdbc:oracle:",),
        re.compile(r"(?i)\b(jdbc:oracle:\w{1,16}:)[^/\s@]{1,128}+/[^\s@]{1,512}+@"),
        rf"\1{MASK}@",
    ),
    # the query of a signed address
    (
        ("://",),
        re.compile(r"(?i)\b([a-z][a-z0-9+.-]{0,31}://[^\s?\"'<>]{1,1024}+)\?([^\s\"'<>]*+)"),
        _without_query,
    ),
    (
        ("bearer", "basic", "digest", "negotiate"),
        re.compile(r"(?i)\b(bearer|basic|digest|negotiate)\s+[a-z0-9._~+/=-]{8,}"),
        rf"\1 {MASK}",
    ),
    (
        ("akia", "asia", "aroa", "aida"),
        re.compile(r"\b(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{12,20}\b"),
        MASK,
    ),  # keys of AWS
    (
        ("eyj",),
        re.compile(r"\beyJ[\w-]{8,4096}+\.[\w-]{1,4096}+\.[\w-]*"),
        MASK,
    ),  # a JSON web token
    (
        _TOKENS,
        re.compile(r"\b(?:gh[pousr]_|github_pat_|glpat-|xox[abprs]-|ya29\.|hvs\.)[\w-]{8,}"),
        MASK,
    ),
    # Hadoop's XML, then any element with such a name
    (
        ("<name>",),
        re.compile(rf"(?i)(<name>\s*{_NAME}\s*</name>\s*<value>)[^<]*"),
        rf"\1{MASK}",
    ),
    (
        ("<",),
        re.compile(r"(?i)(<(\w{0,32}(?:key|token|signature|secret|password)\w{0,32})>)[^<]*"),
        rf"\1{MASK}",
    ),
    (
        ("authorization",),
        re.compile(
            rf"(?i)(\b(?:proxy-)?authorization{_QUOTE}?\s{{0,8}}[:=]\s{{0,8}})"
            rf"(?!(?:bearer|basic|digest|negotiate|aws4-hmac-sha256)\b){_VALUE}"
        ),
        rf"\1{MASK}",
    ),
    (("cookie",), re.compile(r"(?i)(\b(?:set-)?cookie\s{0,8}:\s{0,8})[^\r\n]+"), rf"\1{MASK}"),
    # a token in the place of a user
    (("://",), re.compile(r"(?i)\b(https?://)[^/\s:@]{1,1024}+@"), rf"\1{MASK}@"),
    # password 'value'
    (
        _NAMES,
        re.compile(
            rf"(?i)({_RUN_START}[\w.-]*?(?:password|passwd|passphrase|pwd|secret)"
            r"[\w.-]{0,64}+\s{1,8})"
            r"([\"'])(?:(?!\2)[^\r\n]){1,1024}(?:\2|\Z)"
        ),
        rf"\1{MASK}",
    ),
    # --password value
    (_NAMES, re.compile(rf"(?i)((?<!\S)--?{_NAME}[ \t]+)(?!-){_VALUE}"), rf"\1{MASK}"),
    # "name": "value", name=value, name: value, name -> value
    (
        _NAMES,
        re.compile(
            rf"(?i)({_RUN_START}{_NAME}{_QUOTE}?\s{{0,8}}(?:=>|->|(?<=-)>|[=:]|%3[ad])\s{{0,8}})"
            rf"{_VALUE}"
        ),
        rf"\1{MASK}",
    ),
    (("pass=", "auth="), re.compile(rf"(?i)((?<![\w.-])(?:pass|auth)=){_VALUE}"), rf"\1{MASK}"),
    (("sig=",), re.compile(r"(?i)((?<![\w])sig=)[^\s,;&\"')}\]]+"), rf"\1{MASK}"),
)
_NEEDED = (
    *("pass", "pwd", "secret", "token", "credential", "key", "sig", "jaas", "header", "auth"),
    *("sas", *_STRINGS),
    *("://", "<", "bearer", "basic", "digest", "negotiate", "cookie", "akia", "asia", "aroa"),
    *("aida", "eyj", "jdbc:oracle:", *_TOKENS),
)
"""One of them is in each text that any pattern needs."""
_SECRET_NAME = re.compile(rf"(?i)\A(?:{_NAME}|[\w.-]*(?:authorization|cookie|jwt)[\w.-]*)\Z")


def mask_forms(text: str) -> str:
    """Masks what looks like a secret."""
    lower = text.translate(_FOLDED).lower() if not text.isascii() else text.lower()
    if not any(part in lower for part in _NEEDED):  # most texts
        return text
    for needed, pattern, replacement in _MASKS:
        if any(part in lower for part in needed):
            text = pattern.sub(replacement, text)
    return text


@lru_cache(4_096)
def is_secret_name(name: str) -> bool:
    """Whether an option of this name has a secret value."""
    return _SECRET_NAME.match(name) is not None
