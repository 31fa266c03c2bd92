"""Failures that are never a matter of chance."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


class Finding(AssertionError):
    """Something was lost, doubled, damaged or left behind. A test that ends so is not run again."""


_OUT_OF_TIME = "from pytest-timeout"


@contextmanager
def finding(*more: type[Exception]) -> Iterator[None]:
    """What does not hold in the block, or ends it with an error of these kinds, is a Finding.

    That a test runs out of time there is none: the machine may have been slow.
    """
    try:
        yield
    except Finding:
        raise
    except (AssertionError, pytest.fail.Exception, *more) as error:
        if isinstance(error, pytest.fail.Exception) and _OUT_OF_TIME in str(error):
            raise
        said = str(error) if isinstance(error, AssertionError) else repr(error)
        raise Finding(said) from error


def is_finding(error: BaseException | None) -> bool:
    """Whether an error is one, came while one was on its way, or holds one in its group."""
    left, seen = [error], set[int]()
    while left:
        error = left.pop()
        if error is None or id(error) in seen:
            continue
        if isinstance(error, Finding):
            return True
        seen.add(id(error))
        left += [error.__cause__, error.__context__]
        if isinstance(error, BaseExceptionGroup):
            left += error.exceptions
    return False
