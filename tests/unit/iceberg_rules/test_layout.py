"""The two layouts of lake tables, told apart by the table itself."""

from __future__ import annotations

import pytest

from sluice.errors import ConfigurationError, LakeTableMismatch
from sluice.iceberg_rules.layout import (
    Layout,
    found_part_fields,
    layout_of,
    new_layout,
    part_fields,
    sort_columns,
)
from sluice.model import TablePath
from sluice.model import types as t
from tests.support.models.tables import table_info

PATH = TablePath("db", "t")
CLEAN, LEGACY = Layout.CLEAN, Layout.LEGACY
INFO = table_info({"id": t.BIGINT, "day": t.STRING})


def test_the_columns_tell_the_layout() -> None:
    assert layout_of(PATH, ["id", "__bucket", "__offset", "__timestamp"]) is LEGACY
    assert layout_of(PATH, ["__timestamp", "id", "__offset", "__bucket", "more"]) is LEGACY
    assert layout_of(PATH, ["id", "_bucket"]) is CLEAN
    assert layout_of(PATH, []) is CLEAN


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (["__bucket"], "has __bucket, but not __offset and __timestamp"),
        (["__bucket", "__offset"], "has __bucket and __offset, but not __timestamp"),
        (["__timestamp"], "has __timestamp, but not __bucket and __offset"),
    ],
)
def test_some_of_the_system_columns_are_refused_by_name(found: list[str], said: str) -> None:
    with pytest.raises(LakeTableMismatch, match=f"lake table db.t {said}") as caught:
        layout_of(PATH, ["id", *found])
    assert "give it its old name" in str(caught.value)


@pytest.mark.parametrize(
    ("partition_keys", "bucket_keys", "layout", "fields"),
    [
        ((), (), LEGACY, ["__bucket"]),
        (("day",), (), LEGACY, ["day", "__bucket"]),
        ((), ("id",), LEGACY, ["id_bucket"]),
        ((), (), CLEAN, []),
        (("day",), (), CLEAN, ["day"]),
        ((), ("id",), CLEAN, ["id_bucket"]),
        (("day",), ("id",), CLEAN, ["day", "id_bucket"]),
    ],
)
def test_partition_fields_and_places_of_buckets(
    partition_keys: tuple[str, ...],
    bucket_keys: tuple[str, ...],
    layout: Layout,
    fields: list[str],
) -> None:
    info = table_info(
        {"id": t.BIGINT, "day": t.STRING},
        partition_keys=partition_keys,
        bucket_keys=bucket_keys,
        buckets=8,
    )
    made = part_fields(info, layout)
    assert [one.name for one in made.fields] == fields
    values = ("mon",) * len(partition_keys)
    has_bucket = len(fields) > len(partition_keys)
    assert made.has_bucket is has_bucket
    assert made.key_columns == list(partition_keys)
    found = made.partition(values, 5)
    assert found == ((*values, "5") if has_bucket else values)
    assert made.place((*values, 5) if has_bucket else values) == (values, 5 if has_bucket else 0)
    names = ["id", "day", "__bucket"]
    schema = {"fields": [{"id": i, "name": name} for i, name in enumerate(names)]}
    spec = {
        "fields": [
            {"name": one.name, "source-id": names.index(one.column), "transform": one.transform}
            for one in made.fields
        ]
    }
    assert found_part_fields(schema, spec) == made


def test_only_a_legacy_table_is_ordered_by_its_offsets() -> None:
    assert (sort_columns(LEGACY), sort_columns(CLEAN)) == (("__offset",), ())


@pytest.mark.parametrize("of_cluster", [CLEAN, LEGACY])
def test_a_new_table_has_the_layout_of_the_option_or_the_server_or_the_version(
    of_cluster: Layout,
) -> None:
    def asked() -> Layout:
        return of_cluster

    told = table_info({"id": t.BIGINT}, properties={"table.datalake.iceberg.layout": "legacy"})
    assert new_layout(INFO, {}, asked) is of_cluster
    assert new_layout(told, {}, asked) is LEGACY
    assert new_layout(told, {"layout": "Clean"}, asked) is CLEAN
    with pytest.raises(ConfigurationError, match="datalake.iceberg.layout is 'cleen': use legacy"):
        new_layout(INFO, {"layout": "cleen"}, asked)
