"""Creates the database ``sys`` in a session's catalog."""

from __future__ import annotations

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from pyspark_sluice.lake_tiering_rounds import LakeTieringRounds
from pyspark_sluice.lake_tiering_status import LakeTieringStatus

TABLES = (LakeTieringStatus, LakeTieringRounds)


def add_sys_tables(spark: SparkSession) -> None:
    """Creates the tables of ``sys`` in Spark's session catalog if they do not exist.

    Spark finds one source of an installed package by itself. The others need this call in each
    session that reads them, also where a metastore keeps the tables.
    """
    # Always Spark's own catalog: other catalogs do not support such tables.
    spark.sql("CREATE DATABASE IF NOT EXISTS spark_catalog.sys")
    for table in TABLES:
        try:
            spark.dataSource.register(table)
        except AnalysisException as error:
            # Spark 4.0 refuses a source that it already found by its package's name.
            if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
                raise
        name = table.name()
        spark.sql(f"CREATE TABLE IF NOT EXISTS spark_catalog.sys.{name} USING {name}")
