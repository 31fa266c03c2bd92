"""One split, from a log to files."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pyarrow as pa
import pytest

from sluice.errors import LakeNotWritable, RequestTimeOut
from sluice.model import Reason, TableBucket
from sluice.model import types as t
from sluice.rounds.copy.split import copy_split
from sluice.rounds.values.lake_files import DataFile
from sluice.rounds.values.types import LogRecords, Split, SplitFailure, SplitResult
from tests.support.models.memory_lake import MemoryLakeTable
from tests.support.models.memory_writer import MemoryWriter
from tests.support.models.tables import table_info

BUCKET = TableBucket(1, None, 0)
INFO = table_info({"a": t.BIGINT})


def batch(base: int, rows: int, timestamp_ms: int = 7) -> LogRecords:
    data = pa.RecordBatch.from_pydict({"a": pa.array(range(base, base + rows), pa.int64())})
    return LogRecords(data, base, base + max(1, rows), timestamp_ms, 100)


class Log:
    """A LogSource of given batches, which may end in an error."""

    def __init__(self, *batches: LogRecords, error: Exception | None = None) -> None:
        self.batches, self.error = batches, error

    def read(self, split: Split) -> Iterator[LogRecords]:
        yield from self.batches
        if self.error is not None:
            raise self.error


def copy(log: Log, start: int, stop: int) -> tuple[SplitResult | SplitFailure, MemoryLakeTable]:
    table = MemoryLakeTable("mem:/t")
    split = Split(BUCKET, (), start, stop)
    return copy_split(split, log, table.writer_factory("w", [split])), table


def test_a_split_is_copied_from_start_to_stop() -> None:
    result, table = copy(Log(batch(0, 2), batch(2, 0, 99), batch(3, 2)), 0, 5)
    assert isinstance(result, SplitResult)
    assert (result.rows, result.next_offset, result.bytes_read) == (4, 5, 300)
    assert result.max_timestamp_ms == 99
    assert [row[2] for row in table.files["mem:/t/w-0-1:0"]] == [0, 1, 3, 4]
    assert pickle.loads(pickle.dumps(result)) == result


def test_batches_are_cut_at_both_ends_of_the_window() -> None:
    result, table = copy(Log(batch(0, 4), batch(4, 4)), 2, 6)
    assert isinstance(result, SplitResult)
    assert result.rows == 4
    assert [row[2] for row in table.files["mem:/t/w-0-1:0"]] == [2, 3, 4, 5]


def test_rows_are_reported_as_they_are_copied() -> None:
    seen: list[int] = []
    split = Split(BUCKET, (), 0, 5)
    table = MemoryLakeTable("mem:/t")
    writers = table.writer_factory("w", [split])
    copy_split(split, Log(batch(0, 2), batch(2, 3)), writers, on_rows=seen.append)
    assert seen == [2, 3]


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        (Log(batch(0, 2), batch(3, 2)), "offset 3 follows where 2 was expected"),
        (Log(batch(0, 2)), "log ended at offset 2, but the round planned to read up to offset 5"),
        (Log(), "log ended at offset 0, but the round planned to read up to offset 5"),
    ],
)
def test_a_log_with_a_hole_or_a_missing_end_is_a_failure(log: Log, reason: str) -> None:
    result, table = copy(log, 0, 5)
    assert isinstance(result, SplitFailure)
    assert (result.reason.kind, result.reason.retryable) == ("SplitFailed", False)
    assert reason in result.reason.text
    assert table.files == {}


def test_an_unread_log_from_the_earliest_offset_is_a_failure() -> None:
    result, _ = copy(Log(), -2, 5)
    assert isinstance(result, SplitFailure)


def test_a_failing_source_is_a_failure_that_leaves_no_file() -> None:
    result, table = copy(Log(batch(0, 2), error=RequestTimeOut("no answer in 30 s")), 0, 5)
    text = "no answer in 30 s"
    assert result == SplitFailure(
        BUCKET, Reason("RequestTimeOut", text, f"RequestTimeOut: {text}", retryable=True)
    )
    assert table.files == {}
    assert pickle.loads(pickle.dumps(result)) == result


def test_an_unforeseen_error_leaves_its_trace_in_the_log_without_secrets(
    caplog: pytest.LogCaptureFixture,
) -> None:
    secret = "hunter22"

    class Odd(MemoryWriter):
        def write(self, records: LogRecords) -> None:
            raise IndexError(f"password={secret}")

    log, table = Log(batch(0, 2)), MemoryLakeTable("mem:/t")
    copy_split(Split(BUCKET, (), 0, 2), log, lambda s, task=0: Odd(table, s, "x"))
    assert f"bucket {BUCKET}" in caplog.text
    assert "in write" in caplog.text
    assert "IndexError: password=***" in caplog.text
    assert secret not in caplog.text


def test_a_writer_that_loses_rows_is_a_failure() -> None:
    class Lossy(MemoryWriter):
        def write(self, records: LogRecords) -> None:
            if records.base_offset == 0:
                super().write(records)

    split = Split(BUCKET, (), 0, 4)
    table = MemoryLakeTable("mem:/t")
    log = Log(batch(0, 2), batch(2, 2))
    result = copy_split(split, log, lambda s, task=0: Lossy(table, s, "x"))
    assert isinstance(result, SplitFailure)
    assert "4 rows were read, but the files have 2" in result.reason.text
    assert table.files == {}


def test_a_writer_that_fails_is_aborted() -> None:
    aborted: list[bool] = []

    class Full(MemoryWriter):
        def close(self) -> tuple[DataFile, ...]:
            raise LakeNotWritable("write /lake/x: OSError: [Errno 28] No space left on device")

        def abort(self) -> None:
            aborted.append(True)

    split = Split(BUCKET, (), 0, 2)
    table = MemoryLakeTable("mem:/t")
    result = copy_split(split, Log(batch(0, 2)), lambda s, task=0: Full(table, s, "x"))
    assert isinstance(result, SplitFailure)
    assert (result.reason.kind, result.reason.retryable) == ("LakeNotWritable", True)
    assert "No space left" in result.reason.text
    assert aborted == [True]
