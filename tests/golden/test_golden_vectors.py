"""Deletion vectors that Iceberg wrote: read exactly, and written as Iceberg writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sluice.lake.iceberg.deletes.deletion_vectors import (
    DeletionVector,
    StoredVector,
    write_vectors,
)
from tests.golden.vectors import FOLDER, VECTORS, positions_of
from tests.support.lake.iceberg_vectors import vectors_in

DATA = Path(__file__).with_name("iceberg")
MADE: dict[str, Any] = json.loads((DATA / "made_with.json").read_text("utf-8"))
ONE = f"{FOLDER}/one.parquet"
WITH_A_GAP = f"{FOLDER}/above 32 bits.parquet"


@pytest.mark.parametrize("name", ["all.puffin", "one.puffin"])
def test_the_footer_is_what_iceberg_says_of_its_files(name: str) -> None:
    content = (DATA / name).read_bytes()
    expected = {
        StoredVector(
            data_file, said["content_offset"], said["content_size_in_bytes"], said["record_count"]
        )
        for data_file, said in MADE[name].items()
    }
    assert set(vectors_in(content)) == expected
    assert {stored.data_file for stored in expected} == set(MADE[name])


def blob_of(data_file: str) -> bytes:
    said = MADE["all.puffin"][data_file]
    start = said["content_offset"]
    return (DATA / "all.puffin").read_bytes()[start : start + said["content_size_in_bytes"]]


@pytest.mark.parametrize("data_file", VECTORS)
def test_positions_are_those_that_iceberg_was_given(data_file: str) -> None:
    expected = positions_of(data_file)
    read = DeletionVector.from_blob(blob_of(data_file), data_file, len(expected))
    assert read.positions().tolist() == expected.tolist()
    assert read.last == expected[-1]


@pytest.mark.parametrize("data_file", [path for path in VECTORS if path != WITH_A_GAP])
def test_our_blobs_are_those_of_iceberg(data_file: str) -> None:
    assert DeletionVector.of(positions_of(data_file)).to_blob() == blob_of(data_file)


def test_keys_without_positions_are_left_out() -> None:
    """Iceberg stores an empty bitmap for each of them."""
    ours = DeletionVector.of(positions_of(WITH_A_GAP))
    assert len(ours.to_blob()) < len(blob_of(WITH_A_GAP)) - 250 * 8
    assert DeletionVector.from_blob(blob_of(WITH_A_GAP), WITH_A_GAP) == ours


def test_our_file_is_that_of_iceberg_but_for_its_maker() -> None:
    theirs = (DATA / "one.puffin").read_bytes()
    ours = write_vectors({ONE: DeletionVector.of(positions_of(ONE))}).content
    start = theirs.index(b"{")
    assert ours[:start] == theirs[:start]
    assert (ours[-8:], theirs[-8:]) == (bytes(4) + b"PFA1",) * 2
    footers = [json.loads(content[start:-12]) for content in (ours, theirs)]
    makers = [footer["properties"].pop("created-by") for footer in footers]
    assert footers[0] == footers[1]
    assert makers[0].startswith("Sluice ")
    assert makers[1].startswith(f"Apache Iceberg {MADE['iceberg']} ")
