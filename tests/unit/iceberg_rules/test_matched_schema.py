"""The three-way comparison of schemas: Fluss now, what the last round wrote, the lake now."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from sluice.errors import LakeTableMismatch
from sluice.iceberg_rules.layout import Layout, found_part_fields, part_fields
from sluice.iceberg_rules.matched_schema import LakeSide, MatchedSchema, check_parts, match
from sluice.iceberg_rules.written_schema import WrittenSchema
from sluice.lake.iceberg.schema import schema_json, spec_json
from sluice.model import Column, DataType, TableInfo, TypeRoot
from sluice.model import types as t
from tests.support.models.tables import table_info

ROW = DataType(TypeRoot.ROW, fields=(t.RowField("x", t.INT), t.RowField("y", t.STRING)))
INFO = table_info(
    {
        "id": t.INT.not_null(),
        "name": t.STRING,
        "price": t.decimal(9, 2),
        "rate": t.FLOAT,
        "place": ROW,
    }
)
KEYED = table_info(
    {"id": t.INT.not_null(), "day": t.STRING.not_null(), "n": t.INT},
    primary_key=("id",),
    bucket_keys=("id",),
    buckets=4,
)
Fields = dict[str, dict[str, Any]]
Change = Callable[[dict[str, Any], Fields], None]


@pytest.fixture(params=[Layout.LEGACY, Layout.CLEAN], ids=["legacy", "clean"])
def layout(request: pytest.FixtureRequest) -> Layout:
    assert isinstance(request.param, Layout)
    return request.param


def changed(layout: Layout, change: Change | None = None, info: TableInfo = INFO) -> dict[str, Any]:
    """The lake's schema after a change; Iceberg gives each schema of a table a new id."""
    schema = copy.deepcopy(schema_json(info, layout))
    if change is not None:
        schema["schema-id"] = 1
        change(schema, {one["name"]: one for one in schema["fields"]})
    return schema


def compare(
    layout: Layout,
    change: Change | None = None,
    info: TableInfo = INFO,
    now: TableInfo | None = None,
    *,
    recorded: bool = True,
    of_fluss: bool = True,
) -> MatchedSchema:
    """Compares after a round that wrote the table as ``info`` has it."""
    before = changed(layout, info=info)
    written = match(info, LakeSide(before)).written
    schema = changed(layout, change, info)
    side = LakeSide(schema, written if recorded else None, of_fluss, lambda: [before, schema])
    return match(now or info, side)


def new_field(name: str, kind: Any = "string", *, required: bool = False) -> dict[str, Any]:
    return {"id": 90, "name": name, "required": required, "type": kind}


def wider(info: TableInfo, name: str, kind: DataType) -> TableInfo:
    """The table with one more column."""
    columns = (*info.schema.columns, Column(name, kind, len(info.schema.columns)))
    schema = replace(info.schema, columns=columns)
    return replace(info, schema_id=2, descriptor=replace(info.descriptor, schema=schema))


def test_an_unchanged_table_has_nothing_to_say(layout: Layout) -> None:
    found = compare(layout)
    assert (found.layout, found.added, found.notes) == (layout, (), ())
    assert found.names == {name: name for name in INFO.schema.names}
    assert found.written == WrittenSchema(1, 0, dict(enumerate(range(1, 6))))


def test_what_is_written_down_is_short_and_read_back() -> None:
    many = WrittenSchema(3, 7, {0: 1, 1: 2, 2: 3, 5: 9, 6: 10, 8: 4})
    summary = many.to_summary()
    assert summary == {"sluice.schema": '{"fluss":3,"lake":7,"fields":[[0,1,3],[5,9,2],[8,4,1]]}'}
    assert WrittenSchema.of_summary(summary) == many
    for damaged in ({}, {"sluice.schema": "{"}, {"sluice.schema": '{"fluss":1}'}):
        assert WrittenSchema.of_summary(damaged) is None


# What others may do to the lake table, and rounds go on: (change, what is said, name in the lake).
TOLERATED: dict[str, tuple[Change, str]] = {
    "an optional column is added": (
        lambda schema, _: schema["fields"].append(new_field("extra")),
        "column extra, which another engine has added, is null in new rows",
    ),
    "one is added before the others": (
        lambda schema, _: schema["fields"].insert(0, new_field("extra")),
        "column extra, which another engine has added, is null in new rows",
    ),
    "a column is renamed": (
        lambda _, fields: fields["name"].update(name="label"),
        "column name is named label in the lake, and written there",
    ),
    "columns are reordered": (lambda schema, _: schema["fields"].reverse(), ""),
    "int becomes long": (
        lambda _, fields: fields["id"].update(type="long"),
        "column id is long in the lake and int in Fluss: its values fit",
    ),
    "float becomes double": (
        lambda _, fields: fields["rate"].update(type="double"),
        "column rate is double in the lake and float in Fluss: its values fit",
    ),
    "a decimal gets more digits": (
        lambda _, fields: fields["price"].update(type="decimal(18, 2)"),
        "column price is decimal(18,2) in the lake and decimal(9,2) in Fluss: its values fit",
    ),
    "a required column becomes optional": (
        lambda _, fields: fields["id"].update(required=False),
        "",
    ),
    "a column gets a comment": (lambda _, fields: fields["name"].update(doc="of the shop"), ""),
    "a field is added inside a row": (
        lambda _, fields: fields["place"]["type"]["fields"].append(new_field("z")),
        "",
    ),
    "a field inside a row becomes wider": (
        lambda _, fields: fields["place"]["type"]["fields"][0].update(type="long"),
        "column place is struct<xlong,ystring>",
    ),
    "the fields of a row are reordered": (
        lambda _, fields: fields["place"]["type"]["fields"].reverse(),
        "",
    ),
    "a column is dropped and added again": (
        lambda schema, fields: (
            schema["fields"].remove(fields["rate"]),
            schema["fields"].append(new_field("rate", "float")),
        )[0],
        "column rate was dropped in the lake and added again: its earlier values are null",
    ),
    "two columns swap their names": (
        lambda _, fields: (
            fields["name"].update(name="x"),
            fields["rate"].update(name="name"),
            fields["name"].update(name="rate"),
        )[0],
        "column name is named rate in the lake",
    ),
}


@pytest.mark.parametrize("what", TOLERATED)
def test_rounds_go_on_after_legal_changes_of_the_lake(what: str, layout: Layout) -> None:
    change, said = TOLERATED[what]
    found = compare(layout, change)
    assert [one.source for one in found.columns] == list(INFO.schema.names)
    assert said.replace("xlong,ystring", "x long,y string") in "; ".join(found.notes)
    if not said:
        assert found.notes == ()
    ids = {column: field for column, field in found.written.field_ids.items() if field != 90}
    assert ids.items() <= dict(enumerate(range(1, 6))).items(), "columns keep their field"
    schema = changed(layout, change)
    again = match(INFO, LakeSide(schema, found.written, True))
    assert (again.names, again.notes) == (found.names, ()), "it is said once"


# What others may do, and a round stops: (change, what is said, the statement that mends it).
REFUSED: dict[str, tuple[Change, str, str]] = {
    "a column is dropped": (
        lambda schema, fields: schema["fields"].remove(fields["rate"]),
        "no column rate: another engine has dropped it",
        "ALTER TABLE CATALOG.db.t ADD COLUMN rate FLOAT",
    ),
    "a nested column is dropped": (
        lambda schema, fields: schema["fields"].remove(fields["place"]),
        "no column place: another engine has dropped it",
        "ADD COLUMN place STRUCT<x: INT, y: STRING>",
    ),
    "a field inside a row is dropped": (
        lambda _, fields: fields["place"]["type"]["fields"].pop(),
        "column 'place struct<x int>', but 'place struct<x int,y string>' is expected",
        "ALTER TABLE CATALOG.db.t ADD COLUMN place.y STRING",
    ),
    "a required column is added": (
        lambda schema, _: schema["fields"].append(new_field("must", required=True)),
        "column must, which another engine has added and which is NOT NULL",
        "ALTER COLUMN must DROP NOT NULL",
    ),
    "an optional column becomes required": (
        lambda _, fields: fields["name"].update(required=True),
        "column 'name string required', which is NOT NULL there and not in Fluss",
        "ALTER COLUMN name DROP NOT NULL",
    ),
    "a field inside a row is renamed": (
        lambda _, fields: fields["place"]["type"]["fields"][0].update(name="x2"),
        "column 'place struct<x2 int,y string>'",
        "ALTER TABLE CATALOG.db.t RENAME COLUMN place.x2 TO x",
    ),
    "a field inside a row becomes required": (
        lambda _, fields: fields["place"]["type"]["fields"][0].update(required=True),
        "column 'place struct<x int required,y string>'",
        "ALTER COLUMN place.x DROP NOT NULL",
    ),
    "a field inside a row has another type": (
        lambda _, fields: fields["place"]["type"]["fields"][0].update(type="string"),
        "column 'place struct<x string,y string>'",
        "",
    ),
    "a column has another type": (
        lambda _, fields: fields["name"].update(type="binary"),
        "column 'name binary', but 'name string' is expected",
        "",
    ),
    "a decimal has fewer digits": (
        lambda _, fields: fields["price"].update(type="decimal(5, 2)"),
        "column 'price decimal(5,2)', but 'price decimal(9,2)' is expected",
        "ALTER COLUMN price TYPE DECIMAL(9,2)",
    ),
    "a decimal has another scale": (
        lambda _, fields: fields["price"].update(type="decimal(9, 3)"),
        "column 'price decimal(9,3)'",
        "",
    ),
    "identifier fields are set": (
        lambda schema, _: schema.update({"identifier-field-ids": [1]}),
        "identifier fields ['id'], but [] are expected",
        "ALTER TABLE CATALOG.db.t DROP IDENTIFIER FIELDS id",
    ),
    "a column has a default for writers alone": (
        lambda schema, _: schema["fields"].append({**new_field("x"), "write-default": "a"}),
        "column x, which another engine has added: its default for new rows is 'a', and None",
        "make both alike",
    ),
    "a column has a default for earlier rows alone": (
        lambda schema, _: schema["fields"].append({**new_field("x"), "initial-default": "a"}),
        "its default for new rows is None, and 'a' for rows that were there before",
        "make both alike",
    ),
}


@pytest.mark.parametrize("recorded", [True, False], ids=["by Sluice", "by Flink"])
@pytest.mark.parametrize("what", REFUSED)
def test_a_round_stops_at_other_changes_and_says_what_mends_them(
    what: str, layout: Layout, recorded: bool
) -> None:
    change, said, mend = REFUSED[what]
    with pytest.raises(LakeTableMismatch) as caught:
        compare(layout, change, recorded=recorded)
    text = str(caught.value)
    assert text.startswith("lake table db.t has ")
    assert said in text
    assert mend in text
    if not mend:
        last = "undo it with the program that made it" if recorded else "_of_others"
        assert text.endswith(last)
    assert "Nothing was written" in text
    for advice in ("drop or rename", "rename it", "drop the lake table"):
        assert advice not in text, "it may hold tiered rows"


def test_names_are_quoted_where_spark_needs_it(layout: Layout) -> None:
    now = wider(INFO, "order by", t.INT.not_null())
    with pytest.raises(LakeTableMismatch, match="ADD COLUMN `order by` INT"):
        compare(layout, now=now)


def test_a_new_column_is_not_looked_for_in_earlier_schemas(layout: Layout) -> None:
    """Another engine once had a column of that name, under which Fluss has one only now."""

    def of_others(name: str) -> Change:
        return lambda schema, _: schema["fields"].append(new_field(name, "int"))

    now = wider(INFO, "x", t.INT)
    written = match(INFO, LakeSide(changed(layout))).written
    for later in (of_others("z"), None):  # it was renamed, or dropped
        schema = changed(layout, later)
        earlier = [changed(layout), changed(layout, of_others("x")), schema]
        found = match(now, LakeSide(schema, written, True, lambda known=earlier: known))
        assert [column.name for column in found.added] == ["x"]
        assert "x" not in found.names


def test_a_new_column_with_the_name_of_a_renamed_one(layout: Layout) -> None:
    def renamed(_: dict[str, Any], fields: Fields) -> None:
        fields["name"].update(name="more")

    with pytest.raises(LakeTableMismatch, match="RENAME COLUMN more TO name"):
        compare(layout, renamed, now=wider(INFO, "more", t.STRING))


def test_rows_of_somebody_else_are_not_adopted(layout: Layout) -> None:
    schema = changed(layout)
    with pytest.raises(LakeTableMismatch, match="rows that no tiering of Fluss wrote"):
        match(INFO, LakeSide(schema, has_rows=True))
    for side in (LakeSide(schema), LakeSide(schema, is_of_fluss=True, has_rows=True)):
        assert match(INFO, side).names == {name: name for name in INFO.schema.names}


def test_a_column_that_fluss_has_added_is_added(layout: Layout) -> None:
    now = wider(INFO, "more", t.INT)
    for recorded in (True, False):
        found = compare(layout, now=now, recorded=recorded)
        assert [column.name for column in found.added] == ["more"]
        assert found.written.schema_id == 2
    with pytest.raises(LakeTableMismatch, match="no column more, which is NOT NULL in Fluss"):
        compare(layout, now=wider(INFO, "more", t.INT.not_null()))


def test_a_column_that_another_engine_has_added_first_is_that_of_fluss(layout: Layout) -> None:
    def adds(schema: dict[str, Any], _: Fields) -> None:
        schema["fields"].append(new_field("more", "int"))

    found = compare(layout, adds, now=wider(INFO, "more", t.INT))
    assert (found.added, found.names["more"]) == ((), "more")
    assert found.written.field_ids[5] == 90


def test_a_rename_is_seen_also_after_rounds_of_flink(layout: Layout) -> None:
    """Its snapshots tell no ids, but the table has its earlier schemas."""

    def renames(_: dict[str, Any], fields: Fields) -> None:
        fields["name"].update(name="label")

    assert compare(layout, renames, recorded=False).names["name"] == "label"


def test_a_column_that_fluss_renames_or_drops_keeps_its_field(layout: Layout) -> None:
    """No released Fluss can (apache/fluss 3392): its column ids tell it once one does."""
    columns = list(INFO.schema.columns)
    columns[1] = replace(columns[1], name="label")
    del columns[3]
    schema = replace(INFO.schema, columns=tuple(columns))
    now = replace(INFO, schema_id=2, descriptor=replace(INFO.descriptor, schema=schema))
    found = compare(layout, lambda schema, _: None, now=now)
    assert found.names["label"] == "name"
    assert "column rate, which Fluss has dropped, is null in new rows" in found.notes


def test_a_table_of_somebody_else_is_named_as_such(layout: Layout) -> None:
    """Nothing was tiered to it, so that it may be renamed."""
    with pytest.raises(LakeTableMismatch, match="it is another table than Fluss's: rename it"):
        compare(layout, REFUSED["a column has another type"][0], recorded=False, of_fluss=False)


def test_keys_follow_their_columns(layout: Layout) -> None:
    def renames(_: dict[str, Any], fields: Fields) -> None:
        fields["id"].update(name="number", type="long")

    found = compare(layout, renames, KEYED)
    assert found.names["id"] == "number"
    renamed = changed(layout, renames, KEYED)
    spec = spec_json(part_fields(KEYED, layout), changed(layout, info=KEYED))
    check_parts(KEYED, found, found_part_fields(renamed, spec), {}, is_of_fluss=True)
    with pytest.raises(LakeTableMismatch, match=r"identifier fields \[\], but \['id'\]") as caught:
        compare(layout, lambda schema, _: schema.pop("identifier-field-ids"), KEYED)
    assert "SET IDENTIFIER FIELDS id" in str(caught.value)


def test_another_partition_spec_is_a_mismatch_with_its_statements(layout: Layout) -> None:
    schema = changed(layout, info=KEYED)
    matched = match(KEYED, LakeSide(schema))
    eight = replace(KEYED, descriptor=replace(KEYED.descriptor, bucket_count=8))
    found = found_part_fields(schema, spec_json(part_fields(eight, layout), schema))
    with pytest.raises(LakeTableMismatch) as caught:
        check_parts(KEYED, matched, found, {}, is_of_fluss=True)
    text = str(caught.value)
    assert "the partition fields [bucket[8](id)], but [bucket[4](id)] are expected" in text
    assert "DROP PARTITION FIELD id_bucket; ALTER TABLE" in text
    assert "ADD PARTITION FIELD bucket(4, id)" in text
