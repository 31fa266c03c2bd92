"""One list of rules for names and types: what each refuses or warns of, and whom it protects."""

from __future__ import annotations

import pytest

from sluice.errors import UnsupportedLakeOption
from sluice.iceberg_rules.lake_tables import check_lake_table
from sluice.iceberg_rules.layout import Layout
from sluice.iceberg_rules.names_and_types import cautions, check_names_and_types, problems
from sluice.model import DataType, TableInfo, TypeRoot
from sluice.model import types as t
from tests.support.models.tables import table_info

ROW = DataType(TypeRoot.ROW, fields=(t.RowField("b", t.INT), t.RowField("B", t.INT)))
PLAIN = DataType(TypeRoot.ROW, fields=(t.RowField("b", t.INT),))
ARRAY = DataType(TypeRoot.ARRAY, element=t.INT)
MAP = DataType(TypeRoot.MAP, key=t.STRING.not_null(), value=t.INT)
KEYED = {"primary_key": ("k",), "bucket_keys": ("k",)}

REFUSED: dict[str, tuple[TableInfo, str]] = {
    "the bucket's partition field": (
        table_info({"id": t.INT, "id_bucket": t.INT}, bucket_keys=("id",)),
        "column id_bucket has the name of the partition field that buckets by id",
    ),
    "a dotted column beside a row": (
        table_info({"a": PLAIN, "a.b": t.INT}),
        "two fields have the name a.b",
    ),
    "a dotted column beside an array": (
        table_info({"a": ARRAY, "a.element": t.INT}),
        "two fields have the name a.element",
    ),
    "a dotted column beside a map": (
        table_info({"m": MAP, "m.key": t.INT}),
        "two fields have the name m.key",
    ),
}
TIERED: dict[str, tuple[TableInfo, str]] = {
    "columns that differ in case": (
        table_info({"Id": t.INT, "id": t.INT}),
        "columns Id and id differ in case only (Spark: it cannot read the table)",
    ),
    "fields of a row that differ in case": (
        table_info({"a": ROW}),
        "columns a.b and a.B differ in case only (Spark",
    ),
    "a system column in capitals": (
        table_info({"__BUCKET": t.INT}),
        "columns __BUCKET and __bucket differ in case only in a legacy lake table (Spark",
    ),
    **{
        name: (
            table_info({"a": t.INT, name: t.INT}),
            f"column {name} has the name of a metadata column of Iceberg (Spark",
        )
        for name in ("_pos", "_file", "_row_id", "_spec_id", "_partition", "_deleted")
    },
    "a TIME column": (
        table_info({"a": t.time(3)}),
        "column a has the type TIME (Spark: it cannot read the table; other engines can)",
    ),
    "a TIME inside an array": (
        table_info({"a": DataType(TypeRoot.ARRAY, element=t.time(0))}),
        "column a has the type TIME (Spark",
    ),
    "a key that is cut": (
        table_info({"k": t.time(6).not_null()}, **KEYED),
        "column k is TIME(6) NOT NULL, and its table keeps milliseconds: two keys may become one"
        " (rows with finer times: use TIME(3), or TIMESTAMP(6))",
    ),
    "a value that is cut": (
        table_info({"k": t.INT.not_null(), "v": t.time(9)}, **KEYED),
        "column v is TIME(9), and its table keeps milliseconds (rows with finer times",
    ),
    "a log of rows that cuts": (
        table_info({"v": t.time(6)}, properties={"table.log.format": "indexed"}),
        "column v is TIME(6), and its table keeps milliseconds",
    ),
    "another hash": (
        table_info({"k": t.time(6)}, bucket_keys=("k",)),
        "bucket key k is TIME(6): Fluss buckets by its milliseconds, Iceberg by its microseconds,"
        " so a filter on one value may miss rows (engines that look in one bucket only",
    ),
}
WELL: dict[str, TableInfo] = {
    "plain": table_info({"id": t.INT, "name": t.STRING}),
    "the name of a bucket elsewhere": table_info({"id": t.INT, "id_bucket": t.INT}),
    "a dotted name alone": table_info({"a.b": t.INT, "c": t.INT}),
    "a row with another field": table_info({"a": PLAIN, "a.c": t.INT}),
    "a metadata column in capitals": table_info({"_POS": t.INT}),
    "a log of Arrow keeps times": table_info({"a": t.INT, "b": t.timestamp(6)}),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_table_that_iceberg_cannot_have_is_refused(what: str) -> None:
    info, said = REFUSED[what]
    [problem] = [one for one in problems(info) if one.is_refused]
    assert said in problem.text
    for check in (check_names_and_types, check_lake_table):
        with pytest.raises(UnsupportedLakeOption) as caught:
            check(info)
        assert str(caught.value) == f"table db.t: {problem.text}; rename it"


@pytest.mark.parametrize("what", TIERED)
def test_a_table_that_only_a_reader_suffers_from_is_tiered_and_named(what: str) -> None:
    info, said = TIERED[what]
    assert any(one.startswith(said) for one in cautions(info)), cautions(info)
    check_names_and_types(info)


def test_names_of_system_columns_do_no_harm_in_a_clean_lake_table() -> None:
    info = table_info({"__BUCKET": t.INT})
    assert cautions(info, Layout.CLEAN) == []
    assert cautions(info, Layout.LEGACY) == cautions(info) != []


@pytest.mark.parametrize("what", WELL)
def test_other_names_and_types_are_nobodys_problem(what: str) -> None:
    assert problems(WELL[what]) == []
