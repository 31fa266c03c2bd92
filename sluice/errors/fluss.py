"""One exception class per Fluss error code (docs/fluss/rpc.md#error-codes)."""

from __future__ import annotations

from typing import Any, ClassVar

from sluice.errors.base import SluiceError


class FlussError(SluiceError):
    """An answer with one of Fluss's error codes."""

    code: ClassVar[int] = -1

    def __init_subclass__(cls, code: int | None = None, retryable: bool | None = None) -> None:
        super().__init_subclass__()
        cls.code = cls.code if code is None else code
        cls.retryable = cls.retryable if retryable is None else retryable


class UnknownServerError(FlussError, code=-1):
    """The server failed in a way that has no code of its own."""


class NetworkError(FlussError, code=1, retryable=True):
    """The server cannot be reached, or the connection broke."""

    # Details: ``sent=False`` if the request never left; ``no_listener`` if there is no server:
    # "refused" for a connection, "unknown host" for a name without an address.


class UnsupportedVersion(FlussError, code=2):
    """The server does not offer this call, or not in this version."""


class CorruptMessage(FlussError, code=3, retryable=True):
    """A message that cannot be parsed."""


class DatabaseNotExist(FlussError, code=4):
    """No database of that name."""


class DatabaseNotEmpty(FlussError, code=5):
    """The database still holds tables."""


class DatabaseAlreadyExist(FlussError, code=6):
    """A database of that name exists."""


class TableNotExist(FlussError, code=7):
    """No table of that name or id."""


class TableAlreadyExist(FlussError, code=8):
    """A table of that name exists."""


class SchemaNotExist(FlussError, code=9, retryable=True):
    """The table has no schema of that id."""


class LogStorageError(FlussError, code=10, retryable=True):
    """The log could not be read or written."""


class KvStorageError(FlussError, code=11, retryable=True):
    """The KV store could not be read or written."""


class NotLeaderOrFollower(FlussError, code=12, retryable=True):
    """This server does not lead the bucket."""


class RecordTooLarge(FlussError, code=13):
    """A batch or message above the size limit."""


def unreadable_text(offset: int, problem: str) -> str:
    """States which batch of a log cannot be read and why."""
    return f"the batch at offset {offset} cannot be read: {problem}"


class CorruptRecord(FlussError, code=14, retryable=True):
    """Bytes that fail their checksum or do not follow the format."""

    @classmethod
    def of_batch(cls, place: str, offset: int, problem: str, **details: Any) -> CorruptRecord:
        """The error of a batch in a log.

        :param place: its bucket in words. :param offset: its base offset.
        """
        text = f"{place}: {unreadable_text(offset, problem)}"
        return cls(text, base_offset=offset, problem=problem, **details)


class InvalidTable(FlussError, code=15):
    """A table descriptor that breaks a rule."""


class InvalidDatabase(FlussError, code=16):
    """A database name or descriptor that breaks a rule."""


class InvalidReplicationFactor(FlussError, code=17):
    """Invalid replication factor."""


class InvalidRequiredAcks(FlussError, code=18):
    """acks must be 0, 1 or -1."""


class LogOffsetOutOfRange(FlussError, code=19):
    """An offset below the start or above the end of the log."""


class NonPrimaryKeyTable(FlussError, code=20):
    """The call is for primary-key tables only."""


class UnknownTableOrBucket(FlussError, code=21, retryable=True):
    """The server has no such table or bucket."""


class InvalidUpdateVersion(FlussError, code=22):
    """Invalid update version."""


class InvalidCoordinator(FlussError, code=23):
    """The coordinator epoch is not the current one."""


class FencedLeaderEpoch(FlussError, code=24):
    """Fenced leader epoch."""


class RequestTimeOut(FlussError, code=25, retryable=True):
    """No answer in time."""


class StorageError(FlussError, code=26, retryable=True):
    """The storage below the server failed."""


class OperationNotAttempted(FlussError, code=27):
    """Operation not attempted."""


class NotEnoughReplicasAfterAppend(FlussError, code=28, retryable=True):
    """Not enough replicas after append."""


class NotEnoughReplicas(FlussError, code=29, retryable=True):
    """Not enough replicas."""


class SecurityTokenError(FlussError, code=30):
    """Security token error."""


class OutOfOrderSequence(FlussError, code=31):
    """A writer skipped a batch sequence."""


class DuplicateSequence(FlussError, code=32):
    """A writer sent a batch sequence again that was stored long ago."""


class UnknownWriterId(FlussError, code=33):
    """A writer id that no server has issued."""


class InvalidColumnProjection(FlussError, code=34):
    """A projection that the table cannot answer."""


class InvalidTargetColumn(FlussError, code=35):
    """Invalid target column."""


class PartitionNotExists(FlussError, code=36):
    """No such partition."""


class TableNotPartitioned(FlussError, code=37):
    """The table has no partitions."""


class InvalidTimestamp(FlussError, code=38):
    """A timestamp in the future."""


class InvalidConfig(FlussError, code=39):
    """An option with a value that is not allowed."""


class LakeStorageNotConfigured(FlussError, code=40):
    """Lake storage not configured."""


class KvSnapshotNotExist(FlussError, code=41):
    """No such KV snapshot."""


class PartitionAlreadyExists(FlussError, code=42):
    """The partition exists."""


class PartitionSpecInvalid(FlussError, code=43):
    """A partition spec that does not fit the table."""


class LeaderNotAvailable(FlussError, code=44, retryable=True):
    """No server leads the bucket now."""


class PartitionMaxNum(FlussError, code=45):
    """Too many partitions."""


class AuthenticateError(FlussError, code=46):
    """Authenticate error."""


class SecurityDisabled(FlussError, code=47):
    """Security disabled."""


class AuthorizationError(FlussError, code=48):
    """Authorization error."""


class BucketMaxNum(FlussError, code=49):
    """Too many buckets."""


class FencedTieringEpoch(FlussError, code=50):
    """The tiering epoch is not the current one: another round has started."""


class RetriableAuthenticateError(FlussError, code=51):
    """Retriable authenticate error."""


class InvalidServerRackInfo(FlussError, code=52):
    """Invalid server rack info."""


class LakeSnapshotNotExist(FlussError, code=53):
    """No lake snapshot is known for the table."""


class LakeTableAlreadyExist(FlussError, code=54):
    """The lake already has another table of that name."""


class IneligibleReplica(FlussError, code=55):
    """Ineligible replica."""


class InvalidAlterTable(FlussError, code=56):
    """An alteration that is not allowed."""


class DeletionDisabled(FlussError, code=57):
    """Deletion disabled."""


class ServerNotExist(FlussError, code=58):
    """No such server."""


class ServerTagAlreadyExist(FlussError, code=59):
    """The server tag exists."""


class ServerTagNotExist(FlussError, code=60):
    """No such server tag."""


class RebalanceFailure(FlussError, code=61):
    """Rebalance failure."""


class NoRebalanceInProgress(FlussError, code=62):
    """No rebalance in progress."""


class InvalidProducerId(FlussError, code=63):
    """Invalid producer id."""


class ClusterConfigError(FlussError, code=64):
    """Cluster config error."""


class NotCoordinatorLeader(FlussError, code=65):
    """This coordinator does not lead."""


class ScannerExpired(FlussError, code=66):
    """Scanner expired."""


class UnknownScannerId(FlussError, code=67):
    """Unknown scanner id."""


class InvalidScanRequest(FlussError, code=68):
    """Invalid scan request."""


class TooManyScanners(FlussError, code=69):
    """Too many scanners."""


class DiskWriteLocked(FlussError, code=70, retryable=True):
    """Disk write locked."""


class InsufficientKvLeaderReplicaCapacity(FlussError, code=71):
    """Insufficient kv leader replica capacity."""


class StorageBackpressure(FlussError, code=72, retryable=True):
    """Storage backpressure."""


class HistoricalPartitionThrottled(FlussError, code=73, retryable=True):
    """Historical partition throttled."""


class InvalidBucketRouting(FlussError, code=74):
    """The request names no bucket count of its table or partition, or another one."""


class LeaseNotExist(FlussError, code=1001):
    """No KV snapshot lease of that id: it was dropped, has expired or never existed."""

    # Sluice's own: Fluss has no such code, and its client reads this one as -1


class InvalidLease(FlussError, code=1002):
    """A KV snapshot lease with an invalid id or duration, or too many buckets."""

    # Sluice's own, as above


class TlsError(NetworkError, retryable=False):
    """Client and server cannot agree on TLS: every attempt fails until a setting changes."""


class WrongProtocol(NetworkError, retryable=False):
    """The port speaks another protocol than the scheme of its address; the message names both."""


BY_CODE: dict[int, type[FlussError]] = {cls.code: cls for cls in FlussError.__subclasses__()}
"""Fluss's error code -> exception class; an unknown code is UnknownServerError (-1)."""


def from_code(code: int, message: str = "") -> FlussError:
    """The exception of a Fluss error code; without a text, the class's docstring is the text."""
    cls = BY_CODE.get(code, UnknownServerError)
    return cls(message if message.strip() else f"{cls.__doc__} (Fluss error {code})")


def code_of(error: BaseException) -> int:
    """The Fluss error code of an exception; -1 for any other exception."""
    return error.code if isinstance(error, FlussError) else UnknownServerError.code
