"""Which bucket keys a table with a lake table may have."""

from __future__ import annotations

import pytest

from sluice.errors import UnsupportedLakeOption
from sluice.iceberg_rules.keys import check_bucket_key
from sluice.model import DataType
from sluice.model import types as t
from tests.support.models.tables import table_info

TAKEN = [t.INT, t.BIGINT, t.STRING, t.DATE, t.decimal(38, 9), t.timestamp(6), t.timestamp_ltz(3)]


@pytest.mark.parametrize("kind", TAKEN, ids=str)
def test_types_that_iceberg_buckets_by(kind: DataType) -> None:
    check_bucket_key(table_info({"k": kind}, bucket_keys=("k",)))


@pytest.mark.parametrize("kind", [t.BOOLEAN, t.FLOAT, t.DOUBLE, t.timestamp(9)], ids=str)
def test_types_that_it_does_not(kind: DataType) -> None:
    with pytest.raises(UnsupportedLakeOption, match="bucket key k is"):
        check_bucket_key(table_info({"k": kind}, bucket_keys=("k",)))


def test_there_is_one() -> None:
    info = table_info({"a": t.INT, "b": t.INT}, bucket_keys=("a", "b"))
    with pytest.raises(UnsupportedLakeOption, match="set bucket.key to one column"):
        check_bucket_key(info)
