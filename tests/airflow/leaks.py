"""Searches texts for planted secrets, in each form that they may have there."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from urllib.parse import quote


def leaks(texts: Mapping[str, str], secrets: Iterable[str]) -> list[tuple[str, str]]:
    """(place, secret) for each secret that stands somewhere."""
    return [
        (name, secret)
        for secret in secrets
        for form in {secret, quote(secret, safe=""), json.dumps(secret)[1:-1]}
        for name, text in texts.items()
        if form in text
    ]
