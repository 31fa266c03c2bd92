"""A text that is cut before it is masked shows no half of a secret at its end."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sluice.driver.spark.sql import _tail
from sluice.errors import InvalidConfig
from sluice.masking import cut, know, line, mask, reason_text, without_torn_end
from sluice.masking.forms import TEXT_CHARS_MAX
from sluice.masking.known import KNOWN_MAX
from sluice.masking.torn import without_torn
from sluice.wire.error_codes import MESSAGE_CHARS_MAX, to_error_response
from tests.unit.masking.test_known_secrets import ENCODINGS, SECRET
from tests.unit.masking.test_masking import MASKED, PLANTED

KEY = "-----BEGIN PRIVATE KEY-----\nMIIEvgIBADANBgkq\nhkiG9w0BAQEFAASC\n-----END PRIVATE KEY-----\n"
ODD = "a\u2003b\\\\ü +c%2F&amp;de\\"
SECRETS = [
    SECRET,
    "plain0secret",
    "a-b.c~d_e",
    'planted "4720" header',
    "aaaaab",
    "üñö€💥 x",
    ODD,
    KEY,
]
STAYS_MAX = 4
"""Characters of a secret, or of its Base64 or hexadecimal form behind the last common one."""


def stays_max(encode: Callable[[str], str], secret: str) -> int:
    """How much of an encoded secret may stay: fewer than four of its characters, encoded."""
    encoded = encode(secret)
    least = encode(secret[:STAYS_MAX]).rstrip("'\"")
    common = 0
    while common < min(len(least), len(encoded)) and least[common] == encoded[common]:
        common += 1
    return common + STAYS_MAX


@pytest.mark.parametrize("encode", ENCODINGS)
@pytest.mark.parametrize("secret", SECRETS)
def test_no_beginning_of_a_known_secret_is_left(encode: Callable[[str], str], secret: str) -> None:
    """At each place of the cut, also within an encoded character."""
    know([secret])
    encoded = encode(secret.strip())
    before = 'said "x: '
    for length in range(1, len(encoded)):
        torn = before + encoded[:length]
        left = mask(without_torn(torn))
        assert len(left) <= len(before) + stays_max(encode, secret.strip()), (length, left)
    whole = f"{before}{encoded} and more"
    assert mask(without_torn(whole)).endswith(" and more"), "only what was cut is dropped"


@pytest.mark.parametrize("text", [one for one in MASKED if len(one) < 1_000])
def test_no_beginning_of_what_looks_like_a_secret_is_left(text: str) -> None:
    for length in range(1, len(text)):
        before = f"{'an error ' * 200}: "
        shown = mask(cut(f"{before}{text}", len(before) + length))
        assert PLANTED[:STAYS_MAX] not in shown, (length, shown)


@pytest.mark.parametrize(
    "shown",
    [
        lambda text: mask(text),
        lambda text: line(text),
        lambda text: reason_text("--token " + text),
    ],
)
def test_each_mask_that_cuts_is_safe(shown: Callable[[str], str]) -> None:
    """The masks before the cut may make a text so short that its cut end is seen."""
    secret = 'planted "4720" header'
    know([secret])
    for cut_at in (4 * 4_096, TEXT_CHARS_MAX):
        for length in range(len(secret) + 30):
            start = "x" * (cut_at - 8 - length) + " "
            assert "plan" not in shown(f"{start}{secret} {'y' * cut_at}"), (cut_at, length)


def test_what_others_mask_later_is_cut_with_care(tmp_path: Path) -> None:
    secret = 'planted "4720" header'
    know([secret])
    for length in range(4, len(secret)):
        start = "x" * (MESSAGE_CHARS_MAX - 8 - length) + " the key "
        sent = to_error_response(InvalidConfig(f"{start}{secret} is wrong")).error_message
        assert "plan" not in sent
        words = tmp_path / "words"
        words.write_text(f"{secret} {'y' * (3_999 - length)}")
        assert "ader" not in _tail(words)


def test_secrets_of_the_caller_are_looked_for_too() -> None:
    assert cut("the words: one two three", 20, ["one two three"]) == "the words: "
    assert without_torn_end("the words: one two", ["one two three"]) == "the words: "


def test_a_text_loses_little_at_its_cut() -> None:
    assert cut("short", 5) == "short"
    assert cut("some words of a text", 12) == "some words "
    assert cut("some words of a text", 11) == "some words "
    assert cut("x" * 400, 200) == "x" * 150
    assert cut("x" * 9_000, 8_000) == "x" * (8_000 - 1_024)


def test_a_cut_costs_little() -> None:
    """Also with as many secrets as a process keeps, and of a text that seems to begin one."""
    know([f"{number:04}-planted/{'a' * 40}" for number in range(KNOWN_MAX)])
    text = "a" * TEXT_CHARS_MAX
    without_torn(text)
    begun = time.process_time()
    without_torn(text)
    assert time.process_time() - begun < 0.5
