"""Python files as trees."""

from __future__ import annotations

import ast
import gc
from pathlib import Path


def parsed(path: Path) -> ast.Module:
    """CPython 3.11's parser fails (SystemError) if a collection of garbage runs inside it."""
    gc.disable()
    try:
        return ast.parse(path.read_text())
    finally:
        gc.enable()
