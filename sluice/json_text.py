"""Parses JSON that others wrote, however deep it is nested."""

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
