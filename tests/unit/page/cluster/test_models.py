"""Models of the API that are made from the one description of recorded fields."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.masking import reason_text
from sluice.model import TablePath, TieringRound, TieringStatus
from sluice.model.record_fields import RecordField, fields_of
from sluice.page.cluster.models import (
    RecordedRound,
    RecordedStatus,
    is_wide_id,
    recorded_values,
)

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "STRING": st.text(max_size=20),
    "BOOLEAN": st.booleans(),
    "INT": st.integers(-(2**31), 2**31 - 1),
}
MODELS = {TieringRound: RecordedRound, TieringStatus: RecordedStatus}
SECRET = "Hunter2-Hunter2"
EXACT_MAX = 1 << 53
"""The largest number up to which a browser tells all whole numbers apart."""
COUNTED = ("_ms", "_rows", "_bytes", "_files", "_epoch", "_deleted", "_written", "_expired")
"""Ends of names of numbers that stay below: counts, times, and bytes up to 9 petabytes."""
ALSO_COUNTED = (
    "table_id",
    "round_number",
    "rounds",
    "lag_rows_before",
    "lag_rows_after",
    "bytes_read",
    "files_compacted",
)


def values_of(entry: RecordField) -> st.SearchStrategy[Any]:
    kind = str(entry.data_type).removesuffix(" NOT NULL")
    most = 2**63 - 1 if is_wide_id(entry) else EXACT_MAX
    values = VALUES.get(kind, st.integers(-most, most))
    is_needed = entry.name in ("table_id", "status", "tiering_epoch")
    return values if is_needed else values | st.none()


def records(kind: type, **more: Any) -> st.SearchStrategy[Any]:
    return st.builds(kind, **{e.name: values_of(e) for e in fields_of(kind)}, **more)


@given(records(TieringRound) | records(TieringStatus, path=st.just(TablePath("shop", "orders"))))
def test_each_recorded_field_is_in_the_answer(record: Any) -> None:
    model = MODELS[type(record)](**recorded_values(record))
    answer = json.loads(model.model_dump_json())
    assert list(answer) == [entry.name for entry in fields_of(type(record))]
    for entry in fields_of(type(record)):
        value = getattr(record, entry.name)
        shown = str(value) if is_wide_id(entry) and value is not None else value
        shown = reason_text(shown) if isinstance(shown, str) else shown
        assert answer[entry.name] == shown, entry.name


@pytest.mark.parametrize("kind", MODELS)
def test_no_text_of_others_shows_a_secret(kind: type) -> None:
    """On Apache Fluss, any client that may write the table of statuses writes these."""
    texts = [e.name for e in fields_of(kind) if "STRING" in str(e.data_type)]
    assert len(texts) > 3
    for name in texts:
        more: dict[str, Any] = {name: f"s3.secret-key={SECRET} in {name}"}
        if kind is TieringStatus:
            more = {"path": TablePath("a", "b"), "table_id": 1, "tiering_epoch": 1, **more}
            more.setdefault("status", "Tiering")
        shown = recorded_values(kind(**more))[name]
        assert shown == f"s3.secret-key=*** in {name}"


@pytest.mark.parametrize("kind", MODELS)
def test_numbers_that_a_browser_would_round_are_text(kind: type) -> None:
    for entry in fields_of(kind):
        if "BIGINT" in str(entry.data_type):
            is_counted = entry.name.endswith(COUNTED) or entry.name in ALSO_COUNTED
            assert is_wide_id(entry) != is_counted, entry.name


@pytest.mark.parametrize("kind", MODELS)
def test_each_field_is_described_with_its_unit(kind: type) -> None:
    described = MODELS[kind].model_json_schema()["properties"]
    for entry in fields_of(kind):
        text = described[entry.name]["description"]
        assert text.startswith(entry.comment)
        unit = "(epoch milliseconds)" if entry.is_time else "(milliseconds)"
        assert text.endswith(unit) == (entry.is_time or entry.is_duration), entry.name
