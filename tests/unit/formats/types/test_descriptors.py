"""JSON of types, schemas and descriptors against the examples of Fluss's own tests.

See docs/fluss/types-and-options.md#data-types, docs/fluss/types-and-options.md#schemas and
docs/fluss/types-and-options.md#table-descriptors
"""

import json
import tracemalloc

import pytest

from sluice.errors import CorruptMessage, InvalidTable
from sluice.formats.types.descriptors import (
    data_type_from_json,
    data_type_to_json,
    descriptor_from_json,
    descriptor_to_json,
    schema_from_json,
    schema_to_json,
    with_properties,
)
from sluice.model import AggFunction, Column, DataType, Schema, TypeRoot
from sluice.model.types import BIGINT, INT, STRING

TYPES = [
    '{"type":"DECIMAL","nullable":false,"precision":10,"scale":0}',
    '{"type":"TIMESTAMP_WITH_LOCAL_TIME_ZONE","precision":6}',
    '{"type":"ARRAY","element_type":{"type":"INTEGER","nullable":false}}',
    '{"type":"MAP","key_type":{"type":"BIGINT","nullable":false},'
    '"value_type":{"type":"INTEGER","nullable":false}}',
    '{"type":"ROW","fields":[{"name":"f0","field_type":{"type":"BIGINT"},"field_id":-1},'
    '{"name":"f1","field_type":{"type":"INTEGER","nullable":false},"field_id":1}]}',
    '{"type":"CHAR","length":3}',
    '{"type":"BINARY","nullable":false,"length":16}',
    '{"type":"TIME_WITHOUT_TIME_ZONE","precision":0}',
    '{"type":"TIMESTAMP_WITHOUT_TIME_ZONE","precision":9}',
    '{"type":"BOOLEAN"}',
]
SCHEMA = (
    '{"version":1,"columns":['
    '{"name":"a","data_type":{"type":"INTEGER","nullable":false},'
    '"comment":"a is first column","id":0},'
    '{"name":"b","data_type":{"type":"STRING"},"comment":"b is second column","id":1},'
    '{"name":"c","data_type":{"type":"CHAR","nullable":false,"length":10},'
    '"comment":"c is third column","id":2}],'
    '"primary_key":["a","c"],"highest_field_id":2}'
)
DESCRIPTOR = (
    f'{{"version":1,"schema":{SCHEMA},"comment":"first table","partition_key":["c"],'
    '"bucket_key":["a"],"bucket_count":16,"properties":{"option-1":"100"},'
    '"custom_properties":{"custom-1":"\\"value-1\\""}}'
)


@pytest.mark.parametrize("text", TYPES)
def test_a_type_reads_and_writes_as_the_vector(text: str) -> None:
    assert json.dumps(data_type_to_json(data_type_from_json(json.loads(text)))) == json.dumps(
        json.loads(text)
    )


def test_types_read_as_the_right_values() -> None:
    read = [data_type_from_json(json.loads(text)) for text in TYPES[:4]]
    assert read[0] == DataType(TypeRoot.DECIMAL, False, precision=10, scale=0)
    assert read[1] == DataType(TypeRoot.TIMESTAMP_LTZ, precision=6)
    assert read[2] == DataType(TypeRoot.ARRAY, element=INT.not_null())
    assert read[3] == DataType(TypeRoot.MAP, key=BIGINT.not_null(), value=INT.not_null())


def test_a_schema_reads_and_writes_as_the_vector() -> None:
    schema = schema_from_json(SCHEMA.encode())
    assert schema.primary_key == ("a", "c")
    assert schema.columns[1] == Column("b", STRING, 1, "b is second column")
    assert schema_to_json(schema) == SCHEMA.encode()


def test_a_descriptor_reads_and_writes_as_the_vector() -> None:
    descriptor = descriptor_from_json(DESCRIPTOR.encode())
    assert descriptor.bucket_count == 16
    assert descriptor.custom_properties == {"custom-1": '"value-1"'}
    assert descriptor_to_json(descriptor) == DESCRIPTOR.encode()


def test_a_descriptor_without_the_optional_keys() -> None:
    text = (
        '{"version":1,"schema":{"version":1,"columns":[{"name":"ü","data_type":{"type":"STRING"},'
        '"id":0}],"highest_field_id":0},"partition_key":[],"properties":{},"custom_properties":{}}'
    )
    descriptor = descriptor_from_json(text.encode())
    assert (descriptor.comment, descriptor.bucket_keys, descriptor.bucket_count) == (None, (), None)
    assert descriptor_to_json(descriptor) == text.encode()


def test_old_schemas_have_positions_for_ids() -> None:
    schema = schema_from_json(
        b'{"version":1,"columns":[{"name":"a","data_type":{"type":"INTEGER"}},'
        b'{"name":"b","data_type":{"type":"STRING"}}],"primary_key":["a"]}'
    )
    assert [column.column_id for column in schema.columns] == [0, 1]
    assert schema.highest_field_id == 1
    assert not schema.column("a").data_type.nullable


def test_nested_ids_count_towards_the_highest() -> None:
    row = data_type_from_json(
        {"type": "ROW", "fields": [{"name": "x", "field_type": {"type": "INTEGER"}, "field_id": 7}]}
    )
    array = DataType(TypeRoot.ARRAY, element=row)
    content = schema_to_json(Schema((Column("a", array, 0),)))
    assert json.loads(content)["highest_field_id"] == 7
    assert schema_from_json(content).highest_field_id == 7


def test_aggregations_and_auto_increment_survive() -> None:
    columns = (
        Column("a", INT.not_null(), 0),
        Column("b", BIGINT, 1, None, AggFunction("sum")),
        Column("c", STRING, 2, None, AggFunction("listagg", (("delimiter", ";"),))),
    )
    schema = Schema(columns, ("a",), 2, ("b",))
    content = schema_to_json(schema)
    assert b'"agg_function":{"type":"listagg","parameters":{"delimiter":";"}}' in content
    assert b'"auto_increment_column":["b"]' in content
    assert schema_from_json(content) == schema


@pytest.mark.parametrize(
    ("content", "error", "names"),
    [
        (b"{", CorruptMessage, "not JSON"),
        (b"\xff", CorruptMessage, "not JSON"),
        (b"[1]", CorruptMessage, "JSON object"),
        (b"[" * 100_000, CorruptMessage, "not JSON"),
        (b"{}", CorruptMessage, "version"),
        (b'{"version":2}', CorruptMessage, "version 2"),
        (b'{"version":1}', CorruptMessage, "columns"),
        (b'{"version":1,"columns":[3]}', CorruptMessage, "column 0"),
        (b'{"version":1,"columns":[{"name":"a"}]}', CorruptMessage, "'a'"),
        (b'{"version":1,"columns":[{"name":"\\ud800"}]}', CorruptMessage, "not JSON"),
        (b'{"version":1,"columns":[],"highest_field_id":9999999999}', CorruptMessage, "32 bits"),
        (b'{"version":1,"columns":[],"highest_field_id":true}', CorruptMessage, "must be int"),
        (b'{"version":1,"columns":[],"primary_key":["k"]}', InvalidTable, "'k'"),
    ],
)
def test_a_broken_schema_is_refused(content: bytes, error: type[Exception], names: str) -> None:
    with pytest.raises(error, match=names):
        schema_from_json(content)


@pytest.mark.parametrize(
    ("node", "error"),
    [
        ({"type": "VARCHAR"}, InvalidTable),
        ({"type": 3}, CorruptMessage),
        ({"type": "CHAR"}, CorruptMessage),
        ({"type": "CHAR", "length": 0}, InvalidTable),
        ({"type": "DECIMAL", "precision": 39, "scale": 0}, InvalidTable),
        ({"type": "DECIMAL", "precision": 5, "scale": 6}, InvalidTable),
        ({"type": "TIMESTAMP_WITHOUT_TIME_ZONE", "precision": 10}, InvalidTable),
        ({"type": "INTEGER", "nullable": "no"}, CorruptMessage),
        ({"type": "ARRAY"}, CorruptMessage),
        ({"type": "ROW", "fields": [1]}, CorruptMessage),
    ],
)
def test_a_broken_type_is_refused(node: dict[str, object], error: type[Exception]) -> None:
    with pytest.raises(error):
        data_type_from_json(node)


def test_types_nested_without_end_are_refused() -> None:
    node: dict[str, object] = {"type": "INTEGER"}
    for _ in range(100):
        node = {"type": "ARRAY", "element_type": node}
    with pytest.raises(InvalidTable, match="nested levels"):
        data_type_from_json(node)


def test_very_many_columns_are_read_without_comparing_each_with_each() -> None:
    """With quadratic work this takes minutes: a client could hold a server with one request."""
    columns = [{"name": f"c{i}", "data_type": {"type": "INTEGER"}, "id": i} for i in range(50_000)]
    node = {"version": 1, "columns": columns, "primary_key": ["c49999"]}
    schema = schema_from_json(json.dumps(node, separators=(",", ":")).encode())
    assert len(schema.columns) == 50_000
    node["primary_key"] = [f"c{i}" for i in range(257)]
    with pytest.raises(InvalidTable, match="'primary_key' has 257 names, but may have at most 256"):
        schema_from_json(json.dumps(node, separators=(",", ":")).encode())


def test_json_that_would_fill_the_memory_is_refused_before_it_is_read() -> None:
    content = b'{"version":1,"columns":[' + b"[]," * 2_000_000 + b"[]]}"
    tracemalloc.start()
    try:
        with pytest.raises(CorruptMessage, match="6,000,028 bytes, but may have at most 4,194,304"):
            schema_from_json(content)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_names_and_ids_must_differ() -> None:
    column = {"name": "a", "data_type": {"type": "INTEGER"}, "id": 0}
    twice = {"version": 1, "columns": [column, column]}
    with pytest.raises(InvalidTable, match="names must be unique"):
        schema_from_json(json.dumps(twice).encode())
    other = {**column, "name": "b"}
    with pytest.raises(InvalidTable, match="ids must be unique"):
        schema_from_json(json.dumps({"version": 1, "columns": [column, other]}).encode())
    del other["id"]
    with pytest.raises(InvalidTable, match="'b' has no id"):
        schema_from_json(json.dumps({"version": 1, "columns": [column, other]}).encode())


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"bucket_key": ["x"]}, InvalidTable),
        ({"partition_key": ["x"]}, InvalidTable),
        ({"bucket_count": 0}, InvalidTable),
        ({"bucket_count": "3"}, CorruptMessage),
        ({"properties": {"a": 1}}, CorruptMessage),
        ({"partition_key": [1]}, CorruptMessage),
    ],
)
def test_a_broken_descriptor_is_refused(change: dict[str, object], error: type[Exception]) -> None:
    with pytest.raises(error):
        descriptor_from_json(json.dumps({**json.loads(DESCRIPTOR), **change}).encode())


@pytest.mark.parametrize("custom", [{}, {"a": '},"custom_properties":{', "properties": "x"}])
def test_properties_are_added_beside_any_text(custom: dict[str, str]) -> None:
    own, more = {"table.log.ttl": "7 d"}, {"x": '1 "or" 2', "é": "}"}
    content = {**json.loads(DESCRIPTOR), "properties": own, "custom_properties": custom}
    content["comment"] = '},"custom_properties":{"x":"y"}'
    stored = descriptor_to_json(descriptor_from_json(json.dumps(content).encode()))
    told = descriptor_from_json(with_properties(stored, more))
    expected = descriptor_from_json(json.dumps({**content, "properties": own | more}).encode())
    assert told == expected
