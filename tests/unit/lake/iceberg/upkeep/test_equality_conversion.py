"""Which equality deletes are converted together: as many as memory may hold."""

from __future__ import annotations

import pytest

from sluice.errors import LakeTableMismatch
from sluice.lake.iceberg.upkeep.equality_conversion import oldest_keys
from sluice.rounds.values.lake_files import StoredKeys


def test_keys_take_memory_by_their_number_and_by_their_bytes() -> None:
    """A million sequential numbers take a few kilobytes in a file, and 52 MB in memory."""
    packed = [StoredKeys(f"k{number}", 1_000_000, 6_000, number) for number in range(3)]
    assert oldest_keys(packed, 112_000_000) == tuple(packed[:2])
    wide = [StoredKeys(f"k{number}", 10, 1_000_000, number) for number in range(3)]
    assert oldest_keys(wide, 23_000_000) == tuple(wide[:2])
    with pytest.raises(LakeTableMismatch, match=r"k0 need more memory than .*, 55.0 MB"):
        oldest_keys(packed, 55_000_000)
