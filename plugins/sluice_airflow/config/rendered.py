"""Reads arguments of tasks that a template may have made a text."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping, Sequence
from typing import Any

from sluice.errors import ConfigurationError


def flag(name: str, value: Any) -> bool:
    """Returns a switch of a run.

    :raises ConfigurationError: it is neither true nor false.
    """
    if value is None or isinstance(value, bool):
        return bool(value)
    text = str(value).strip().lower()
    if text in ("true", "false"):
        return text == "true"
    raise ConfigurationError(f"{name}: expected true or false, found {value!r}")


def count_given(name: str, value: Any) -> int:
    """Returns a number of tables.

    :raises ConfigurationError: it is not a whole number above 0.
    """
    text = str(value).strip()
    if not isinstance(value, bool) and text.isdecimal() and int(text) > 0:
        return int(text)
    raise ConfigurationError(f"{name}: expected a whole number above 0, found {value!r}")


def tables_given(value: Any) -> list[str]:
    """Returns the names of tables: a list, or one name.

    :raises ConfigurationError: it is something else.
    """
    text = value.strip() if isinstance(value, str) else ""
    found = [text] if text and not text.startswith("[") else _read(value)
    names = list(found) if isinstance(found, Sequence) and not isinstance(found, str) else []
    if not names or not all(isinstance(name, str) and name for name in names):
        raise ConfigurationError(
            f"tables: expected names or patterns such as ['shop.orders', 'shop.*'], found {value!r}"
        )
    return names


def properties_given(value: Any) -> dict[str, Any]:
    """Returns the Spark properties of a run.

    :raises ConfigurationError: it is no mapping. The value is not told: it may have secrets.
    """
    found = {} if value is None or value in ("", "None") else _read(value)
    if not isinstance(found, Mapping):
        raise ConfigurationError(
            'spark_conf: expected properties such as {"spark.executor.memory": "4g"}, found a'
            f" {type(value).__name__} of another form"
        )
    return dict(found)


def _read(value: Any) -> Any:
    """Returns what a text stands for, as Python or JSON writes it; None: nothing."""
    if not isinstance(value, str):
        return value
    for read in (ast.literal_eval, json.loads):
        try:
            return read(value.strip())
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
    return None
