"""The totals of a lake table, as Iceberg's snapshots record them."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluice.driver.lakes.jvm import Jvm
from sluice.lake.iceberg.lake import IcebergLake
from sluice.rounds.values.lake_size import lake_size, size_of_main
from tests.spark.upkeep.test_snapshot_expiry import INFO, file_of

pytestmark = pytest.mark.spark


def test_a_snapshot_has_the_totals_of_its_table(jvm: Jvm, tmp_path: Path) -> None:
    lake = IcebergLake(jvm.gateway, {"type": "hadoop", "warehouse": str(tmp_path)})
    table = lake.create(INFO)
    first_files = file_of(table, None, 0)
    first = table.commit(first_files, None, {"fluss-offsets": "/0"})
    files = [*first_files, *file_of(table, first, 3)]
    second = table.commit(files[1:], first, {"fluss-offsets": "/3"})
    size_bytes = sum(file.size_bytes for file in files)
    stored = {"lake_rows": 6, "lake_files": 2, "lake_bytes": size_bytes}
    assert lake_size(second.summary) == stored
    assert size_of_main(table, second, is_changed=False) == stored

    everything = jvm.gateway.jvm.org.apache.iceberg.expressions.Expressions.alwaysTrue()
    table._loaded.java.newDelete().deleteFromRowFilter(everything).commit()  # another writer
    seen = table.newest_tiering_snapshot()
    assert seen == second
    assert size_of_main(table, seen, is_changed=False) == dict.fromkeys(stored, 0)
    assert size_of_main(table, second, is_changed=True) == dict.fromkeys(stored, 0)
