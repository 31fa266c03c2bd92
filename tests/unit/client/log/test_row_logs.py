"""Log tables in a row format against a real cluster: bucketed, cut, read in parts, evolved."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from sluice.client import Client, connect
from sluice.errors import InvalidTable, RecordTooLarge
from sluice.formats.keys.bucketing import bucket_numbers
from sluice.formats.keys.keys import encode_key
from sluice.model import Column, DataType, RowField, Schema, TableDescriptor, TypeRoot
from sluice.model import types as t
from tests.support.tables.orders import PATH, PLAIN, bucket, create, ids, orders, write

ROW_FORMATS = ["INDEXED", "COMPACTED"]
WHERE = pytest.mark.parametrize("log_format", ROW_FORMATS)


def of(log_format: str) -> dict[str, str]:
    return {"table.log.format": log_format}


@WHERE
def test_rows_are_cut_and_sorted_by_bucket_and_partition(client: Client, log_format: str) -> None:
    create(
        client,
        PLAIN,
        bucket_keys=("id",),
        bucket_count=3,
        partition_keys=("region",),
        properties=of(log_format),
    )
    eu, us = orders(0, 5000), orders(5000, 4000, "us")
    with client.log_writer(PATH, dynamic_partitions=True) as writer:
        writer.write(pa.concat_tables([eu.slice(0, 2500), us, eu.slice(2500)]))
    info = client.admin.table_info(PATH)
    reader = client.log_reader(PATH)
    for partition in client.admin.partitions(PATH):
        rows = eu if partition.values == ("eu",) else us
        (batch,) = rows.combine_chunks().to_batches()
        keys = encode_key(batch, ["id"], info.schema, info.datalake_format)
        expected = bucket_numbers(keys, 3, info.datalake_format)
        for number in range(3):
            found = list(reader.read(bucket(client, number, partition.partition_id)))
            wanted = rows.filter(pa.array(expected == number))
            assert ids(found) == wanted["id"].to_pylist()
            assert all(r.change_types is None for r in found)


@WHERE
def test_a_window_inside_batches_and_the_largest_rows(client: Client, log_format: str) -> None:
    create(client, PLAIN, properties=of(log_format))
    write(client, *[orders(first, 100) for first in range(0, 500, 100)])
    reader = client.log_reader(PATH)
    assert ids(reader.read(bucket(client), 150, 320)) == list(range(150, 320))
    narrow = replace(client.config, max_message_bytes=100_000)
    with (
        connect(narrow) as other,
        other.log_writer(PATH) as writer,
        pytest.raises(RecordTooLarge, match="a row has .* bytes; client.max_message_bytes allows"),
    ):
        writer.check(pa.table({"id": [1], "region": ["x" * 100_000]}))
    assert client.admin.list_offsets(PATH) == {0: 500}


@WHERE
def test_large_data_are_cut_into_batches_of_about_the_wanted_size(
    client: Client, log_format: str
) -> None:
    create(client, PLAIN, properties=of(log_format))
    with client.log_writer(PATH) as writer:
        writer.write(pa.table({"id": range(5_000), "region": ["x" * 984] * 5_000}))
    read = list(client.log_reader(PATH).read(bucket(client)))
    assert 4 <= len(read) <= 7
    assert all(records.size_bytes < 1_200_000 for records in read)
    assert ids(read) == list(range(5_000))


@WHERE
def test_columns_added_since_are_null_in_older_rows(client: Client, log_format: str) -> None:
    create(client, PLAIN, properties=of(log_format))
    write(client, orders(0, 2))
    nested = DataType(TypeRoot.ROW, fields=(RowField("a", t.INT), RowField("b", t.STRING)))
    client.admin.add_columns(PATH, [Column("more", nested, -1)])
    write(client, orders(2, 1).append_column("more", pa.array([{"a": 1, "b": "x"}])))
    found = list(client.log_reader(PATH).read(bucket(client)))
    table = pa.Table.from_batches([r.batch for r in found])
    assert table["more"].to_pylist() == [None, None, {"a": 1, "b": "x"}]


@WHERE
def test_values_that_do_not_fit_are_refused_whole(client: Client, log_format: str) -> None:
    schema = Schema((Column("id", t.BIGINT, 0), Column("code", t.char(2), 1)), highest_field_id=1)
    create(client, TableDescriptor(schema, properties=of(log_format)))
    rows = pa.table({"id": np.arange(3), "code": ["ab", "", "ü"]})
    write(client, rows)
    (records,) = client.log_reader(PATH).read(bucket(client))
    assert records.batch["code"].to_pylist() == ["ab", "", "ü"]
    if log_format == "INDEXED":  # its rows have room for two bytes
        with (
            pytest.raises(InvalidTable, match="'code' does not fit CHAR"),
            client.log_writer(PATH) as writer,
        ):
            writer.write(pa.table({"id": [1, 2], "code": ["ab", "üü"]}))
    assert client.admin.list_offsets(PATH) == {0: 3}
