"""Buckets of an embedded server that refuse calls because its disk is damaged."""

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
    """Why a bucket refuses reads and writes."""

    path: TablePath
    bucket: TableBucket
    start: int | None
    """The first damaged offset of its log; None: its key-value store is lost."""
    stop: int | None
    """The first offset after them; None: nobody knows it, so they cannot be given up."""
    refused: str
    """What is damaged, and what to do."""


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
            reply = self._connection.ask_coordinator(apis.LIST_DAMAGE, request)
            return [_damage(entry) for entry in reply.damage]
        return []

    def skip(self, damage: Damage) -> None:
        """Lets a bucket go on without the damaged offsets of its log, which are lost from then on.

        :raises LogOffsetOutOfRange: the bucket does not refuse calls for them, or nobody knows
            where they end.
        """
        if damage.start is None or damage.stop is None:
            raise LogOffsetOutOfRange(damage.refused)
        request = pb.SkipDamageRequest(
            **bucket_ids(damage.bucket), start_offset=damage.start, end_offset=damage.stop
        )
        self._connection.ask_coordinator(apis.SKIP_DAMAGE, request)


def _damage(entry: pb.PbDamage) -> Damage:
    return Damage(
        path_of(entry.table_path),
        bucket_in(entry),
        entry.start_offset if entry.HasField("start_offset") else None,
        entry.end_offset if entry.HasField("end_offset") else None,
        entry.refused,
    )
