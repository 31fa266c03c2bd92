"""Another writer of a lake table, which adds and deletes rows by Iceberg's own Java writers."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sluice.catalog_options import CATALOG_NAME
from sluice.driver.lakes.jvm import Jvm
from sluice.lake.iceberg.catalog.java import java_errors
from sluice.model import TablePath
from tests.support.catalogs.iceberg_client import IcebergClient, opened
from tests.support.catalogs.rounds import RoundSite

_BUCKETS = (0, 1)


class ForeignWriter:
    """Commits to one log table of numbers (``id``) with two buckets."""

    def __init__(self, jvm: Jvm, client: IcebergClient, path: TablePath) -> None:
        self._gateway, self._iceberg = jvm.gateway, jvm.gateway.jvm.org.apache.iceberg
        self._client, self._path = client, path
        self._table: Any = None
        """As it was loaded for the newest commit: keys of a short life may have ended since."""

    def append(self, ids: Iterable[int]) -> None:
        """Adds rows, all in the first bucket.

        :raises JavaThrew: the catalog or the store refuses.
        """
        self._table = self._client.load(str(self._path))
        with java_errors():
            rows = [self._record(self._table.schema(), one, _BUCKETS[0]) for one in ids]
            file = self._written(self._factory(), rows, _BUCKETS[0]).toDataFile()
            self._table.newAppend().appendFile(file).commit()

    def delete(self, ids: Sequence[int]) -> None:
        """Deletes rows by equality, in whichever bucket they are.

        :raises JavaThrew: the catalog or the store refuses.
        """
        self._table = self._client.load(str(self._path))
        with java_errors():
            field = self._table.schema().findField("id")
            keys = self._gateway.new_array(self._gateway.jvm.int, 1)
            keys[0] = field.fieldId()
            schema = self._table.schema().select(_names(self._gateway, "id"))
            delta = self._table.newRowDelta()
            for bucket in _BUCKETS:
                rows = [self._record(schema, one) for one in ids]
                factory = self._factory(schema, keys)
                file = self._written(factory, rows, bucket, by_key=True).toDeleteFile()
                delta.addDeletes(file)
            delta.commit()

    def delete_all(self) -> None:
        """Removes all data files: no row is left.

        :raises JavaThrew: the catalog or the store refuses.
        """
        self._table = self._client.load(str(self._path))
        with java_errors():
            everything = self._iceberg.expressions.Expressions.alwaysTrue()
            self._table.newDelete().deleteFromRowFilter(everything).commit()

    def _factory(self, schema: Any = None, keys: Any = None) -> Any:
        parquet = self._iceberg.FileFormat.PARQUET
        builder = getattr(self._iceberg.data, "GenericFileWriterFactory$Builder")(self._table)
        builder = builder.dataFileFormat(parquet).deleteFileFormat(parquet)
        builder = builder.dataSchema(self._table.schema())
        if keys is not None:
            builder = builder.equalityFieldIds(keys).equalityDeleteRowSchema(schema)
        return builder.build()

    def _written(self, factory: Any, rows: list[Any], bucket: int, *, by_key: bool = False) -> Any:
        """The closed writer of one file."""
        table, iceberg = self._table, self._iceberg
        where = f"{table.location()}/data/another-writer-{uuid.uuid4()}.parquet"
        sink = iceberg.encryption.EncryptedFiles.plainAsEncryptedOutput(
            table.io().newOutputFile(where)
        )
        whole = self._record(table.schema(), 0, bucket)
        key = iceberg.PartitionKey(table.spec(), table.schema())
        key.partition(iceberg.data.InternalRecordWrapper(table.schema().asStruct()).wrap(whole))
        make = factory.newEqualityDeleteWriter if by_key else factory.newDataWriter
        writer = make(sink, table.spec(), key)
        for row in rows:
            writer.write(row)
        writer.close()
        return writer

    def _record(self, schema: Any, number: int, bucket: int | None = None) -> Any:
        record = self._iceberg.data.GenericRecord.create(schema)
        self._set_long(record, "id", number)
        if schema.findField("__bucket") is not None:  # a table of the legacy layout
            record.setField("__bucket", bucket)
            self._set_long(record, "__offset", -1)
            record.setField("__timestamp", self._gateway.jvm.java.time.OffsetDateTime.now())
        return record

    def _set_long(self, record: Any, name: str, number: int) -> None:
        """Sets a field in Java: py4j would make an Integer of a small number."""
        jvm = self._gateway.jvm
        arguments = jvm.java.util.ArrayList()
        arguments.add(name)
        arguments.addAll(jvm.java.util.stream.LongStream.range(number, number + 1).boxed().toList())
        [method] = [one for one in record.getClass().getMethods() if one.getName() == "setField"]
        method.invoke(record, arguments.toArray())


def _names(gateway: Any, *names: str) -> Any:
    found = gateway.new_array(gateway.jvm.java.lang.String, len(names))
    for place, name in enumerate(names):
        found[place] = name
    return found


@contextmanager
def foreign_writer(site: RoundSite, path: TablePath) -> Iterator[ForeignWriter]:
    """Opens the catalog for the block."""
    with opened(site.jvm, site.reader_options, CATALOG_NAME) as client:
        yield ForeignWriter(site.jvm, client, path)
