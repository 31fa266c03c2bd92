"""Parses JSON that others wrote, however deep it is nested, and writes JSON for terminals."""

from __future__ import annotations

import json
from typing import Any


def json_of(text: str | bytes) -> Any:
    """The value of a JSON text.

    :raises ValueError: it is not JSON, not UTF-8, or nested too deep.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def json_shown(value: Any, **options: Any) -> str:
    """A value as JSON without control characters: ``json.dumps`` leaves DEL as it is.

    :param options: of ``json.dumps``.
    """
    return json.dumps(value, **options).replace("\x7f", r"\u007f")
