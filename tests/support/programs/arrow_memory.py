"""Looks at how much memory Arrow has taken."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from tests.support.harness.findings import finding


@contextmanager
def all_given_back() -> Iterator[None]:
    """What the block takes of Arrow's memory it gives back.

    Nothing that other tests have left is collected meanwhile: it would count as given back.
    """
    gc.collect()
    gc.disable()
    try:
        before = pa.total_allocated_bytes()
        yield
        with finding():
            assert pa.total_allocated_bytes() == before
    finally:
        gc.enable()
