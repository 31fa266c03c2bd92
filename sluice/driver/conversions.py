"""Converts the equality deletes of several buckets at once: on threads, or on Spark's executors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sluice.driver.python_worker import lighten
from sluice.driver.without_pandas import leave_pandas_out
from sluice.errors import SparkJobFailed
from sluice.lake.iceberg.catalog.java import JavaThrew, java_errors
from sluice.rounds.upkeep.conversion import BucketWork, Converted


class ThreadConversions:
    """Converts buckets on threads of this process: reading and compression release the GIL."""

    def __init__(self, at_once: int) -> None:
        """:param at_once: threads, each with the memory of one bucket."""
        self.at_once = max(1, at_once)

    def __call__(self, works: Sequence[BucketWork]) -> Sequence[Converted]:
        with ThreadPoolExecutor(self.at_once, thread_name_prefix="sluice-convert") as pool:
            return list(pool.map(lambda work: work.convert(), works))


class SparkConversions:
    """Converts each bucket in a Spark task. An executor needs the memory of a bucket for each core.

    The files of a task that was lost stay. Its successor writes others, and a later maintenance
    deletes those that no snapshot references.
    """

    def __init__(self, context: Any, label: str, task_id: Callable[[], int]) -> None:
        """:param context: the SparkContext.
        :param label: how Spark's UI shows the jobs.
        :param task_id: returns, on an executor, a number that is unique to this execution.
        """
        self._context, self._label, self._task_id = context, label, task_id
        self.at_once = max(1, int(context.defaultParallelism))

    def __call__(self, works: Sequence[BucketWork]) -> Sequence[Converted]:
        self._context.setJobDescription(f"{self._label}: {len(works)} buckets")
        rdd = self._context.parallelize(works, len(works))
        try:
            with java_errors():
                found: list[Converted] = rdd.mapPartitions(_OnExecutor(self._task_id)).collect()
        except JavaThrew as thrown:
            # Buckets return their errors as values, so this is none of the table's data.
            raise SparkJobFailed(f"Spark gave up the job {self._label!r}") from thrown
        return found


class _OnExecutor:
    """Converts the buckets of a partition. Picklable."""

    def __init__(self, task_id: Callable[[], int]) -> None:
        self._task_id = task_id

    def __call__(self, works: Iterable[BucketWork]) -> Iterator[Converted]:
        leave_pandas_out()
        for work in works:
            yield work.convert(self._task_id())
        lighten()
