"""Spark driver of one round: spark-submit tier_table.py --plan URI --attempt ID [--config FILE].

Spark conf keys ``spark.sluice.SECTION.KEY`` override configuration, as in
``spark.sluice.datalake.iceberg.warehouse``. Executors need sluice installed, or its zip by
``--py-files``. The result or the failure is written beside the plan; the exit code is 1 for a
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
    """Tells executions of a split apart: a retried or speculative task has another one."""
    context = TaskContext.get()
    assert context is not None, "called outside of a task"
    return int(context.taskAttemptId())


def main() -> int:
    parser = argparse.ArgumentParser(description="One round of tiering on Spark.")
    parser.add_argument("--plan", required=True, metavar="URI", help="plan file of the round")
    parser.add_argument("--attempt", required=True, metavar="ID", help="new on every try")
    parser.add_argument("--config", metavar="FILE", help="configuration (TOML)")
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
