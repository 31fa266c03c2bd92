"""Keeps pyarrow from importing pandas, which costs 0.9 CPU seconds in each process.

The first array that pyarrow makes imports pandas if it is installed, to recognize its objects. No
process of a round has any: neither the driver nor Spark's Python workers. Without pandas, pyarrow
makes the same arrays.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import ModuleType


class _NotFound:
    """A finder that does not let pandas be found."""

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,  # noqa: ARG002  (Python's method)
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("left out: this process has no use for it", name=name)


def leave_pandas_out() -> None:
    """Has pyarrow decide now that there is no pandas, for the life of this process.

    Other libraries still import pandas if they need it. Does nothing if pandas is imported already.
    Not for a process with code of users: ``Table.to_pandas`` no longer works.
    """
    if "pandas" in sys.modules:
        return
    import pyarrow as pa

    finder = _NotFound()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([])
    finally:
        sys.meta_path.remove(finder)
