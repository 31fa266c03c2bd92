"""The values that this process knows to be secret, and how to find them in a text.

Whoever reads a secret tells :func:`know`: a configuration does so when it is made, a connection of
Airflow when it is read. So no caller has to pass secrets on, and none can forget them.
"""

from __future__ import annotations

import base64
import binascii
import html
import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from html.entities import codepoint2name
from itertools import count
from urllib.parse import parse_qsl, quote, quote_plus, unquote

from sluice.masking.characters import visible
from sluice.masking.forms import MASK, is_secret_name

VALUE_CHARS_MIN = 4
"""Shorter values are not masked, because they occur in ordinary words."""
_ENVIRONMENT = ("SLUICE_", "AWS_", "AZURE_", "GOOGLE_")
_OF_FILES = ("_FILE", "_PATH", "_CREDENTIALS")
"""How the names of variables end that name a file."""
_WORDS = frozenset({"true", "false", "none", "null"})
"""Values of options that only have a name like a secret."""
KNOWN_MAX = 2_000
"""Values that a process keeps. Beyond them, it forgets the one that it was told first, of those
that are short-lived before others."""
B64 = {"+": r"(?:[+-]|%2[bB])", "/": r"(?:/|_|%2[fF]|\\{1,4}/)"}
_B64_END = r"[A-Za-z0-9+/_-]?(?:={1,2}|(?:%3[dD]){1,2})?"
_SPACE = (
    r"\s|\\{1,8}(?:[nrtvf]|x[01][0-9a-f]|u00[01][0-9a-fA-F])|%(?:25)*(?:0[9A-Da-d]|1[C-Fc-f]|20)"
    r"|\+|&#\d+;"
)
BACKSLASH = r"(?:\\|%(?:25)*5[cC]|&#92;|&bsol;)"
RUNS = re.compile(r"\\+|\s+|[\s\S]")
"""What is encoded as one."""
_USER_INFO = re.compile(
    r"(?i)\A(?:jdbc:)?[a-z][a-z0-9+.-]{0,31}://([^\s:@]{0,512}:([^\s@]{1,1024}))@"
)
_ORACLE = re.compile(r"(?i)\Ajdbc:oracle:\w{1,16}:([^/\s@]{1,128}/([^\s@]{1,512}))@")
_SCHEME = re.compile(r"(?i)\A(bearer|basic|digest|negotiate|token)\s+(\S+)\Z")
_PAIR = re.compile(r"(?P<name>[\w.-]{1,64}+)=(?:\"(?P<quoted>[^\"]*)\"|(?P<plain>[^;\"\s]+))")
_LINE_CHARS_MIN = 16
"""Shorter lines of a value of several lines are no secrets by themselves."""
_Patterns = list[tuple[str, str]]
"""A text that must occur, and the pattern to search then; for each kind of encoding."""
_known: dict[str, _Patterns] = {}
_short_lived: dict[str, None] = {}
"""Those known values that end by themselves."""
_versions = count(1)
_version = 0


def know(secrets: Iterable[str], *, are_short_lived: bool = False) -> None:
    """From now on, no text leaves this process with one of these values. Any thread may call it.

    :param are_short_lived: they end by themselves, as a catalog's keys, and others follow.
    """
    global _version
    found = worth(secrets)
    if not are_short_lived:
        for one in found:
            _short_lived.pop(one, None)
    if all(one in _known for one in found):  # most calls
        return
    for one in found:  # one that is known stays so: another thread may mask meanwhile
        if are_short_lived and one not in _known:
            _short_lived[one] = None
        _known.setdefault(one, _patterns(one))
    others = [one for one in [*list(_short_lived), *list(_known)] if one not in found]
    for one in list(dict.fromkeys(others))[: max(0, len(_known) - KNOWN_MAX)]:
        _known.pop(one, None)
        _short_lived.pop(one, None)
    _version = next(_versions)


def version() -> int:
    """Another one whenever this process is told of a secret: texts masked earlier are old then."""
    return _version


def know_environment(variables: Mapping[str, str]) -> None:
    """Knows the secrets among environment variables that a store or Sluice itself reads."""
    named = {
        name: value
        for name, value in variables.items()
        if name.startswith(_ENVIRONMENT) and not name.endswith(_OF_FILES)
    }
    know(secrets_in(named))


def forget_all() -> None:
    """For tests, which have many configurations in one process."""
    global _version
    _known.clear()
    _short_lived.clear()
    _version = next(_versions)


def mask_known(text: str, secrets: Iterable[str] = ()) -> str:
    """A text without the known values and these."""
    searched = list(_known.items())
    searched += [(one, _patterns(one)) for one in worth(secrets) if one not in _known]
    # What an encoding keeps is searched first: most texts have none of it.
    found = [(one, pattern) for one, all_of in searched for part, pattern in all_of if part in text]
    if not found:
        return text
    found.sort(key=lambda each: len(each[0]), reverse=True)  # one may be a part of another
    return re.sub("|".join(pattern for _, pattern in found), MASK, text)


def worth(secrets: Iterable[str]) -> list[str]:
    """Those that are long enough, without the line end of a file that they were read from.

    Of a value of several lines, as a key in a PEM file, also its long lines: logs have them apart.
    """
    found = [one for each in secrets if len(one := each.strip()) >= VALUE_CHARS_MIN]
    lines = (line.strip() for one in found if "\n" in one for line in one.splitlines())
    return [*found, *(one for one in lines if len(one) >= _LINE_CHARS_MIN and "-----" not in one)]


@lru_cache(2 * KNOWN_MAX)
def _patterns(secret: str) -> _Patterns:
    runs = re.findall(r"[A-Za-z0-9]+", secret)
    raw = "".join(_chars(one) for one in RUNS.findall(secret))
    found = [(max(runs, key=len, default=""), raw)]
    data = secret.encode("utf-8", "surrogatepass")
    for core in base64_cores(data):
        pattern = "".join(B64.get(char, char) for char in core)
        part = max(re.findall(r"[A-Za-z0-9]+", core), key=len, default="")
        found.append((part, f"{pattern}{_B64_END}"))
    digits = data.hex()
    return [*found, (digits, digits), (digits.upper(), digits.upper())]


def all_known() -> list[str]:
    """What this process has been told of."""
    return list(_known)


def _chars(run: str) -> str:
    """A pattern of a character of a secret, or of a run of backslashes or white space."""
    if run[0] == "\\":  # each escape doubles them
        return f"(?:{BACKSLASH}{{{len(run)},}})"
    if run[0].isspace():
        return f"(?:{space(run)})+"
    return run if run.isascii() and run.isalnum() else f"(?:{'|'.join(spellings(run))})"


def space(run: str) -> str:
    """A pattern of a character of white space, those of this run that are not ASCII too."""
    others = {one for char in run if not char.isascii() for one in spellings(char)}
    return "|".join([_SPACE, *sorted(others)])


def spellings(char: str) -> tuple[str, ...]:
    """As it is, and in addresses, JSON, Python, HTML. Nothing encodes digits and letters."""
    if char.isascii() and char.isalnum():
        return (char,)
    point, data = ord(char), char.encode("utf-8", "surrogatepass")
    units = char.encode("utf-16-be", "surrogatepass")
    name = codepoint2name.get(point, "apos" if char == "'" else "")
    others = [
        "".join(f"%(?:25)*{byte:02x}" for byte in data),
        "".join(rf"\\{{1,8}}u{units[at : at + 2].hex()}" for at in range(0, len(units), 2)),
        "".join(rf"\\{{1,8}}x{byte:02x}" for byte in data),
        rf"\\{{1,8}}x{point:02x}" if point <= 0xFF else rf"\\{{1,8}}u{point:08x}",
        f"&(?:amp;)?(?:#0*{point}|#x0*{point:x}{f'|{name}' if name else ''});",
    ]
    return rf"\\{{0,8}}{re.escape(char)}", f"(?i:{'|'.join(others)})"


def base64_cores(data: bytes) -> list[str]:
    """The Base64 characters that these bytes alone decide, at each of the three alignments."""
    found = []
    for before in range(3):
        text = base64.b64encode(bytes(before) + data).decode()
        found.append(text[-(-8 * before // 6) : 8 * (before + len(data)) // 6])
    return [core for core in found if len(core) >= VALUE_CHARS_MIN]


def encodings(secret: str) -> list[str]:
    """The usual encodings of a value, itself included, for a program that masks fixed texts."""
    if len(secret) < VALUE_CHARS_MIN:
        return []
    data = secret.encode("utf-8", "surrogatepass")
    quoted = [quote(data, safe=safe) for safe in ("", "/")] + [quote_plus(data)]
    found = [
        secret,
        visible(secret),
        *quoted,
        *(re.sub("%..", lambda hit: hit[0].lower(), one) for one in quoted),
        *(json.dumps(secret, ensure_ascii=is_ascii)[1:-1] for is_ascii in (True, False)),
        html.escape(secret),
    ]
    for core in base64_cores(data):
        found += [core, core.replace("+", "-").replace("/", "_"), quote(core, safe="")]
    return list(dict.fromkeys([*found, data.hex(), data.hex().upper()]))


def secrets_of(uri: str) -> tuple[str, ...]:
    """The secrets in an address, to mask them in texts without the address.

    They are ``user:password`` and the password, and values of the query that have secret names.
    """
    info = _USER_INFO.match(uri) or _ORACLE.match(uri)
    found = list(info.groups()) if info is not None else []
    if "?" in uri or (uri.startswith("jdbc:") and ";" in uri):
        query = re.split("[?;]", uri, maxsplit=1)[1]
        pairs = parse_qsl(query.replace(";", "&"))
        found += [value for name, value in pairs if is_secret_name(name)]
    found += [unquote(one) for one in found]
    return tuple(dict.fromkeys(found))


def secrets_in(options: Mapping[str, object]) -> tuple[str, ...]:
    """The secret values of options: of those with secret names, and in the addresses of others.

    A value may have parts that are used alone: the secret of ``id:secret``, the token of ``Bearer
    token``, the password of ``Basic``, the keys among ``name=value;``. They are among the values.
    """
    found: list[str] = []
    for name, value in options.items():
        if isinstance(value, Mapping):
            found += secrets_in(value)
        if not isinstance(value, str) or not value:
            continue
        found += secrets_of(value)
        if is_secret_name(name) and value.lower() not in _WORDS:
            found += [value, *_parts_of(name, value)]
    return tuple(dict.fromkeys(one for one in found if one))


def _parts_of(name: str, value: str) -> list[str]:
    if name.lower().rpartition(".")[2] == "credential" and ":" in value:
        return [value.partition(":")[2]]
    scheme = _SCHEME.match(value)
    if scheme is None:  # a connection string of Azure, or a login of JAAS
        is_cookie = name.lower().endswith("cookie")
        pairs = ((one["name"], one["quoted"] or one["plain"]) for one in _PAIR.finditer(value))
        return [found for key, found in pairs if found and (is_cookie or is_secret_name(key))]
    found = [scheme[2]]
    if scheme[1].lower() == "basic":
        try:
            login = base64.b64decode(scheme[2], validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            return found
        found += [login, login.partition(":")[2]]
    return found
