"""Spark driver of one round: spark-submit tier_table.py --plan URI --attempt ID [--config FILE].

Spark properties ``spark.sluice.SECTION.KEY`` override the configuration, for example
``spark.sluice.datalake.iceberg.warehouse``. Executors need Sluice installed, or its zip by
``--py-files``. The driver writes its result or failure next to the plan. Its exit code is 1 after a
failure, else 0.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys

from pyspark import TaskContext
from pyspark.sql import SparkSession

from sluice.driver.spark import config_of, run
from sluice.masking import MaskingFormatter


def task_id() -> int:
    """Returns the id of this execution of a split. A retried or speculative task has another id."""
    context = TaskContext.get()
    assert context is not None, "called outside of a task"
    return int(context.taskAttemptId())


def main() -> int:
    parser = argparse.ArgumentParser(description="Run one round of tiering on Spark.")
    parser.add_argument("--plan", required=True, metavar="URI", help="plan file of the round")
    parser.add_argument(
        "--attempt", required=True, metavar="ID", help="id of this try, unique in the round"
    )
    parser.add_argument("--config", metavar="FILE", help="configuration file (TOML)")
    arguments = parser.parse_args()
    handler = logging.StreamHandler()
    formatter = MaskingFormatter("%(asctime)s %(levelname)s %(name)s %(message)s")
    handler.setFormatter(formatter)
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.getLogger("py4j").setLevel(logging.WARNING)
    spark = SparkSession.builder.appName("sluice-tier-table").getOrCreate()
    try:
        config = config_of(spark, arguments.config, os.environ)
        formatter.secrets = config.secrets()
        return run(spark, arguments.plan, arguments.attempt, config, task_id)
    finally:
        spark.stop()


if __name__ == "__main__":
    sys.exit(main())
