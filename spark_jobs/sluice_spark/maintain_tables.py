"""Spark driver that maintains lake tables: spark-submit maintain_tables.py --request URI.

Spark properties ``spark.sluice.SECTION.KEY`` override the configuration (``--config FILE``), as for
``tier_tables.py``. Executors need Sluice installed, or its zip by ``--py-files``. The driver writes
a report of each table next to the request. Its exit code is 1 if something did not work, else 0.
"""

from __future__ import annotations

import argparse
import os
import sys

from pyspark import SparkContext, TaskContext

from sluice.driver.spark.maintenance import fail_maintenance, run_maintenance
from sluice.driver.spark.phase_log import begin_log
from sluice.driver.spark.round import config_of, jvm_is_lost
from sluice.driver.without_pandas import leave_pandas_out


def task_id() -> int:
    """Returns the id of this execution of a task. A retried or speculative task has another id."""
    context = TaskContext.get()
    assert context is not None, "called outside of a task"
    return int(context.taskAttemptId())


def main() -> int:
    leave_pandas_out()
    parser = argparse.ArgumentParser(description="Maintain lake tables on Spark.")
    parser.add_argument("--request", required=True, metavar="URI", help="what is to be done")
    parser.add_argument("--config", metavar="FILE", help="configuration file (TOML)")
    arguments = parser.parse_args()
    begin_log()
    context = SparkContext.getOrCreate()  # a session takes a second more
    try:
        config = config_of(context, arguments.config, os.environ)
        return run_maintenance(context, arguments.request, config, task_id)
    except Exception as error:
        if not jvm_is_lost(context):
            fail_maintenance(arguments.request, error)
        raise
    finally:
        context.stop()


if __name__ == "__main__":
    sys.exit(main())
