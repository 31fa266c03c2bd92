"""Rows beyond memory come back sorted, all of them, and nothing is left on disk."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.errors import SpillFailed
from sluice.rounds.copy.sorted_rows import SortedRows

SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.string()), ("n", pa.int64())])
KIB = 1024


def in_order(
    batches: Sequence[pa.RecordBatch], keys: Sequence[str], folder: Path, limit: int
) -> tuple[pa.Table, SortedRows]:
    schema = batches[0].schema
    with SortedRows(schema, keys, memory_limit_bytes=limit, spill_dir=folder) as rows:
        for batch in batches:
            rows.add(batch)
        tables = list(rows.sorted())
    assert [*folder.iterdir()] == []
    return pa.concat_tables(tables) if tables else schema.empty_table(), rows


def batches_of(pairs: Sequence[tuple[int, str]], rows_max: int) -> list[pa.RecordBatch]:
    columns = [[a for a, _ in pairs], [b for _, b in pairs], range(len(pairs))]
    table = pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], SCHEMA)
    return table.to_batches(max_chunksize=rows_max) or [pa.RecordBatch.from_pylist([], SCHEMA)]


@given(
    pairs=st.lists(st.tuples(st.integers(-9, 9), st.text("ab", max_size=2)), max_size=80),
    rows_max=st.integers(1, 9),
    limit=st.sampled_from([1, 300, 3_000, 1 << 20]),
)
def test_rows_are_sorted_by_all_keys_and_equal_ones_keep_their_order(
    tmp_path_factory: pytest.TempPathFactory,
    pairs: list[tuple[int, str]],
    rows_max: int,
    limit: int,
) -> None:
    folder = tmp_path_factory.mktemp("spill")
    found, _ = in_order(batches_of(pairs, rows_max), ("a", "b"), folder, limit)
    expected = sorted(range(len(pairs)), key=lambda i: pairs[i])
    assert found.column("n").to_pylist() == expected
    assert list(zip(*(found.column(c).to_pylist() for c in "ab"), strict=True)) == sorted(pairs)


@pytest.mark.parametrize("limit", [10, 1 << 20])
def test_without_keys_rows_keep_the_order_of_their_arrival(tmp_path: Path, limit: int) -> None:
    pairs = [(i * 7 % 5, "x") for i in range(100)]
    found, rows = in_order(batches_of(pairs, 7), (), tmp_path, limit)
    assert found.column("n").to_pylist() == list(range(100))
    assert (rows.spilled_bytes > 0) == (limit == 10)


@pytest.mark.parametrize(
    "values",
    [
        [True, False],
        [date(2026, 1, 2), date(1969, 1, 1), date(2000, 1, 1)],
        [Decimal("3.20"), Decimal("-1.00"), Decimal("3.19")],
        [b"b", b"\xff", b"a", b""],
        [datetime(2026, 1, 1, tzinfo=UTC), datetime(1950, 1, 1, tzinfo=UTC)],
        ["é", "z", "", "a"],
        [3, -1, 2],
    ],
)
def test_keys_of_every_kind_are_sorted(tmp_path: Path, values: list[Any]) -> None:
    one = pa.array(values)
    batches = [pa.RecordBatch.from_arrays([one.slice(i, 1)], ["k"]) for i in range(len(one))]
    found, _ = in_order(batches, ("k",), tmp_path, 1)
    ordered = sorted(values, key=lambda v: v.encode() if isinstance(v, str) else v)
    assert found.column("k").to_pylist() == ordered


def test_memory_is_bounded_and_reported(tmp_path: Path) -> None:
    rng, limit = np.random.default_rng(1), 600 * KIB
    schema = pa.schema([("a", pa.int64()), ("b", pa.string())])
    texts = pa.array([f"{i:090d}" for i in range(1_000)])
    batches = [
        pa.RecordBatch.from_arrays(
            [pa.array(rng.integers(0, 1 << 60, 1_000)), texts], schema=schema
        )
        for _ in range(40)
    ]
    size = sum(batch.nbytes for batch in batches)
    found, rows = in_order(batches, ("a",), tmp_path, limit)
    assert found.num_rows == 40_000
    keys = found.column("a").to_numpy()
    assert (np.diff(keys) >= 0).all()
    assert size > 5 * limit
    assert rows.memory_bytes <= 2 * limit
    assert 0 < rows.spilled_bytes < size
    small, unspilled = in_order(batches[:1], ("a",), tmp_path, 1 << 30)
    assert (small.num_rows, unspilled.spilled_bytes) == (1_000, 0)


def test_many_runs_are_merged_in_steps(tmp_path: Path) -> None:
    """Each step holds a batch of sixteen runs at most."""
    rng, limit = np.random.default_rng(2), 30 * KIB
    schema = pa.schema([("a", pa.int64()), ("b", pa.int64())])
    batches = [
        pa.RecordBatch.from_arrays(
            [pa.array(rng.permutation(700)), pa.array(range(700 * i, 700 * (i + 1)))], schema=schema
        )
        for i in range(50)
    ]
    found, rows = in_order(batches, ("a",), tmp_path, limit)
    assert found.column("a").to_pylist() == sorted([*range(700)] * 50)
    ties = found.column("b").to_numpy().reshape(700, 50)
    assert (np.diff(ties, axis=1) > 0).all()  # equal keys keep their order over all steps
    assert rows.memory_bytes <= 2 * limit


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    taken = tmp_path / "file"
    taken.write_text("")
    with (
        SortedRows(SCHEMA, ("a",), memory_limit_bytes=1, spill_dir=taken) as rows,
        pytest.raises(SpillFailed, match=str(taken)),
    ):
        rows.add(batches_of([(1, "a")], 1)[0])


def test_what_is_not_read_is_removed_too(tmp_path: Path) -> None:
    with SortedRows(SCHEMA, ("a",), memory_limit_bytes=1, spill_dir=tmp_path) as rows:
        for batch in batches_of([(3, "a"), (1, "b")], 1):
            rows.add(batch)
        next(iter(rows.sorted()))
        assert [*tmp_path.iterdir()]
    assert [*tmp_path.iterdir()] == []
