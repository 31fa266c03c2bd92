"""A value that the process was told of is found in every encoding, and a sink obeys no text."""

from __future__ import annotations

import base64
import html
import json
import logging
import re
import subprocess
import sys
import threading
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sluice.config import ClientConfig, Config, DatalakeConfig, load_config
from sluice.masking import (
    TEXT_CHARS_MAX,
    MaskingFormatter,
    encodings,
    forget_all,
    is_secret_name,
    know,
    know_environment,
    line,
    lines,
    mask,
    masked_values,
    reason_text,
    secrets_in,
    version,
    visible,
)
from sluice.masking.known import KNOWN_MAX

SECRET = 'Pl/4+nt "ed\\7&x=ü'
ENCODINGS: list[Callable[[str], str]] = [
    lambda one: one,
    lambda one: quote(one, safe=""),
    lambda one: quote(one),
    lambda one: re.sub("%..", lambda hit: hit[0].lower(), quote(one, safe="")),
    quote_plus,
    lambda one: quote(quote(one, safe=""), safe=""),
    json.dumps,
    lambda one: json.dumps(one, ensure_ascii=False).replace("/", "\\/"),
    lambda one: json.dumps(json.dumps(one)),
    repr,
    lambda one: repr(one.encode()),
    html.escape,
    lambda one: base64.b64encode(one.encode()).decode(),
    lambda one: base64.urlsafe_b64encode(one.encode()).decode(),
    lambda one: quote(base64.b64encode(one.encode()).decode(), safe=""),
    lambda one: base64.b64encode(f"u:{one}".encode()).decode(),
    lambda one: base64.b64encode(f"us:{one}:more".encode()).decode(),
    lambda one: base64.b64encode(f"user:{one}".encode()).decode().rstrip("="),
    lambda one: one.encode().hex(),
    lambda one: one.encode().hex().upper(),
]


@pytest.mark.parametrize("number", range(len(ENCODINGS)))
@pytest.mark.parametrize(
    "secret", [SECRET, "plain0secret", "a-b.c~d_e", "-----PEM\nof\tlines-----"]
)
def test_a_known_secret_is_masked_in_each_encoding(number: int, secret: str) -> None:
    know([secret])
    encoded = ENCODINGS[number](secret)
    shown = mask(f"answer: {encoded}; end")
    parts = [part for part in encoded.strip("'\"").split() if len(part) > 3]
    assert shown.startswith("answer: ")
    assert shown.endswith("; end")
    assert "***" in shown
    assert [part for part in parts if part in shown] == []


def test_fixed_texts_for_other_programs_are_its_encodings() -> None:
    found = encodings(SECRET)
    for encode in (*ENCODINGS[:5], html.escape, lambda one: json.dumps(one)[1:-1]):
        assert encode(SECRET) in found
    for before in ("", "u", "us"):
        text = base64.b64encode(f"{before}{SECRET}!".encode()).decode()
        assert any(one in text for one in found)
    assert encodings("abc") == []


controls = st.text(
    st.one_of(
        st.characters(categories=["Cc", "Cf", "Zl", "Zp"]),
        st.sampled_from("\x1b\x07\r\n\t[]m;ab \\"),
        st.characters(),
    ),
    max_size=60,
)
secrets = st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=4, max_size=20).filter(
    lambda one: "*" not in one and "\\" not in one and any(char.isalnum() for char in one)
)


def unsafe(text: str) -> list[str]:
    """The characters that a terminal may obey."""
    kinds = {char: unicodedata.category(char) for char in text}
    return [
        char
        for char, kind in kinds.items()
        if kind in ("Cc", "Cf", "Cs", "Zl", "Zp") and char not in "\u200c\u200d"
    ]


@settings(deadline=None)
@given(controls, secrets, st.sampled_from(ENCODINGS), controls, st.booleans())
def test_no_text_leaves_with_a_secret_or_a_control_character(
    before: str, secret: str, encode: Callable[[str], str], after: str, is_known: bool
) -> None:
    forget_all()
    if is_known:
        know([secret])
    hidden = [] if is_known else [secret]
    encoded = encode(secret)
    assume(mask("***", [secret]) == "***")
    text = f"{before} {encoded} {after}"
    for shown in (line(text, hidden), lines(text, hidden), reason_text(text, hidden)):
        assert secret not in shown
        assert encoded not in shown
        assert [char for char in unsafe(shown) if char not in "\n\t"] == []
    assert unsafe(line(text, hidden)) == []
    assert line(text, hidden).splitlines() in ([], [line(text, hidden)])


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]0;t\x07\x1b[31mred\r\nInjected: line", r"\x1b]0;t\x07\x1b[31mred Injected: line"),
        ("a\u202eb\u2066c", r"a\u202eb\u2066c"),
        ("\x9b31m", r"\x9b31m"),
        ("tab\there", "tab here"),
        ("two  blanks   stay", "two  blanks   stay"),
        ("half \ud800", r"half \ud800"),
        ("\U000e0041", r"\U000e0041"),
        ("नमस्\u200dते 👩\u200d🚀 é", "नमस्\u200dते 👩\u200d🚀 é"),
    ],
)
def test_control_characters_are_shown_and_not_sent(text: str, shown: str) -> None:
    assert line(text) == shown


def test_lines_keep_their_ends() -> None:
    assert lines("a\r\nb\tc\rd\n") == "a\nb\tc\\rd\n".replace("\\r", "\\x0d")


def test_a_secret_is_not_put_together_by_what_is_removed() -> None:
    know(["one two"])
    assert "one two" not in line("one\ntwo")
    assert "one two" not in line("one\r\n\t two")


def test_characters_of_no_width_are_all_listed() -> None:
    every = "".join(map(chr, range(sys.maxunicode + 1)))
    assert [char for char in unsafe(visible(every)) if char not in "\n\t"] == []


def test_a_configuration_tells_its_secrets() -> None:
    ClientConfig("fluss://h:1", username="bob", password="planted-password")
    DatalakeConfig("iceberg", {"header.X-Auth": "planted-header", "uri": "https://u:planted-uri@h"})
    load_config(
        None,
        {"SLUICE_CLIENT_TOKEN": "planted-token", "AWS_SECRET_ACCESS_KEY": "planted/aws"},
        {"datalake.iceberg.credential": "id:planted-credential"},
    )
    text = "planted-password planted-header planted-uri planted-token planted/aws"
    assert mask(text) == "*** *** *** *** ***"
    assert mask("only planted-credential") == "only ***"
    Config(client=ClientConfig(token="planted-other"))
    assert mask("x planted-other") == "x ***"


def test_parts_of_a_header_are_secrets_too() -> None:
    login = base64.b64encode(b"bob:planted").decode()
    found = secrets_in({"header.Authorization": f"Basic {login}", "header.X": "Bearer planted-b"})
    assert {f"Basic {login}", login, "bob:planted", "planted", "planted-b"} <= set(found)


def test_what_is_kept_is_bounded_and_texts_that_are_kept_grow_old() -> None:
    before = version()
    know(["first-secret"])
    assert version() > before
    same = version()
    know(["first-secret\n", "abc"])
    assert version() == same
    know(f"other-secret-{number}" for number in range(KNOWN_MAX))
    assert mask("first-secret other-secret-7") == "first-secret ***"


def test_keys_that_end_are_forgotten_before_what_a_configuration_told() -> None:
    know(["of-the-configuration"])
    for number in range(KNOWN_MAX):
        know([f"vended-key-{number}", "of-the-configuration"], are_short_lived=True)
    know(["vended-key-1990"])
    know([f"later-key-{number}" for number in range(KNOWN_MAX - 5)], are_short_lived=True)
    assert mask("of-the-configuration vended-key-7") == "*** vended-key-7"
    assert mask(f"vended-key-1990 later-key-{KNOWN_MAX - 6}") == "*** ***"


def test_values_of_json_are_masked_and_stay_json() -> None:
    know(["planted-value"])
    value = {
        "a": ["x planted-value\n", 1, None, True],
        "s3.secret-access-key": "k",
        "n": {"b": 2.5},
    }
    shown = masked_values(value)
    assert shown == {
        "a": ["x ***\n", 1, None, True],
        "s3.secret-access-key": "***",
        "n": {"b": 2.5},
    }


@dataclass(frozen=True)
class Holder:
    word: str


@pytest.mark.parametrize(
    "value",
    [
        ValueError("planted-value"),
        Path("/x/planted-value"),
        b"planted-value",
        bytearray(b"planted-value"),
        Holder("planted-value"),
        ("planted-value",),
        {"planted-value"},
        frozenset(["planted-value"]),
        {Path("planted-value"): 1},
        {("planted-value", 1): 1},
        {"a": [Holder("planted-value")]},
        {"token": b"other"},
        {"password": Holder("other")},
    ],
    ids=repr,
)
def test_values_that_json_has_not_are_masked_too(value: object) -> None:
    know(["planted-value"])
    shown = json.dumps(masked_values(value))
    assert "***" in shown
    assert "planted-value" not in shown
    assert "other" not in shown


def test_values_of_json_are_not_cut() -> None:
    know(["planted-value"])
    text = "x y " * TEXT_CHARS_MAX
    assert masked_values([f"{text}planted-value"]) == [f"{text}***"]


def test_a_log_message_cannot_look_like_two_records() -> None:
    record = logging.LogRecord(
        "a", logging.INFO, "f", 1, "x\n2026-01-01 ERROR forged\r\x1b[2J", (), None
    )
    shown = MaskingFormatter("%(levelname)s %(message)s").format(record)
    assert shown == "INFO x\n  2026-01-01 ERROR forged\\x0d\\x1b[2J"


def test_options_of_stores_and_catalogs_have_secret_names() -> None:
    for name in (
        *("gcs.decryption-key", "gcs.encryption-key", "adls.connection-string.account"),
        *("fs.azure.sas.container.account", "adls.sas", "authorization", "cookie", "rest.jwt"),
    ):
        assert is_secret_name(name), name
        assert secrets_in({name: "planted-value"}) == ("planted-value",)
    for name in ("sasl.mechanism", "connection.timeout", "string", "adls.account-name"):
        assert not is_secret_name(name), name


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("header.Cookie", "session=planted+value==; a=b"),
        (
            "adls.connection-string",
            "DefaultEndpointsProtocol=https;AccountName=lake;AccountKey=planted+value==;Suffix=net",
        ),
        (
            "sasl.jaas.config",
            'org.apache.kafka.PlainLoginModule required username="u" password="planted+value==";',
        ),
    ],
)
def test_the_secret_part_of_a_value_is_known_alone(name: str, value: str) -> None:
    know(secrets_in({name: value}))
    assert mask("HTTP 403: planted+value== rejected for lake") == "HTTP 403: *** rejected for lake"
    assert mask(f"{name}={value}").count("planted") == 0


def test_variables_of_stores_are_known_unless_they_name_files() -> None:
    know_environment(
        {
            "AZURE_CLIENT_SECRET": "planted-azure",
            "SLUICE_CLIENT_TOKEN": "planted-token",
            "AWS_WEB_IDENTITY_TOKEN_FILE": "/run/token",
            "GOOGLE_APPLICATION_CREDENTIALS": "/run/key.json",
            "SLUICE_DATALAKE_ICEBERG_REST__SIGNATURE_CHECK": "true",
            "HF_TOKEN": "of-another-program",
        }
    )
    shown = mask("planted-azure planted-token /run/token /run/key.json true of-another-program")
    assert shown == "*** *** /run/token /run/key.json true of-another-program"


@pytest.mark.parametrize(
    "how",
    [
        "class A:\n  def __del__(self): raise OSError(said)\nA()",
        "import warnings; warnings.warn(said)",
        "import logging; logging.getLogger('x').error('%d', said)",
    ],
    ids=["finalizer", "warning", "log"],
)
def test_what_python_prints_by_itself_has_no_secret(how: str) -> None:
    code = (
        "from sluice.masking import know\n"
        "from sluice.cli.terminal.logs import show_warnings\n"
        "show_warnings(); know(['planted-value'])\n"
        f"said = 'of planted-value, \\x1b[31m'\n{how}\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, "planted" in done.stderr, "\x1b" in done.stderr) == (0, False, False)
    assert "of ***, \\x1b[31m" in done.stderr or "getLogger" in how, done.stderr


@pytest.mark.parametrize("where", ["main", "thread"])
def test_a_traceback_that_nobody_caught_has_no_secret(where: str) -> None:
    program = (
        "import threading\n"
        "from sluice.masking import know\n"
        "from sluice.masking.uncaught import hide_in_tracebacks\n"
        "hide_in_tracebacks(); know(['planted-value'])\n"
        "def fail(): raise ValueError('of planted-value\\x1b[31m')\n"
        + ("fail()" if where == "main" else "threading.Thread(target=fail).start()")
    )
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert r"ValueError: of ***\x1b[31m" in found.stderr
    assert "Traceback" in found.stderr


def test_many_secrets_cost_little(time_s: Callable[[Callable[[], object]], float]) -> None:
    text = "table shop.orders: offset 5 of bucket 3; " * 5
    without = time_s(lambda: mask(text))
    know(f"Secret/{number}+{number * 7919}" for number in range(20))
    assert time_s(lambda: mask(text)) < max(20 * without, 0.001)


@pytest.fixture
def time_s() -> Iterator[Callable[[Callable[[], object]], float]]:
    """The CPU seconds of one call, the least of several."""
    import time

    def measured(work: Callable[[], object]) -> float:
        found = []
        for _ in range(20):
            begun = time.process_time()
            work()
            found.append(time.process_time() - begun)
        return min(found)

    yield measured


def test_each_line_of_a_key_is_known() -> None:
    """A program prints it over several lines, and each is masked by itself."""
    body = ["MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcw", "ggSjAgEAAoIBAQC7VJTUt9Us8cKj"]
    know(["\n".join(["-----BEGIN PRIVATE KEY-----", *body, "-----END PRIVATE KEY-----"])])
    for one in body:
        assert mask(f"the driver says {one}") == "the driver says ***"


def test_what_is_known_stays_known_while_others_are_told() -> None:
    """Connections of an API server share secrets, and each of its threads masks."""
    first = "known-before-all-others"
    know([first])
    seen, over = [], threading.Event()

    def look() -> None:
        while not over.is_set():
            seen.append(mask(f"it says {first}"))

    reader = threading.Thread(target=look)
    reader.start()
    for number in range(300):
        know([first, f"another-secret-{number:04d}"])
    over.set()
    reader.join(60)
    assert set(seen) == {"it says ***"}


def test_what_was_just_told_is_not_forgotten_for_others() -> None:
    """Also one that was told first of all, in a process that knows as many as it keeps."""
    first, new = "told-first-of-all-values", "told-beside-the-first-one"
    know([first])
    know(f"a-value-of-others-{number:05d}" for number in range(KNOWN_MAX - 1))
    know([first, new])
    assert mask(f"it says {first} and {new}") == "it says *** and ***"
