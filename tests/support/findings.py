"""Failures that are never a matter of chance."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Finding(AssertionError):
    """Something was lost, doubled, damaged or left behind. A test that ends so is not run again."""


@contextmanager
def finding() -> Iterator[None]:
    """What does not hold in the block is a :class:`Finding`."""
    try:
        yield
    except Finding:
        raise
    except AssertionError as error:
        raise Finding(str(error)) from error


def is_finding(error: BaseException | None) -> bool:
    """Whether an error is one, came while one was on its way, or holds one in its group."""
    while error is not None:
        if isinstance(error, Finding):
            return True
        if isinstance(error, BaseExceptionGroup) and any(map(is_finding, error.exceptions)):
            return True
        error = error.__cause__ or error.__context__
    return False
