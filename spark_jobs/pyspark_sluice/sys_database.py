"""Creates the database ``sys`` in a session's catalog."""

from __future__ import annotations

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from pyspark_sluice.lake_tiering_status import LakeTieringStatus

# Always Spark's own catalog: other catalogs do not support such tables.
STATEMENTS = (
    "CREATE DATABASE IF NOT EXISTS spark_catalog.sys",
    "CREATE TABLE IF NOT EXISTS spark_catalog.sys.lake_tiering_status USING lake_tiering_status",
)


def add_sys_tables(spark: SparkSession) -> None:
    """Creates ``sys.lake_tiering_status`` in Spark's session catalog if it does not exist."""
    try:
        spark.dataSource.register(LakeTieringStatus)
    except AnalysisException as error:
        # Spark 4.0 refuses a source that it already found by its package's name.
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
    for statement in STATEMENTS:
        spark.sql(statement)
