"""Finds the last change of each key of a changelog, in memory and with spill files.

Operations are random over two million keys: 70 % updates (each with its old row, so two changes),
25 % inserts, 5 % deletes. The reference is one pyarrow ParquetWriter
(zstd, defaults) that writes the same Arrow data. Both count changes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench import data
from bench.measure import Cost, Line, cost, report
from sluice.model import ChangeType
from sluice.rounds.copy.last_changes import LastChanges
from sluice.rounds.values.types import LogRecords

KEYS = 2_000_000
OPERATIONS_MAX = 2_000_000
IN_MEMORY_BYTES = 1 << 30
SPILLED_BYTES = 64 << 20
_BATCH_OPERATIONS = 10_000


def window(operations: int) -> Iterator[LogRecords]:
    """Returns the changelog of some operations, in batches of up to 20,000 changes."""
    rng = np.random.default_rng(1)
    offset = 0
    for batch in data.batches(operations):
        for first in range(0, batch.num_rows, _BATCH_OPERATIONS):
            rows = batch.slice(first, _BATCH_OPERATIONS)
            drawn = rng.random(rows.num_rows)
            updates = drawn < 0.7
            kinds = np.where(drawn < 0.95, ChangeType.INSERT, ChangeType.DELETE)
            places = np.repeat(np.arange(rows.num_rows), np.where(updates, 2, 1))
            kinds = np.where(updates, ChangeType.UPDATE_AFTER, kinds)[places].astype(np.uint8)
            halves = np.append(places[1:] == places[:-1], False)
            kinds[halves] = ChangeType.UPDATE_BEFORE
            keys = pa.array(rng.integers(0, KEYS, rows.num_rows))
            rows = rows.set_column(0, rows.schema.field(0), keys).take(pa.array(places))
            end = offset + rows.num_rows
            yield LogRecords(rows, offset, end, 1_000, 1, pa.array(kinds))
            offset = end


def run(rows: int) -> None:
    log = list(window(min(rows, OPERATIONS_MAX)))
    changes = log[-1].next_offset
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as tmp:
        home = Path(tmp)
        limit = changes / _pyarrow(log, home / "reference.parquet").cpu_s / 1e6
        report(Line("pyarrow_zstd_parquet", limit, "M changes/core-s", None, "the reference"))
        for name, limit_bytes in (
            ("last_changes", IN_MEMORY_BYTES),
            ("last_changes_spilled", SPILLED_BYTES),
        ):
            _reduce(log[: len(log) // 10], limit_bytes, home)  # loads libraries
            found, keys, files = _reduce(log, limit_bytes, home)
            value = changes / found.cpu_s / 1e6
            text = f"pyarrow's zstd Parquet; {changes:,} changes of {keys:,} keys with a row"
            text += f" after them; {limit_bytes >> 20} MiB, {files} spill files"
            report(Line(name, value, "M changes/core-s", value / limit, text))


def _reduce(log: list[LogRecords], limit_bytes: int, home: Path) -> tuple[Cost, int, int]:
    keys = 0
    with (
        cost() as found,
        LastChanges(
            data.ARROW_SCHEMA, ["id"], memory_limit_bytes=limit_bytes, spill_dir=home
        ) as changes,
    ):
        for records in log:
            changes.add(records)
        for part in changes.parts():
            keys += part.upserts.num_rows
            del part
        files = len(list(home.glob("*/*.arrow")))
    return found, keys, files


def _pyarrow(log: list[LogRecords], target: Path) -> Cost:
    with cost() as found, pq.ParquetWriter(target, data.ARROW_SCHEMA, compression="zstd") as writer:
        for first in range(0, len(log), 30):
            group = [records.batch for records in log[first : first + 30]]
            writer.write_table(pa.Table.from_batches(group))
    return found
