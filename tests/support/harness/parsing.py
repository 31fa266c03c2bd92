"""Python files as trees, and failures' reports, which parse them.

CPython 3.11's parser fails (SystemError) if a collection of garbage that parses runs inside it.
"""

from __future__ import annotations

import ast
import gc
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


@contextmanager
def no_collection() -> Iterator[None]:
    """No garbage is collected inside the block; after it, if it was before."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


def parsed(path: Path) -> ast.Module:
    """The tree of a file."""
    with no_collection():
        return ast.parse(path.read_text())


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    call: pytest.CallInfo[Any],
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """pytest parses the source of what failed; an error in there would end the whole run."""
    if call.excinfo is None:
        return (yield)
    with no_collection():
        return (yield)
