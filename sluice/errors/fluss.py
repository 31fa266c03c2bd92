"""One exception class per Fluss error code (docs/fluss/rpc.md#error-codes)."""

from __future__ import annotations

from typing import ClassVar

from sluice.errors.base import SluiceError


class FlussError(SluiceError):
    """An answer with one of Fluss's error codes."""

    code: ClassVar[int] = -1


class UnknownServerError(FlussError):
    """The server failed in a way that has no code of its own."""

    code = -1


class NetworkError(FlussError):
    """The server cannot be reached, or the connection broke."""

    # Details: ``sent=False`` if the request never left; ``no_listener`` if there is no server:
    # "refused" for a connection, "unknown host" for a name without an address.

    code = 1
    retryable = True


class UnsupportedVersion(FlussError):
    """The server does not offer this call, or not in this version."""

    code = 2


class CorruptMessage(FlussError):
    """A message that cannot be parsed."""

    code = 3
    retryable = True


class DatabaseNotExist(FlussError):
    """No database of that name."""

    code = 4


class DatabaseNotEmpty(FlussError):
    """The database still holds tables."""

    code = 5


class DatabaseAlreadyExist(FlussError):
    """A database of that name exists."""

    code = 6


class TableNotExist(FlussError):
    """No table of that name or id."""

    code = 7


class TableAlreadyExist(FlussError):
    """A table of that name exists."""

    code = 8


class SchemaNotExist(FlussError):
    """The table has no schema of that id."""

    code = 9
    retryable = True


class LogStorageError(FlussError):
    """The log could not be read or written."""

    code = 10
    retryable = True


class KvStorageError(FlussError):
    """The KV store could not be read or written."""

    code = 11
    retryable = True


class NotLeaderOrFollower(FlussError):
    """This server does not lead the bucket."""

    code = 12
    retryable = True


class RecordTooLarge(FlussError):
    """A batch or message above the size limit."""

    code = 13


class CorruptRecord(FlussError):
    """Bytes that fail their checksum or do not follow the format."""

    code = 14
    retryable = True


class InvalidTable(FlussError):
    """A table descriptor that breaks a rule."""

    code = 15


class InvalidDatabase(FlussError):
    """A database name or descriptor that breaks a rule."""

    code = 16


class InvalidReplicationFactor(FlussError):
    """Invalid replication factor."""

    code = 17


class InvalidRequiredAcks(FlussError):
    """acks must be 0, 1 or -1."""

    code = 18


class LogOffsetOutOfRange(FlussError):
    """An offset below the start or above the end of the log."""

    code = 19


class NonPrimaryKeyTable(FlussError):
    """The call is for primary-key tables only."""

    code = 20


class UnknownTableOrBucket(FlussError):
    """The server has no such table or bucket."""

    code = 21
    retryable = True


class InvalidUpdateVersion(FlussError):
    """Invalid update version."""

    code = 22


class InvalidCoordinator(FlussError):
    """The coordinator epoch is not the current one."""

    code = 23


class FencedLeaderEpoch(FlussError):
    """Fenced leader epoch."""

    code = 24


class RequestTimeOut(FlussError):
    """No answer in time."""

    code = 25
    retryable = True


class StorageError(FlussError):
    """The storage below the server failed."""

    code = 26
    retryable = True


class OperationNotAttempted(FlussError):
    """Operation not attempted."""

    code = 27


class NotEnoughReplicasAfterAppend(FlussError):
    """Not enough replicas after append."""

    code = 28
    retryable = True


class NotEnoughReplicas(FlussError):
    """Not enough replicas."""

    code = 29
    retryable = True


class SecurityTokenError(FlussError):
    """Security token error."""

    code = 30


class OutOfOrderSequence(FlussError):
    """A writer skipped a batch sequence."""

    code = 31


class DuplicateSequence(FlussError):
    """A writer sent a batch sequence again that was stored long ago."""

    code = 32


class UnknownWriterId(FlussError):
    """A writer id that no server has issued."""

    code = 33


class InvalidColumnProjection(FlussError):
    """A projection that the table cannot answer."""

    code = 34


class InvalidTargetColumn(FlussError):
    """Invalid target column."""

    code = 35


class PartitionNotExists(FlussError):
    """No such partition."""

    code = 36


class TableNotPartitioned(FlussError):
    """The table has no partitions."""

    code = 37


class InvalidTimestamp(FlussError):
    """A timestamp in the future."""

    code = 38


class InvalidConfig(FlussError):
    """An option with a value that is not allowed."""

    code = 39


class LakeStorageNotConfigured(FlussError):
    """Lake storage not configured."""

    code = 40


class KvSnapshotNotExist(FlussError):
    """No such KV snapshot."""

    code = 41


class PartitionAlreadyExists(FlussError):
    """The partition exists."""

    code = 42


class PartitionSpecInvalid(FlussError):
    """A partition spec that does not fit the table."""

    code = 43


class LeaderNotAvailable(FlussError):
    """No server leads the bucket now."""

    code = 44
    retryable = True


class PartitionMaxNum(FlussError):
    """Too many partitions."""

    code = 45


class AuthenticateError(FlussError):
    """Authenticate error."""

    code = 46


class SecurityDisabled(FlussError):
    """Security disabled."""

    code = 47


class AuthorizationError(FlussError):
    """Authorization error."""

    code = 48


class BucketMaxNum(FlussError):
    """Too many buckets."""

    code = 49


class FencedTieringEpoch(FlussError):
    """The tiering epoch is not the current one: another round has started."""

    code = 50


class RetriableAuthenticateError(FlussError):
    """Retriable authenticate error."""

    code = 51


class InvalidServerRackInfo(FlussError):
    """Invalid server rack info."""

    code = 52


class LakeSnapshotNotExist(FlussError):
    """No lake snapshot is known for the table."""

    code = 53


class LakeTableAlreadyExist(FlussError):
    """The lake already has another table of that name."""

    code = 54


class IneligibleReplica(FlussError):
    """Ineligible replica."""

    code = 55


class InvalidAlterTable(FlussError):
    """An alteration that is not allowed."""

    code = 56


class DeletionDisabled(FlussError):
    """Deletion disabled."""

    code = 57


class ServerNotExist(FlussError):
    """No such server."""

    code = 58


class ServerTagAlreadyExist(FlussError):
    """The server tag exists."""

    code = 59


class ServerTagNotExist(FlussError):
    """No such server tag."""

    code = 60


class RebalanceFailure(FlussError):
    """Rebalance failure."""

    code = 61


class NoRebalanceInProgress(FlussError):
    """No rebalance in progress."""

    code = 62


class InvalidProducerId(FlussError):
    """Invalid producer id."""

    code = 63


class ClusterConfigError(FlussError):
    """Cluster config error."""

    code = 64


class NotCoordinatorLeader(FlussError):
    """This coordinator does not lead."""

    code = 65


class ScannerExpired(FlussError):
    """Scanner expired."""

    code = 66


class UnknownScannerId(FlussError):
    """Unknown scanner id."""

    code = 67


class InvalidScanRequest(FlussError):
    """Invalid scan request."""

    code = 68


class TooManyScanners(FlussError):
    """Too many scanners."""

    code = 69


class DiskWriteLocked(FlussError):
    """Disk write locked."""

    code = 70
    retryable = True


class InsufficientKvLeaderReplicaCapacity(FlussError):
    """Insufficient kv leader replica capacity."""

    code = 71


class StorageBackpressure(FlussError):
    """Storage backpressure."""

    code = 72
    retryable = True


class HistoricalPartitionThrottled(FlussError):
    """Historical partition throttled."""

    code = 73
    retryable = True


class LeaseNotExist(FlussError):
    """No KV snapshot lease of that id: it was dropped, has expired or never existed."""

    code = 1001  # Sluice's own: Fluss has no such code, and its client reads this one as -1


class InvalidLease(FlussError):
    """A KV snapshot lease with an invalid id or duration, or too many buckets."""

    code = 1002  # Sluice's own, as above


class TlsError(NetworkError):
    """Client and server cannot agree on TLS: every attempt fails until a setting changes."""

    retryable = False


class WrongProtocol(NetworkError):
    """The port speaks another protocol than the scheme of its address; the message names both."""

    retryable = False


BY_CODE: dict[int, type[FlussError]] = {cls.code: cls for cls in FlussError.__subclasses__()}
"""Fluss's error code -> exception class; an unknown code is UnknownServerError (-1)."""


def from_code(code: int, message: str = "") -> FlussError:
    """The exception of a Fluss error code; without a text, the class's docstring is the text."""
    cls = BY_CODE.get(code, UnknownServerError)
    return cls(message if message.strip() else f"{cls.__doc__} (Fluss error {code})")


def code_of(error: BaseException) -> int:
    """The Fluss error code of an exception; -1 for any other exception."""
    return error.code if isinstance(error, FlussError) else UnknownServerError.code
