"""A table with a primary key whose tiering Fluss's own Flink job began, continued by this one.

What that job leaves is made here as docs/fluss/iceberg.md#data-files describes it: rows of a KV
snapshot with offset and time -1, equality deletes that hold complete rows, summaries with its
commit user and the path of the offsets file. Nothing of it is written by this project's code.
"""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sluice.lake.iceberg.lake import IcebergLake
from sluice.model import Claim, TableBucket, TablePath
from tests.real_fluss.conftest import RealSite
from tests.support.fluss.table_creation import create_table
from tests.support.tables.keyed_stock import Stock, stock_table

pytestmark = [pytest.mark.real_fluss, pytest.mark.spark, pytest.mark.long]

USER = "__fluss_lake_tiering"
CATALOG = "begun_by_flink"
COLUMNS = "day string, id long, item string, n int, __bucket int, __offset long"


class FlinkJob:
    """Rounds as Fluss's Flink job makes them, of one table."""

    def __init__(self, site: RealSite, path: TablePath, spark: Any) -> None:
        self._site, self._path, self._spark = site, path, spark
        self._table_id = site.client.admin.table_info(path).table_id
        spark.conf.set(f"spark.sql.catalog.{CATALOG}", "org.apache.iceberg.spark.SparkCatalog")
        spark.conf.set(f"spark.sql.catalog.{CATALOG}.type", "hadoop")
        spark.conf.set(f"spark.sql.catalog.{CATALOG}.warehouse", str(site.fluss.warehouse))

    def snapshot_round(self) -> None:
        """Snapshot splits: all rows, without the offsets that brought them."""
        claim, ends = self._site.claim(self._path), self._ends()
        rows = []
        reader = self._site.client.log_reader(self._path)
        for bucket in ends:
            for records in reader.read(bucket):
                rows += [(*row.values(), bucket.bucket, -1) for row in records.batch.to_pylist()]
        frame = self._spark.createDataFrame(rows, COLUMNS)
        frame = frame.selectExpr("*", "timestamp_millis(-1) AS __timestamp")
        offsets = self._prepared(ends)
        writer = frame.writeTo(f"{CATALOG}.{self._path}")
        writer = writer.option("snapshot-property.commit-user", USER)
        writer.option("snapshot-property.fluss-offsets", offsets).append()
        with closing(self._lake()) as lake:
            table = lake.load(self._path)
            assert table is not None
            snapshot_id = table._loaded.java.currentSnapshot().snapshotId()
        self._registered(claim, snapshot_id, offsets, ends)

    def delete_round(self, gone: list[dict[str, Any]]) -> None:
        """A log split of deletes: files of whole rows, which count by the key."""
        claim, ends = self._site.claim(self._path), self._ends()
        offsets = self._prepared(ends)
        with closing(self._lake()) as lake:
            found = lake.load(self._path)
            assert found is not None
            table, iceberg = found._loaded.java, self._site.jvm.gateway.jvm.org.apache.iceberg
            delta = table.newRowDelta()
            for bucket in ends:
                rows = [row for row in gone if row["__bucket"] == bucket.bucket]
                if rows:
                    delta.addDeletes(self._delete_file(table, iceberg, bucket.bucket, rows))
            delta.set("commit-user", USER).set("fluss-offsets", offsets).commit()
            table.refresh()
            snapshot_id = table.currentSnapshot().snapshotId()
        self._registered(claim, snapshot_id, offsets, ends)

    def _delete_file(self, table: Any, iceberg: Any, bucket: int, rows: list[Any]) -> Any:
        names = ["day", "id", "item", "n", "__bucket", "__offset", "__timestamp"]
        types = [pa.string(), pa.int64(), pa.string(), pa.int32(), pa.int32(), pa.int64()]
        types.append(pa.timestamp("us", tz="UTC"))
        schema = pa.schema(
            [
                pa.field(name, kind, metadata={"PARQUET:field_id": str(i)})
                for i, (name, kind) in enumerate(zip(names, types, strict=True), start=1)
            ]
        )
        folder = self._site.fluss.warehouse / self._path.database / self._path.table / "data"
        path = folder / f"id_bucket={bucket}" / f"{bucket:05d}-0-flink-00001-deletes.parquet"
        pq.write_table(pa.Table.from_pylist(rows, schema), path)
        gateway = self._site.jvm.gateway
        ids = gateway.new_array(gateway.jvm.int, 2)
        ids[0], ids[1] = 1, 2
        source = table.io().newInputFile(str(path))
        metrics = iceberg.parquet.ParquetUtil.fileMetrics(
            source, iceberg.MetricsConfig.getDefault()
        )
        builder = iceberg.FileMetadata.deleteFileBuilder(table.spec()).ofEqualityDeletes(ids)
        builder = builder.withInputFile(source).withFormat("parquet").withMetrics(metrics)
        return builder.withPartitionPath(f"id_bucket={bucket}").build()

    def _lake(self) -> IcebergLake:
        return IcebergLake(self._site.jvm.gateway, self._site.config.datalake.iceberg)

    def _ends(self) -> dict[TableBucket, int]:
        ends = self._site.client.admin.list_offsets(self._path)
        return {TableBucket(self._table_id, None, n): end for n, end in ends.items()}

    def _prepared(self, ends: dict[TableBucket, int]) -> str:
        client = self._site.client.tiering
        return client.prepare_lake_snapshot(self._table_id, self._path, ends)

    def _registered(
        self, claim: Claim, snapshot_id: int, offsets: str, ends: dict[TableBucket, int]
    ) -> None:
        client = self._site.client.tiering
        client.commit_lake_snapshot(claim, snapshot_id, offsets, ends, {}, -1)
        client.finished(claim)


def test_rounds_go_on_where_the_flink_job_has_ended(site: RealSite, spark: Any) -> None:
    path = TablePath(site.database, "stock")
    table = stock_table({"table.datalake.freshness": "1s"})
    create_table(site.client, path, table, site.fluss.warehouse)
    stock = Stock(site.client, path, site.rows)
    job = FlinkJob(site, path, spark)
    stock.put({key: key for key in range(40)})
    job.snapshot_round()
    stock.assert_equal()
    gone = [row.asDict() for row in stock.rows("SELECT * FROM {lake} WHERE id IN (1, 2, 3)")]
    stock.delete(1, 2, 3)
    job.delete_round(gone)
    stock.assert_equal()

    stock.put({3: 33, 4: 44, 50: 50})
    stock.delete(5, 6)
    result = site.tier(path)
    assert (result.outcome, result.rows, result.deletes) == ("committed", 3, 3)
    stock.assert_equal()
    stock.delete(3)
    site.tier(path)
    stock.assert_equal()
    users = stock.rows("SELECT summary['commit-user'] AS user FROM {lake}.snapshots")
    assert {row.user for row in users} == {USER}
