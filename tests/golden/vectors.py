"""The deletion vectors that scripts/make_golden_vectors.py has Iceberg write."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

FOLDER = "s3://lake/shop.db/stock/data/__bucket=0"
VECTORS: dict[str, list[range]] = {
    f"{FOLDER}/one.parquet": [range(1)],
    f"{FOLDER}/array.parquet": [range(5, 60_000, 97)],
    f"{FOLDER}/bitmap.parquet": [range(0, 65_536, 13)],
    f"{FOLDER}/run.parquet": [range(1_000, 3_000)],
    f"{FOLDER}/every kind, größe=1.parquet": [
        range(7, 65_536, 211),
        range(65_530, 66_900),
        range(3 << 16, 4 << 16, 15),
    ],
    f"{FOLDER}/above 32 bits.parquet": [
        range(2**31 - 2, 2**31 + 3),
        range(2**32 - 2, 2**32),
        range(2 * 2**32, 2 * 2**32 + 300, 3),
        range(2**40 + 17, 2**40 + 18),
    ],
}
"""Positions by data file: each kind of container, and a key in between without positions."""


def positions_of(data_file: str) -> npt.NDArray[np.int64]:
    """Ascending, shape (n,)."""
    parts = [np.arange(r.start, r.stop, r.step, dtype=np.int64) for r in VECTORS[data_file]]
    return np.concatenate(parts)
