"""Which HTTP status an error of the cluster has."""

from __future__ import annotations

from sluice import errors as e

_BY_STATUS: dict[int, tuple[type[e.SluiceError], ...]] = {
    403: (e.AuthorizationError, e.AuthenticateError, e.RetriableAuthenticateError),
    404: (
        e.TableNotExist,
        e.DatabaseNotExist,
        e.PartitionNotExists,
        e.SchemaNotExist,
        e.UnknownTableOrBucket,
        e.LeaseNotExist,
        e.KvSnapshotNotExist,
        e.LakeSnapshotNotExist,
        e.LakeTableMissing,
    ),
    409: (
        e.TableNotDue,
        e.TablePaused,
        e.ClaimLost,
        e.FencedTieringEpoch,
        e.InvalidTable,
        e.NonPrimaryKeyTable,
        e.LakeStorageNotConfigured,
    ),
    422: (e.InvalidDatabase, e.InvalidLease, e.PartitionSpecInvalid, e.InvalidConfig),
    501: (e.UnsupportedVersion,),
    504: (e.RequestTimeOut,),
}
"""All other errors have 502: the cluster, or the way to it, has failed."""

STATUSES = (*_BY_STATUS, 502)


def status_of(error: Exception) -> int:
    """The HTTP status of an error."""
    return next((status for status, kinds in _BY_STATUS.items() if isinstance(error, kinds)), 502)
