"""A process that leaves pandas out never imports it, and pyarrow works the same."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
{leave}
import numpy as np, pyarrow as pa, pyarrow.compute as pc
import sluice.driver.spark.round
table = pa.table({{"n": pa.array(np.arange(3)), "text": ["a", None, "c"]}})
print(pc.sum(table.take([0, 2])["n"]), table["text"].to_pylist(), "pandas" in sys.modules)
import pandas
print(pandas.Series([1]).sum())
"""
LEAVE = "from sluice.driver.without_pandas import leave_pandas_out; leave_pandas_out()"


@pytest.mark.parametrize(("leave", "imported"), [(LEAVE, False), ("", True)])
def test_pandas_is_left_out(leave: str, imported: bool) -> None:
    pytest.importorskip("pandas")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(leave=leave)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout == f"2 ['a', None, 'c'] {imported}\n1\n", done.stderr


def test_no_module_of_a_driver_imports_it() -> None:
    """Workers import these modules before the first line of Sluice runs there."""
    program = "import sys, sluice.driver.spark.round; print('pandas' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout == "False\n"
