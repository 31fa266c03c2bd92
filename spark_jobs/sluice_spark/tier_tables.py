"""Spark driver of a pack of tables: spark-submit tier_tables.py --pack URI --attempt ID.

``--plan URI`` in place of ``--pack`` tiers one table. Spark properties
``spark.sluice.SECTION.KEY`` override the configuration (``--config FILE``), for example
``spark.sluice.datalake.iceberg.warehouse``. Executors need Sluice installed, or its zip by
``--py-files``. The driver writes a result or failure next to each plan. Its exit code is 1 after a
failure, else 0.
"""

from __future__ import annotations

import argparse
import os
import sys

from pyspark import SparkContext, TaskContext

from sluice.driver.spark.pack import fail_pack, run_pack
from sluice.driver.spark.phase_log import begin_log
from sluice.driver.spark.round import config_of, jvm_is_lost, run
from sluice.driver.without_pandas import leave_pandas_out


def task_id() -> int:
    """Returns the id of this execution of a split. A retried or speculative task has another id."""
    context = TaskContext.get()
    assert context is not None, "called outside of a task"
    return int(context.taskAttemptId())


def main() -> int:
    leave_pandas_out()
    parser = argparse.ArgumentParser(description="Tier tables on Spark, one round each.")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--pack", metavar="URI", help="file that lists the plans of the tables")
    what.add_argument("--plan", metavar="URI", help="plan file of one round")
    parser.add_argument(
        "--attempt", required=True, metavar="ID", help="id of this try, unique in each round"
    )
    parser.add_argument("--config", metavar="FILE", help="configuration file (TOML)")
    arguments = parser.parse_args()
    begin_log()
    # Each table has a thread, and the labels of its Spark job belong to that thread alone.
    os.environ["PYSPARK_PIN_THREAD"] = "true"
    context = SparkContext.getOrCreate()  # a session takes a second more
    try:
        config = config_of(context, arguments.config, os.environ)
        if arguments.pack is None:
            return run(context, arguments.plan, arguments.attempt, config, task_id)
        return run_pack(context, arguments.pack, arguments.attempt, config, task_id)
    except Exception as error:
        # A lost JVM is no failure of the tables: the tier task finds none and tries them again.
        if arguments.pack is not None and not jvm_is_lost(context):
            fail_pack(arguments.pack, arguments.attempt, error)
        raise
    finally:
        context.stop()


if __name__ == "__main__":
    sys.exit(main())
