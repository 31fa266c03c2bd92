"""A users file with one user of each role, and their tokens."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping
from pathlib import Path

TOKENS = {
    "ria": ("read", "read-token-6b1f"),
    "wim": ("write", "write-token-c07a"),
    "ada": ("admin", "admin-token-94d2"),
}
"""Name -> role, token."""

ANY_TOKEN = dict(TOKENS.values())
"""Role -> token."""

_numbers = itertools.count()


def line(name: str, role: str, token: str) -> str:
    return f"{name} {role} {hashlib.sha256(token.encode()).hexdigest()}\n"


def write_users(path: Path, users: Mapping[str, tuple[str, str]] = TOKENS) -> Path:
    """The file as it is to be, whole or not at all."""
    text = "".join(line(name, role, token) for name, (role, token) in users.items())
    return write_text(path, text)


def write_text(path: Path, text: str) -> Path:
    """Puts another file in its place, as an editor does."""
    new = path.with_name(f"{path.name}.{next(_numbers)}")
    new.write_text(text)
    return new.replace(path)
