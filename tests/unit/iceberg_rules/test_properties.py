"""Properties of a lake table that Sluice cannot honour are refused before the table is created."""

from __future__ import annotations

import pytest

from sluice.errors import UnsupportedLakeOption
from sluice.iceberg_rules.properties import check_lake_properties
from sluice.lake.iceberg.schema import table_properties
from sluice.model import types as t
from tests.support.models.tables import table_info


def check(properties: dict[str, str], *, keyed: bool = False) -> None:
    info = table_info(
        {"id": t.BIGINT.not_null()},
        primary_key=("id",) if keyed else (),
        custom_properties={f"iceberg.{name}": value for name, value in properties.items()},
    )
    check_lake_properties(info)
    table_properties(info)


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"write.parquet.compression-level": "3"},
        {"write.parquet.compression-codec": "GZIP", "write.parquet.compression-level": "9"},
        {"write.parquet.compression-codec": "uncompressed"},
        {"write.parquet.page-version": "v2", "write.target-file-size-bytes": "1000"},
        {"format-version": "1"},
        {"format-version": "3", "write.format.default": "PARQUET"},
        {"write.metadata.delete-after-commit.enabled": "true", "any.other": "x"},
    ],
)
def test_what_rounds_honour_is_accepted(properties: dict[str, str]) -> None:
    check(properties)


@pytest.mark.parametrize(
    ("properties", "told"),
    [
        ({"write.parquet.compression-level": "99"}, "zstd has the levels 1 to 22"),
        ({"write.parquet.compression-level": "high"}, "zstd has the levels 1 to 22"),
        (
            {"write.parquet.compression-codec": "snappy", "write.parquet.compression-level": "1"},
            "snappy has no levels; remove it",
        ),
        (
            {"write.parquet.compression-codec": "lzo"},
            "property iceberg.write.parquet.compression-codec='lzo' is not supported: use zstd,",
        ),
        ({"write.parquet.row-group-size-bytes": "x"}, "is not a whole number above 0"),
        ({"write.target-file-size-bytes": "512MB"}, "is not a whole number above 0"),
        ({"write.target-file-size-bytes": "0"}, "is not a whole number above 0"),
        ({"location": "s3://elsewhere/t"}, "set iceberg.write.data.path"),
        ({"format-version": "4"}, "use 1, 2 or 3"),
        ({"format-version": "two"}, "use 1, 2 or 3"),
        ({"write.format.default": "orc"}, "use parquet"),
        ({"encryption.key-id": "k"}, "writes no encrypted tables"),
        ({"gc.enabled": "no"}, "use true or false"),
    ],
)
def test_others_are_named_with_what_to_set(properties: dict[str, str], told: str) -> None:
    with pytest.raises(UnsupportedLakeOption) as caught:
        check(properties)
    assert told in str(caught.value)
    assert str(caught.value).startswith("table ")


def test_deletes_need_format_version_2() -> None:
    with pytest.raises(UnsupportedLakeOption, match="use 2 or 3"):
        check({"format-version": "1"}, keyed=True)
    with pytest.raises(UnsupportedLakeOption, match="remove it"):
        check({"write.delete.mode": "copy-on-write"}, keyed=True)
    check({"write.delete.mode": "copy-on-write"})
