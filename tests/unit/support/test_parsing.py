"""Parsing beside garbage whose end parses, too, as that of another thread may."""

from __future__ import annotations

import ast
import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.harness.parsing import no_collection, parsed


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


FAILING = (
    """
import pytest
from tests.unit.support.test_parsing import garbage

@pytest.fixture(params=range(2000, 32000, 10000))
def beside_garbage(request):
    with garbage(request.param):
        yield

def test_it(beside_garbage):
    raise AssertionError("as it should")

"""
    + "MANY = [1, (2, 3)]\n" * 2000
)
"""Large, so that most of what a report makes is made by the parser."""


def test_a_failure_is_reported_beside_garbage(tmp_path: Path) -> None:
    """Without the plugin the first of these ends the whole run."""
    (tmp_path / "test_failing.py").write_text(FAILING)
    plugins = ["-p", "no:cacheprovider", "-p", "tests.support.harness.parsing"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugins, "--rootdir", str(tmp_path), str(tmp_path)],
        cwd=Path(__file__).resolve().parents[3],
        # others import modules at the end of the run, which may have to be parsed
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "3 failed" in done.stdout, done.stdout[-3000:]


def test_collection_of_garbage_stays_off_where_it_was() -> None:
    gc.disable()
    try:
        with no_collection():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
    with no_collection():
        assert not gc.isenabled()
    assert gc.isenabled()
