"""Statuses in the messages of the embedded server."""

from __future__ import annotations

import pytest
from google.protobuf.descriptor import Descriptor
from hypothesis import given
from hypothesis import strategies as st

from sluice.model import TablePath, TieringRound, TieringStatus
from sluice.model.record_fields import RecordField, fields_of
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.messages.status_messages import (
    round_from_message,
    round_to_message,
    status_from_message,
    status_to_message,
)

MESSAGE = pb.PbTableTieringStatus.DESCRIPTOR
ROUND = pb.PbTieringRound.DESCRIPTOR
FIELDS = fields_of(TieringStatus)
ROUND_FIELDS = fields_of(TieringRound)
VALUES = {
    "STRING": st.text(max_size=20),
    "BOOLEAN": st.booleans(),
    "INT": st.integers(-(2**31), 2**31 - 1),
}
statuses = st.builds(
    TieringStatus,
    path=st.builds(TablePath, st.text(max_size=5), st.text(max_size=5)),
    note=st.none(),
    **{
        entry.name: VALUES.get(str(entry.data_type), st.integers(-(2**63), 2**63 - 1))
        | (st.nothing() if entry.name in ("table_id", "status", "tiering_epoch") else st.none())
        for entry in FIELDS
        if entry.name != "note"
    },
)


@given(statuses)
def test_a_status_survives_its_message(status: TieringStatus) -> None:
    assert status_from_message(status_to_message(status)) == status


@pytest.mark.parametrize("entry", FIELDS, ids=lambda entry: entry.name)
def test_the_message_has_each_field_by_its_number(entry: RecordField) -> None:
    if entry.name == "note":  # only clusters without statuses have one
        assert entry.column not in MESSAGE.fields_by_name
        return
    has_field(MESSAGE, entry)


def has_field(message: Descriptor, entry: RecordField) -> None:
    field = message.fields_by_name[entry.column]
    kinds = {"STRING": field.TYPE_STRING, "BOOLEAN": field.TYPE_BOOL, "INT": field.TYPE_INT32}
    assert (field.number, field.type) == (
        entry.number,
        kinds.get(str(entry.data_type), field.TYPE_INT64),
    )


def test_the_message_has_no_other_field() -> None:
    named = {entry.column for entry in FIELDS} | {"table_path"}
    assert {field.name for field in MESSAGE.fields} <= named


@pytest.mark.parametrize("entry", ROUND_FIELDS, ids=lambda entry: entry.name)
def test_the_message_of_a_round_has_each_field_by_its_number(entry: RecordField) -> None:
    has_field(ROUND, entry)
    assert {field.name for field in ROUND.fields} == {each.column for each in ROUND_FIELDS}


def test_peers_of_other_versions_understand_the_rest() -> None:
    """An older peer leaves fields out; a newer one sends fields that are not known here."""
    older = pb.PbTieringRound(table_id=7, keys_deleted=4).SerializeToString()
    assert round_from_message(pb.PbTieringRound.FromString(older)) == TieringRound(
        table_id=7, keys_deleted=4
    )
    sent = TieringRound(table_id=7, deletes_as="positions", lookup_files=3)
    newer = round_to_message(sent).SerializeToString() + b"\xa2\x3f\x05later"  # field 1012
    assert round_from_message(pb.PbTieringRound.FromString(newer)) == sent
