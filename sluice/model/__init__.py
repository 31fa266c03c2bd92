"""Frozen value types that all packages share: tables, types, claims, statuses, leases."""

from sluice.model.callers import NOBODY, Caller
from sluice.model.changes import ChangeType
from sluice.model.leases import BucketSnapshot, LeasedTable, LeaseInfo
from sluice.model.offsets import EARLIEST, offsets_from_text, offsets_to_text
from sluice.model.paths import Bucketed, Partition, TableBucket, TablePath, bucket_count_in
from sluice.model.reason import Reason
from sluice.model.round_record import TieringRound
from sluice.model.servers import ServerInfo
from sluice.model.table import (
    CHANGE_TYPE,
    COMMIT_TIMESTAMP,
    LOG_OFFSET,
    AggFunction,
    Column,
    Schema,
    TableDescriptor,
    TableInfo,
)
from sluice.model.tiering import Claim, KeptStatus, LakeSnapshotInfo, TieringStatus
from sluice.model.types import DataType, RowField, TypeRoot

__all__ = [
    "CHANGE_TYPE",
    "COMMIT_TIMESTAMP",
    "EARLIEST",
    "LOG_OFFSET",
    "NOBODY",
    "AggFunction",
    "BucketSnapshot",
    "Bucketed",
    "Caller",
    "ChangeType",
    "Claim",
    "Column",
    "DataType",
    "KeptStatus",
    "LakeSnapshotInfo",
    "LeaseInfo",
    "LeasedTable",
    "Partition",
    "Reason",
    "RowField",
    "Schema",
    "ServerInfo",
    "TableBucket",
    "TableDescriptor",
    "TableInfo",
    "TablePath",
    "TieringRound",
    "TieringStatus",
    "TypeRoot",
    "bucket_count_in",
    "offsets_from_text",
    "offsets_to_text",
]
