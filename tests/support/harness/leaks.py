"""Searches texts for planted secrets, in each form that they may have there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tests.support.network.repeating_server import ENCODINGS


def leaks(texts: Mapping[str, str], secrets: Iterable[str]) -> list[tuple[str, str]]:
    """(place, secret) for each secret that stands somewhere."""
    return [
        (name, secret)
        for secret in secrets
        for name, text in texts.items()
        if any(form in text for form in _forms(secret))
    ]


def _forms(secret: str) -> set[str]:
    """The last character of a Base64 text depends on what follows the secret."""
    return {encode(secret).rstrip("=")[:-1] for encode in ENCODINGS} | {secret}
