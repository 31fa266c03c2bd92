"""How the fields of an answer are written down, and compared with those of another server."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluice.wire import fluss_api_pb2 as pb
from tests.conformance import answer_fields
from tests.conformance.answer_fields import (
    differences,
    fields_of,
    fields_of_json,
    recorded_fields,
    write_recorded,
)


def test_a_field_that_is_empty_is_there() -> None:
    answer = pb.FetchLogResponse()
    table = answer.tables_resp.add(table_id=7)
    table.buckets_resp.add(bucket_id=0, high_watermark=0)
    omitted = fields_of(answer)
    table.buckets_resp[0].records = b""
    empty = fields_of(answer)
    table.buckets_resp[0].records = b"rows"
    assert omitted == (
        "tables_resp[].table_id: int64",
        "tables_resp[].buckets_resp[].bucket_id: int32",
        "tables_resp[].buckets_resp[].high_watermark: int64",
    )
    record = "tables_resp[].buckets_resp[].records"
    assert differences(empty, omitted) == (f"- {record}: empty bytes",)
    assert differences(omitted, empty) == (f"+ {record}: empty bytes",)
    assert differences(empty, fields_of(answer)) == (
        f"- {record}: empty bytes",
        f"+ {record}: bytes",
    )


def test_values_and_numbers_of_elements_do_not_matter() -> None:
    def listed(*ids: int) -> tuple[str, ...]:
        answers = [pb.PbListOffsetsRespForBucket(bucket_id=i, offset=i) for i in ids]
        return fields_of(pb.ListOffsetsResponse(buckets_resp=answers))

    assert (
        listed(1)
        == listed(2, 3, 4)
        == (
            "buckets_resp[].bucket_id: int32",
            "buckets_resp[].offset: int64",
        )
    )
    assert listed() == ("nothing",)


def test_elements_of_several_kinds_are_numbered() -> None:
    values = [pb.PbValue(values=b"row"), pb.PbValue(), pb.PbValue(values=b"other")]
    answer = pb.PbLookupRespForBucket(bucket_id=0, values=values)
    assert fields_of(answer) == (
        "bucket_id: int32",
        "values[1].values: bytes",
        "values[2]: nothing",
    )


def test_an_error_is_its_class() -> None:
    answer = pb.PbListOffsetsRespForBucket(bucket_id=0, error_code=21, error_message="why")
    assert fields_of(answer)[1:] == (
        "error_code: UnknownTableOrBucket",
        "error_message: string",
    )
    assert "error_code: no error" in fields_of(pb.ErrorResponse(error_code=0))


def test_json_in_a_field_is_looked_into() -> None:
    content = b'{"version":1,"keys":[],"columns":[{"name":"a","type":null},{"id":1.5,"ok":true}]}'
    lines = (
        "version: number",
        "keys[]: no element",
        "columns[1].id: number",
        "columns[1].ok: boolean",
        "columns[2].name: string",
        "columns[2].type: null",
    )
    assert fields_of_json(content) == lines
    answer = pb.GetTableSchemaResponse(schema_id=1, schema_json=content)
    assert fields_of(answer) == ("schema_id: int32", *(f"schema_json.{line}" for line in lines))


def test_a_field_that_nobody_knows_is_named() -> None:
    answer = pb.GetLatestKvSnapshotsResponse.FromString(b"\x08\x01\x98\x3f\x07")
    assert fields_of(answer) == ("table_id: int64", "field 1011: unknown")


def test_a_recording_replaces_that_scenario_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answer_fields, "RECORDED", tmp_path / "fields.json")
    (tmp_path / "fields.json").write_text('{"b": {"old": ["x: int32"]}, "a": {"q": []}}')
    recorded_fields.cache_clear()
    try:
        write_recorded("b", {"new": ["y: int64"]})
        assert recorded_fields() == {"a": {"q": []}, "b": {"new": ["y: int64"]}}
    finally:
        recorded_fields.cache_clear()
