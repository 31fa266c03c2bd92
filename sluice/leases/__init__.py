"""The rules of KV snapshot leases, without I/O, clock or lock."""

from sluice.leases.leases import Acquired, Leases, counted_on
from sluice.leases.limits import (
    BUCKETS_PER_CALL_MAX,
    DURATION_MAX_MS,
    DURATION_MIN_MS,
    HELD_MAX,
    LEASES_MAX,
    RESTART_GRACE_MS,
    check_duration,
    check_lease_id,
)
from sluice.leases.types import (
    PLAIN,
    BucketKey,
    Change,
    Lease,
    SnapshotsByBucket,
    SnapshotsByTable,
    bucket_of,
    key_of,
)

__all__ = [
    "BUCKETS_PER_CALL_MAX",
    "DURATION_MAX_MS",
    "DURATION_MIN_MS",
    "HELD_MAX",
    "LEASES_MAX",
    "PLAIN",
    "RESTART_GRACE_MS",
    "Acquired",
    "BucketKey",
    "Change",
    "Lease",
    "Leases",
    "SnapshotsByBucket",
    "SnapshotsByTable",
    "bucket_of",
    "check_duration",
    "check_lease_id",
    "counted_on",
    "key_of",
]
