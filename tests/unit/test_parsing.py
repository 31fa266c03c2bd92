"""Parsing beside garbage whose end parses, too, as that of another thread may."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.parsing import parsed


class Garbage:
    """A cycle: only a collection ends it."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        ast.parse("[1, (2, 3)]")


@contextmanager
def garbage(objects: int) -> Iterator[None]:
    """The next collection, which so many objects of the parser bring about, ends it."""
    before = gc.get_threshold()
    gc.collect()
    gc.disable()
    Garbage()
    gc.set_threshold(gc.get_count()[0] + objects, 1, 1)
    gc.enable()
    try:
        yield
    finally:
        gc.set_threshold(*before)


@pytest.mark.parametrize("objects", [20, 50, 150, 300])
def test_a_file_is_parsed_beside_garbage(objects: int) -> None:
    with garbage(objects):
        tree = parsed(Path(__file__))
    assert ast.get_docstring(tree) == __doc__
    assert gc.isenabled()
