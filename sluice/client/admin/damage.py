"""What the disk of an embedded server has damaged, and how a store goes on without it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from sluice.client.connection.connection import Connection
from sluice.errors import LogOffsetOutOfRange, UnsupportedVersion
from sluice.model import TableBucket, TablePath
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.messages.table_paths import bucket_ids, bucket_in, path_of, table_path


@dataclass(frozen=True, slots=True)
class Damage:
    """A damaged range of a bucket's log, or a key-value store that refuses calls, or both."""

    path: TablePath
    bucket: TableBucket
    start: int | None
    """The first damaged offset; None: the damage has no offsets."""
    stop: int | None
    """The first offset after them."""
    place: str
    """Where the bytes are."""
    refused: str
    """Why the bucket's key-value store refuses calls; empty if it does not."""

    def __str__(self) -> str:
        """What is wrong, and what to do."""
        if self.refused or self.start is None or self.stop is None:
            return self.refused
        return (
            f"offsets {self.start} to {self.stop - 1} are damaged on the server's disk"
            f" ({self.place}). Restore the log from a backup while the server is stopped, or, if a"
            f" round fails at them: `sluice repair {self.path} --skip"
            f" {self.bucket.name}:{self.start}`"
        )


class DamageClient:
    """The calls on damage; safe for use by many threads."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def list(self, path: TablePath | None = None) -> list[Damage]:
        """Returns what the server knows to be damaged; none if it is an Apache Fluss cluster.

        A server finds damage when it starts or reads, so there may be more.

        :raises TableNotExist: the table does not exist.
        """
        request = pb.ListDamageRequest()
        if path is not None:
            request.table_path.CopyFrom(table_path(path))
        with suppress(UnsupportedVersion):
            reply = self._connection.call_coordinator(apis.LIST_DAMAGE, request, lambda one: one)
            return [_damage(entry) for entry in reply.damage]
        return []

    def skip(self, damage: Damage) -> None:
        """Lets a key-value store go on without the changes of a range that it refuses calls for.

        :raises LogOffsetOutOfRange: no key-value store needs this range.
        :raises CorruptRecord: the store refuses calls for another reason.
        """
        if not damage.refused or damage.start is None or damage.stop is None:
            raise LogOffsetOutOfRange(
                f"table {damage.path}, bucket {damage.bucket.name}: no key-value store refuses"
                " calls for a damaged range there"
            )
        request = pb.SkipDamageRequest(
            **bucket_ids(damage.bucket), start_offset=damage.start, end_offset=damage.stop
        )
        self._connection.call_coordinator(apis.SKIP_DAMAGE, request, lambda reply: reply)


def _damage(entry: pb.PbDamage) -> Damage:
    has_offsets = entry.HasField("start_offset") and entry.HasField("end_offset")
    return Damage(
        path_of(entry.table_path),
        bucket_in(entry),
        entry.start_offset if has_offsets else None,
        entry.end_offset if has_offsets else None,
        entry.place,
        entry.refused,
    )
