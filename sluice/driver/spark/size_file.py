"""Writes the size file of a round, which extends the time limit of its tier task."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from sluice.client import Client
from sluice.model import BucketSnapshot, TablePath
from sluice.rounds.records.copy_size import CopySize, log_seconds
from sluice.rounds.records.json_files import write_json
from sluice.rounds.values.reasons import reason_of
from sluice.rounds.values.types import Split, StartMode

_LOG = logging.getLogger(__name__)


def copy_size(client: Client, splits: Sequence[Split]) -> CopySize:
    """The size of the KV snapshots and scans with which these splits begin, and of their logs.

    Rows of data files that they rewrite count as rows of logs: the round's limit ends both.

    A snapshot without a known size counts like a scan: a bucket has no more rows than offsets.
    """
    first = [(split, split.keyed) for split in splits if split.keyed is not None]
    scanned = {s.bucket: s.weight for s, keyed in first if keyed.start_mode is StartMode.SCAN}
    snapshots = []
    for split, keyed in first:
        if keyed.start_mode is StartMode.KV_SNAPSHOT and keyed.snapshot_id is not None:
            snapshots.append(BucketSnapshot(split.bucket, keyed.snapshot_id, split.start_offset))
            scanned[split.bucket] = split.weight
    sizes = client.kv_snapshot_sizes(snapshots) if snapshots else {}
    rows = sum(weight for bucket, weight in scanned.items() if bucket not in sizes)
    limits = [split.limit.round_ms for split in splits if split.limit is not None]
    of_logs = sum(split.stop_offset - max(0, split.start_offset) for split in splits)
    of_logs += sum(split.compaction.rows for split in splits if split.compaction is not None)
    return CopySize(sum(sizes.values()), rows, log_seconds(of_logs, max(limits, default=0)))


def write_size(client: Client, table: TablePath, splits: Sequence[Split], uri: str) -> None:
    """Writes the size file, unless the round copies only a little from logs.

    The file is optional: an error is logged, and the round continues.
    """
    try:
        size = copy_size(client, splits)
        if not size.seconds:
            return
        _LOG.info("%s: the copy may take %s", table, size)
        write_json(uri, size.to_json())
    except Exception as error:  # libraries of object stores have errors of their own
        _LOG.warning("cannot write %s: %s", uri, reason_of(error))
