"""Iceberg's own readers read our deletion vectors, position by position, and we read Iceberg's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from sluice.driver.lakes.jvm import Jvm
from sluice.lake.iceberg.catalog.java import JavaThrew, iterate, java_errors
from sluice.lake.iceberg.deletes.deletion_vectors import (
    POSITION_MAX,
    DeletionVector,
    write_vectors,
)
from sluice.lake.iceberg.deletes.earlier_marks import united
from sluice.lake.iceberg.lake import IcebergLake
from sluice.model import TableBucket
from sluice.model import types as t
from sluice.rounds.values.types import LogRecords, Split
from tests.golden.vectors import VECTORS, positions_of
from tests.support.lake.iceberg_vectors import (
    delete_file,
    load_by_iceberg,
    positions_in,
    vectors_in,
    write_by_iceberg,
)
from tests.support.models.tables import table_info

pytestmark = pytest.mark.spark
Positions = npt.NDArray[np.int64]


def random_positions() -> dict[str, Positions]:
    """Sparse, dense, in runs and mixed; each with its containers of several kinds."""
    random = np.random.default_rng(18)
    sparse = np.sort(random.choice(10_000_000, 2_500, replace=False))
    dense = np.flatnonzero(random.random(500_000) < 0.4)
    runs = np.unique(np.concatenate([start + np.arange(700) for start in sparse[::40].tolist()]))
    mixed = np.union1d(np.union1d(sparse, runs), dense)
    return {"sparse": sparse, "dense": dense, "runs": runs, "mixed": mixed}


def cases() -> dict[str, Positions]:
    return {path: positions_of(path) for path in VECTORS} | random_positions()


def written(folder: Path, rows: dict[str, Positions]) -> Path:
    file = write_vectors({path: DeletionVector.of(at) for path, at in rows.items()})
    target = folder / "ours.puffin"
    target.write_bytes(file.content)
    return target


def test_iceberg_loads_every_position_of_ours(jvm: Jvm, tmp_path: Path) -> None:
    rows = cases()
    puffin = written(tmp_path, rows)
    stored = vectors_in(puffin.read_bytes())
    assert [vector.data_file for vector in stored] == list(rows)
    for vector in stored:
        expected = rows[vector.data_file]
        index = load_by_iceberg(jvm.gateway, puffin, vector)
        assert index.cardinality() == vector.cardinality == len(expected)
        assert np.array_equal(positions_in(jvm.gateway, index), expected), vector
        assert index.isDeleted(int(expected[-1]))
        assert not index.isDeleted(int(expected[-1]) + 1)


def test_iceberg_reads_our_footer_and_our_blobs(jvm: Jvm, tmp_path: Path) -> None:
    rows = random_positions()
    puffin = written(tmp_path, rows)
    iceberg = jvm.gateway.jvm.org.apache.iceberg
    reader = iceberg.puffin.Puffin.read(iceberg.Files.localInput(str(puffin))).build()
    try:
        blobs = reader.fileMetadata().blobs()
        assert dict(reader.fileMetadata().properties()).keys() == {"created-by"}
        contents = {}
        for pair in iterate(reader.readAll(blobs)):
            contents[pair.first().properties()["referenced-data-file"]] = pair.second().array()
    finally:
        reader.close()
    stored = vectors_in(puffin.read_bytes())
    for vector, blob in zip(stored, blobs, strict=True):
        assert blob.type() == iceberg.puffin.StandardBlobTypes.DV_V1
        assert list(blob.inputFields()) == [iceberg.MetadataColumns.ROW_POSITION.fieldId()]
        assert (blob.snapshotId(), blob.sequenceNumber()) == (-1, -1)
        assert blob.compressionCodec() is None
        assert (blob.offset(), blob.length()) == (vector.offset, vector.size_bytes)
        properties = {
            "referenced-data-file": vector.data_file,
            "cardinality": str(vector.cardinality),
        }
        assert dict(blob.properties()) == properties
        described = delete_file(jvm.gateway, puffin, vector)
        content = contents[vector.data_file]
        index = iceberg.deletes.PositionDeleteIndex.deserialize(content, described)
        assert np.array_equal(positions_in(jvm.gateway, index), rows[vector.data_file])
        # what Iceberg would have written itself, byte for byte
        assert bytes(index.serialize().array()) == bytes(content)


def test_iceberg_reads_a_union_with_a_vector_of_its_own(jvm: Jvm, tmp_path: Path) -> None:
    older, newer = np.arange(10, 9_000, 9), np.arange(0, 3_000_000, 7_001)
    write_by_iceberg(jvm.gateway, tmp_path / "theirs.puffin", {"a": older})
    content = (tmp_path / "theirs.puffin").read_bytes()
    [before] = vectors_in(content)
    blob = content[before.offset : before.offset + before.size_bytes]
    previous = DeletionVector.from_blob(blob, "theirs.puffin", before.cardinality)
    file = write_vectors({"a": DeletionVector.of(united([previous.positions(), newer]))})
    (tmp_path / "ours.puffin").write_bytes(file.content)
    index = load_by_iceberg(jvm.gateway, tmp_path / "ours.puffin", file.vectors[0])
    assert np.array_equal(positions_in(jvm.gateway, index), np.union1d(older, newer))


def test_what_iceberg_writes_now_is_what_the_golden_files_have(jvm: Jvm, tmp_path: Path) -> None:
    rows = {path: positions_of(path) for path in VECTORS}
    said = write_by_iceberg(jvm.gateway, tmp_path / "theirs.puffin", rows)
    content = (tmp_path / "theirs.puffin").read_bytes()
    golden = (Path(__file__).parents[2] / "golden/iceberg/all.puffin").read_bytes()
    footers = content.rindex(b'"properties":{"created-by"'), golden.rindex(b'"properties":{"cre')
    assert content[: footers[0]] == golden[: footers[1]]
    for vector in vectors_in(content):
        assert said[vector.data_file]["content_offset"] == vector.offset
        blob = content[vector.offset : vector.offset + vector.size_bytes]
        read = DeletionVector.from_blob(blob, vector.data_file, vector.cardinality)
        assert np.array_equal(read.positions(), rows[vector.data_file])


def test_iceberg_refuses_what_we_refuse(jvm: Jvm, tmp_path: Path) -> None:
    """So that the tests above cannot pass on bytes that Iceberg does not check."""
    puffin = written(tmp_path, {"a": np.arange(0, 90, 3)})
    content = bytearray(puffin.read_bytes())
    [vector] = vectors_in(bytes(content))
    content[vector.offset + 30] ^= 1
    puffin.write_bytes(content)
    with pytest.raises(JavaThrew) as raised, java_errors():
        load_by_iceberg(jvm.gateway, puffin, vector)
    assert raised.value.kind == "IllegalArgumentException"


def test_the_largest_position_is_that_of_iceberg(jvm: Jvm) -> None:
    name = "org.apache.iceberg.deletes.RoaringPositionBitmap"
    field = jvm.gateway.jvm.java.lang.Class.forName(name).getDeclaredField("MAX_POSITION")
    field.setAccessible(True)
    value: Any = field.get(None)
    assert value == POSITION_MAX


@pytest.mark.slow
def test_spark_leaves_out_the_rows_of_our_vectors(
    jvm: Jvm, lake_sql: Callable[[Path, str], list[Any]], tmp_path: Path
) -> None:
    """A vector, then one that replaces it with more positions, as each round writes them."""
    info = table_info({"a": t.BIGINT}, custom_properties={"iceberg.format-version": "3"})
    lake = IcebergLake(jvm.gateway, {"type": "hadoop", "warehouse": str(tmp_path)})
    ours = lake.create(info)
    split = Split(TableBucket(1, None, 0), (), 0, 1_000)
    writer = ours.writer_factory("w", [split])(split)
    rows = pa.RecordBatch.from_pydict({"a": pa.array(range(1_000), pa.int64())})
    writer.write(LogRecords(rows, 0, 1_000, 1, 1))
    ours.commit(writer.close(), None, {"fluss-offsets": "/0"})

    iceberg = jvm.gateway.jvm.org.apache.iceberg
    tables = iceberg.hadoop.HadoopTables(jvm.gateway.jvm.org.apache.hadoop.conf.Configuration())
    table = tables.load(f"{tmp_path}/db/t")
    [task] = iterate(table.newScan().planFiles())
    data_file = task.file()
    gone, previous = np.array([], np.int64), None
    for number, more in enumerate([np.arange(0, 1_000, 7), np.array([999, 0, 500])]):
        gone = np.union1d(gone, more)
        file = write_vectors({data_file.location(): DeletionVector.of(gone)})
        puffin = tmp_path / f"db/t/data/{number}.puffin"
        puffin.write_bytes(file.content)
        [stored] = file.vectors
        described = delete_file(jvm.gateway, puffin, stored, task.spec(), data_file.partition())
        update = table.newRowDelta().addDeletes(described)
        if previous is not None:
            planned = table.currentSnapshot().snapshotId()
            update = update.removeDeletes(previous).validateFromSnapshot(planned)
        update.commit()
        previous = described
        left = sorted(set(range(1_000)) - set(gone.tolist()))
        found = lake_sql(tmp_path, "SELECT a FROM lake.db.t ORDER BY a")
        assert [row[0] for row in found] == left
