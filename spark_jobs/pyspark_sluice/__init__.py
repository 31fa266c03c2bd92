"""The system tables of a Fluss cluster in Spark SQL: lake tiering statuses and rounds.

Spark imports every installed package whose name starts with ``pyspark_`` and uses its
``DefaultSource``. This package therefore imports its dependencies only when a query runs.
"""

from pyspark_sluice.lake_tiering_rounds import LakeTieringRounds
from pyspark_sluice.lake_tiering_status import LakeTieringStatus
from pyspark_sluice.sys_database import add_sys_tables

DefaultSource = LakeTieringStatus

__all__ = ["DefaultSource", "LakeTieringRounds", "LakeTieringStatus", "add_sys_tables"]
