"""The reference of most ratios: one pyarrow ParquetWriter that writes the same columns."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench import data
from bench.measure import Cost, Line, cost, report

REFERENCE = "pyarrow"
LEGACY, CLEAN = "legacy", "clean"
REFERENCE_OPTIONS: dict[str, Any] = {
    "compression": "zstd",
    "use_dictionary": ["event", "__bucket", "__timestamp"],
    "store_schema": False,
    "store_decimal_as_integer": True,
    "version": "2.6",
}
"""What a round passed to pyarrow for these rows at commit 45247a0. They stay as they are, so that
the ratios of all commits can be compared."""
_REFERENCE_GROUP_ROWS = 512 * 1024
_BATCHES_A_STAMP = 4


def reference_rate(rows: int, home: Path) -> float:
    """Million rows that pyarrow writes in a core-second.

    :param home: an existing folder for its file.
    """
    return rows / pyarrow_limit(rows, home / "reference.parquet").cpu_s / 1e6


def reported_rate(rows: int, home: Path) -> float:
    """Like :func:`reference_rate`, and prints it as a line of its own."""
    rate = reference_rate(rows, home)
    report(Line("pyarrow_zstd_parquet", rate, "M rows/core-s", None, "the reference"))
    return rate


def pyarrow_limit(
    rows: int,
    target: Path,
    options: Mapping[str, Any] = REFERENCE_OPTIONS,
    layout: str = LEGACY,
    **others: int,
) -> Cost:
    """Writes the rows with the columns of the lake, in row groups of the size that a round had.

    :param others: as of ``bench.measure.cost``.
    """
    table = _in_lake(rows) if layout == LEGACY else pa.Table.from_batches(data.batches(rows))
    known = [name for name in options["use_dictionary"] if name in table.column_names]
    options = {**options, "use_dictionary": known}
    with cost(**others) as found, pq.ParquetWriter(target, table.schema, **options) as writer:
        for first in range(0, rows, _REFERENCE_GROUP_ROWS):
            group = table.slice(first, _REFERENCE_GROUP_ROWS)
            writer.write_table(group, row_group_size=group.num_rows)
    return found


def _in_lake(rows: int) -> pa.Table:
    """The rows as those of one bucket; a few batches arrived at the same time."""
    numbers = np.arange(rows)
    stamps = 1_700_000_000_000_000 + numbers // (_BATCHES_A_STAMP * data.BATCH_ROWS) * 1000
    system = {
        "__bucket": pa.array(np.zeros(rows, np.int32)),
        "__offset": pa.array(numbers),
        "__timestamp": pa.array(stamps).view(pa.timestamp("us", tz="UTC")),
    }
    table = pa.Table.from_batches(data.batches(rows))
    for name, column in system.items():
        table = table.append_column(pa.field(name, column.type, nullable=False), column)
    return table
