"""Partition fields that a user chooses: which tables may have them, and how they are written."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sluice.errors import ConfigurationError, LakeTableMismatch
from sluice.iceberg_rules.layout import Layout, PartKind, found_part_fields
from sluice.iceberg_rules.matched_schema import LakeSide, check_parts, match
from sluice.iceberg_rules.own_parts import own_field, with_own_fields
from sluice.lake.iceberg.schema import schema_json
from sluice.model import TableInfo
from sluice.model import types as t
from tests.support.models.tables import table_info

CLEAN, LEGACY = Layout.CLEAN, Layout.LEGACY
COLUMNS = {
    "id": t.BIGINT.not_null(),
    "at": t.timestamp_ltz(6),
    "day": t.STRING,
    "user": t.STRING,
    "price": t.decimal(9, 2),
    "a b": t.STRING,
}
INFO = table_info(COLUMNS)


@pytest.mark.parametrize(
    ("text", "name", "transform"),
    [
        ("days(at)", "at_day", "day"),
        (" Hour( at ) ", "at_hour", "hour"),
        ("months(at)", "at_month", "month"),
        ("year(at)", "at_year", "year"),
        ("bucket(16, user)", "user_bucket", "bucket[16]"),
        ("truncate( 8 ,user)", "user_trunc", "truncate[8]"),
        ("user", "user", "identity"),
        ("days(`at`)", "at_day", "day"),
        ("bucket(4, `a b`)", "a b_bucket", "bucket[4]"),
        (" `a b` ", "a b", "identity"),
    ],
)
def test_fields_are_written_as_in_spark(text: str, name: str, transform: str) -> None:
    field = own_field(INFO, text)
    assert (field.name, field.transform, field.kind) == (name, transform, PartKind.OWN)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("day(at", "use years, months, days or hours(COLUMN)"),
        ("dayz(at)", "dayz is unknown; did you mean 'days'?"),
        ("bucket(16 user)", "use years, months, days or hours(COLUMN)"),
        ("days(`at)", "use years, months, days or hours(COLUMN)"),
        ("a b", "use years, months, days or hours(COLUMN)"),
        ("days(att)", "table db.t has no column att; did you mean 'at'?"),
        ("bucket(user)", "with a number from 1"),
        ("bucket(0, user)", "with a number from 1"),
        ("days(3, at)", "with a number from 1"),
        ("days(user)", "column user is STRING; days takes date, timestamp, timestamptz"),
        ("price", "column price is DECIMAL(9,2); identity takes"),
        ("bucket(4, price)", "column price is DECIMAL(9,2); bucket takes"),
    ],
)
def test_a_wrong_field_is_named_with_what_to_write(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        own_field(INFO, text)
    assert said in str(caught.value)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize(
    ("info", "layout", "said"),
    [
        (table_info(COLUMNS, primary_key=("id",), bucket_keys=("id",)), CLEAN, "a primary key"),
        (table_info(COLUMNS, bucket_keys=("id",)), CLEAN, "its rows are in buckets by id"),
        (INFO, LEGACY, "its layout is legacy"),
    ],
)
def test_other_tables_keep_the_fields_of_fluss(info: TableInfo, layout: Layout, said: str) -> None:
    with pytest.raises(ConfigurationError, match="has Fluss's partition fields") as caught:
        with_own_fields(info, layout, ["days(at)"])
    assert said in str(caught.value)
    assert with_own_fields(info, layout, []).has_own is False


def test_a_name_is_taken_once() -> None:
    for texts in (["days(at)", "day(at)"], ["user", "user"]):
        with pytest.raises(ConfigurationError, match="there is one of that name"):
            with_own_fields(INFO, CLEAN, texts)


@pytest.mark.parametrize("text", ["bucket(00, user)", "bucket(2147483648, id)", "truncate(0, id)"])
def test_a_number_is_one_of_java(text: str) -> None:
    with pytest.raises(ConfigurationError, match="with a number from 1 to 2147483647"):
        with_own_fields(INFO, CLEAN, [text])
    found = with_own_fields(INFO, CLEAN, ["bucket(007, user)"])
    assert [one.transform for one in found.fields] == ["bucket[7]"]


def test_a_field_is_not_named_as_a_column() -> None:
    info = table_info({"at": t.timestamp(6), "at_day": t.STRING})
    with pytest.raises(ConfigurationError, match="would name it at_day, as a column"):
        with_own_fields(info, CLEAN, ["days(at)"])


def test_fields_that_another_engine_has_added_are_taken_or_refused() -> None:
    info = replace(INFO, descriptor=replace(INFO.descriptor, partition_keys=("day",)))
    schema = schema_json(info, CLEAN)
    matched = match(info, LakeSide(schema))
    types = {one["name"]: one["type"] for one in schema["fields"]}
    ids = {one["name"]: one["id"] for one in schema["fields"]}

    def checked(*fields: tuple[str, str]) -> list[PartKind]:
        spec = {
            "fields": [
                {"name": f"f{place}", "source-id": ids[name], "transform": transform}
                for place, (name, transform) in enumerate(fields)
            ]
        }
        found = found_part_fields(schema, spec)
        made = check_parts(info, matched, found, types, is_of_fluss=True)
        return [one.kind for one in made.fields]

    own, key = PartKind.OWN, PartKind.KEY
    assert checked(("day", "identity")) == [key]
    assert checked(("day", "identity"), ("at", "day"), ("user", "bucket[4]")) == [key, own, own]
    assert checked(("at", "hour"), ("day", "identity"), ("id", "void")) == [own, key, own]
    for fields in (
        [("at", "day")],  # without the partition key no partition could be dropped
        [("day", "identity"), ("price", "identity")],
        [("day", "identity"), ("at", "zorder")],
    ):
        with pytest.raises(LakeTableMismatch, match=r"but \[identity\(day\)\] are expected"):
            checked(*fields)
