"""What a changelog comes to, row by row: compared with what a lake holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import pyarrow as pa

from tests.support.tables.server_files import Bucket

INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = 1, 2, 3, 4
ANY = -1
"""The bucket of a row that does not say it."""
SYSTEM = ("__bucket", "__offset", "__timestamp", "__change")

Row = dict[str, Any]


class Counts(Protocol):
    """Where differences are counted."""

    doubled: int
    missing: int
    foreign: int
    differing: int


def replayed(log: pa.Table, end: int, key: Sequence[str]) -> dict[tuple[Any, ...], Row]:
    """The rows after all changes below that offset, by key, each with its last change's offset."""
    found: dict[tuple[Any, ...], Row] = {}
    for row in log.to_pylist():
        if row["__offset"] >= end:
            break
        name = tuple(row[column] for column in key)
        if row["__change"] in (INSERT, UPDATE_AFTER):
            found[name] = row
        elif row["__change"] == DELETE:
            del found[name]
        else:
            assert row["__change"] == UPDATE_BEFORE, row
    return found


def compare_keyed(
    counts: Counts,
    lake: dict[Bucket, list[Row]],
    held: dict[Bucket, int],
    logs: dict[Bucket, pa.Table],
    key: Sequence[str],
    *,
    is_clean: bool = False,
) -> None:
    """Each bucket of the lake is what its changelog comes to below the offset that it holds.

    :param is_clean: rows do not say their bucket (``ANY``): the buckets of a partition are one.
    """
    partitions = {partition for partition, _ in logs}
    changed: dict[Bucket, dict[tuple[Any, ...], Row]] = {}
    if is_clean:
        changed = {place: {} for place in lake if place[0] in partitions}
    for bucket in sorted({*held, *(() if is_clean else lake)}):
        log = logs.get(bucket)
        if log is None:
            continue  # its partition was dropped: there is nothing left to compare
        place = (bucket[0], ANY) if is_clean else bucket
        changed.setdefault(place, {}).update(replayed(log, held.get(bucket, 0), key))
    for bucket, expected in changed.items():
        found: dict[tuple[Any, ...], Row] = {}
        for row in lake.get(bucket, []):
            name = tuple(row[column] for column in key)
            counts.doubled += name in found
            found[name] = row
        counts.missing += len(expected.keys() - found.keys())
        counts.foreign += len(found.keys() - expected.keys())
        counts.differing += sum(
            not _same(expected[name], found[name]) for name in expected.keys() & found.keys()
        )


def _same(expected: Row, found: Row) -> bool:
    """Values alike, and the offset that of the last change, or -1 where a snapshot brought it."""
    columns = [name for name in expected if name not in SYSTEM]
    return found.get("__offset", -1) in (-1, expected["__offset"]) and all(
        found[name] == expected[name] for name in columns
    )
