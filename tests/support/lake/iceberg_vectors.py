"""Deletion vectors as Iceberg itself writes and reads them, over py4j."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sluice.lake.iceberg.catalog.java import ensure_callbacks
from sluice.lake.iceberg.deletes.deletion_vectors import StoredVector

Positions = npt.NDArray[np.int64]


class _Function:
    """A Java ``Function`` that calls a Python one."""

    class Java:
        implements = ("java.util.function.Function",)

    def __init__(self, does: Callable[[Any], Any]) -> None:
        self._does = does

    def apply(self, argument: Any) -> Any:
        return self._does(argument)


class _Supplier:
    class Java:
        implements = ("java.util.function.Supplier",)

    def __init__(self, gives: Callable[[], Any]) -> None:
        self._gives = gives

    def get(self) -> Any:
        return self._gives()


def vectors_in(content: bytes) -> tuple[StoredVector, ...]:
    """The vectors of a Puffin file, by its footer."""
    [size] = struct.unpack("<i", content[-12:-8])
    assert content[:4] == content[-4:] == content[-16 - size : -12 - size] == b"PFA1"
    blobs = json.loads(content[-12 - size : -12])["blobs"]
    assert all(blob["type"] == "deletion-vector-v1" for blob in blobs)
    return tuple(
        StoredVector(
            blob["properties"]["referenced-data-file"],
            blob["offset"],
            blob["length"],
            int(blob["properties"]["cardinality"]),
        )
        for blob in blobs
    )


def write_by_iceberg(
    gateway: Any, target: Path, rows: Mapping[str, Positions]
) -> dict[str, dict[str, int]]:
    """A Puffin file by BaseDVFileWriter; what its DeleteFiles say, by data file.

    One call a position: for some thousands of them. Iceberg 1.13 will not have this constructor.
    """
    ensure_callbacks(gateway)
    iceberg = gateway.jvm.org.apache.iceberg
    unpartitioned = iceberg.PartitionSpec.unpartitioned()
    writer = iceberg.deletes.BaseDVFileWriter(
        _Supplier(lambda: iceberg.Files.localOutput(str(target))), _Function(lambda _path: None)
    )
    for data_file, positions in rows.items():
        for position in positions.tolist():
            writer.delete(data_file, position, unpartitioned, None)
    writer.close()
    return {
        file.referencedDataFile(): {
            "content_offset": file.contentOffset(),
            "content_size_in_bytes": file.contentSizeInBytes(),
            "record_count": file.recordCount(),
        }
        for file in writer.result().deleteFiles()
    }


def delete_file(
    gateway: Any, puffin: Path, vector: StoredVector, spec: Any = None, partition: Any = None
) -> Any:
    """Iceberg's DeleteFile of a vector in a Puffin file.

    :param spec: of the data file, with its ``partition``; None: of an unpartitioned table.
    """
    iceberg = gateway.jvm.org.apache.iceberg
    spec = spec or iceberg.PartitionSpec.unpartitioned()
    builder = iceberg.FileMetadata.deleteFileBuilder(spec)
    if partition is not None:
        builder = builder.withPartition(partition)
    builder = builder.ofPositionDeletes().withFormat("puffin").withPath(str(puffin))
    builder = builder.withFileSizeInBytes(puffin.stat().st_size)
    builder = builder.withReferencedDataFile(vector.data_file).withContentOffset(vector.offset)
    builder = builder.withContentSizeInBytes(vector.size_bytes)
    return builder.withRecordCount(vector.cardinality).build()


def load_by_iceberg(gateway: Any, puffin: Path, vector: StoredVector) -> Any:
    """Iceberg's PositionDeleteIndex of a vector, by the loader that its readers use."""
    ensure_callbacks(gateway)
    iceberg = gateway.jvm.org.apache.iceberg
    open_file = _Function(lambda file: iceberg.Files.localInput(file.location()))
    loader = iceberg.data.BaseDeleteLoader(open_file)
    files = gateway.jvm.java.util.List.of(delete_file(gateway, puffin, vector))
    return loader.loadPositionDeletes(files, vector.data_file)


def positions_in(gateway: Any, index: Any) -> Positions:
    """Every position of a PositionDeleteIndex, in Iceberg's order: shape (n,)."""
    java = gateway.jvm.java
    found = java.util.stream.LongStream.builder()
    index.forEach(found)
    count = index.cardinality()
    buffer = java.nio.ByteBuffer.allocate(8 * count)
    buffer.asLongBuffer().put(found.build().toArray())
    return np.frombuffer(buffer.array(), ">i8").astype(np.int64)
