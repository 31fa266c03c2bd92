"""Offsets of producers: what a job had written of its tables when it began.

A job that starts again undoes what it wrote behind them. The first registration of a producer
counts until it expires, so that all of the job's processes see the same offsets.
See docs/fluss/messages.md#offsets-of-producers
"""

from __future__ import annotations

from collections.abc import Mapping
from sqlite3 import Connection

from sluice.clock import Clock
from sluice.errors import InvalidProducerId
from sluice.model.paths import is_name
from sluice.server.storage.database import Database
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import Api
from sluice.wire.listeners.handlers import Handler

TTL_MS = 24 * 60 * 60 * 1000
"""Fluss's default of coordinator.producer-offsets.ttl."""
PRODUCERS_MAX = 10_000
_TIME_MAX = 2**63 - 1
_CREATED, _ALREADY_EXISTS = 0, 1


class ProducerOffsets:
    """Handlers of these calls, and what they store in the metadata file."""

    def __init__(self, database: Database, clock: Clock) -> None:
        """:raises StorageError: the file cannot be written."""
        self._database = database
        self._clock = clock
        columns = {
            "producer_id": "TEXT NOT NULL PRIMARY KEY",
            "expires_ms": "INTEGER NOT NULL",
            "offsets": "BLOB NOT NULL",
        }
        database.ensure_table("producer_offsets", columns)

    def handlers(self) -> Mapping[Api, Handler]:
        return {
            apis.REGISTER_PRODUCER_OFFSETS: self.register,
            apis.GET_PRODUCER_OFFSETS: self.get,
            apis.DELETE_PRODUCER_OFFSETS: self.delete,
        }

    def register(
        self, request: pb.RegisterProducerOffsetsRequest
    ) -> pb.RegisterProducerOffsetsResponse:
        """Stores the offsets, unless the producer has some that have not expired.

        :raises InvalidProducerId: the id is no name, or there are too many producers.
        """
        producer_id, now_ms = _checked(request.producer_id), self._clock.now_ms()
        ttl_ms = request.ttl_ms if request.HasField("ttl_ms") else TTL_MS
        stored = pb.GetProducerOffsetsResponse(table_offsets=_by_bucket(request))
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM producer_offsets WHERE expires_ms < ?", (now_ms,))
            if _is_there(connection, producer_id):
                return pb.RegisterProducerOffsetsResponse(result=_ALREADY_EXISTS)
            _check_count(connection, producer_id)
            expires_ms = min(now_ms + ttl_ms, _TIME_MAX)
            connection.execute(
                "INSERT INTO producer_offsets VALUES (?, ?, ?)",
                (producer_id, expires_ms, stored.SerializeToString()),
            )
        return pb.RegisterProducerOffsetsResponse(result=_CREATED)

    def get(self, request: pb.GetProducerOffsetsRequest) -> pb.GetProducerOffsetsResponse:
        """Returns the offsets; an empty message if there are none, as Fluss does."""
        producer_id = _checked(request.producer_id)
        found = self._database.query(
            "SELECT expires_ms, offsets FROM producer_offsets"
            " WHERE producer_id = ? AND expires_ms >= ?",
            producer_id,
            self._clock.now_ms(),
        )
        if not found:
            return pb.GetProducerOffsetsResponse()
        [(expires_ms, stored)] = found
        response = pb.GetProducerOffsetsResponse.FromString(stored)
        response.producer_id, response.expiration_time = producer_id, expires_ms
        return response

    def delete(self, request: pb.DeleteProducerOffsetsRequest) -> pb.DeleteProducerOffsetsResponse:
        """Deletes the offsets, if there are any."""
        producer_id = _checked(request.producer_id)
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM producer_offsets WHERE producer_id = ?", (producer_id,))
        return pb.DeleteProducerOffsetsResponse()


def _checked(producer_id: str) -> str:
    if not is_name(producer_id):
        raise InvalidProducerId(
            f"producer id {producer_id!r}: use 1 to 200 letters, digits, '_' and '-'"
        )
    return producer_id


def _is_there(connection: Connection, producer_id: str) -> bool:
    query = "SELECT 1 FROM producer_offsets WHERE producer_id = ?"
    return connection.execute(query, (producer_id,)).fetchone() is not None


def _check_count(connection: Connection, producer_id: str) -> None:
    [count] = connection.execute("SELECT count(*) FROM producer_offsets").fetchone()
    if count >= PRODUCERS_MAX:
        raise InvalidProducerId(
            f"producer id {producer_id!r}: the server keeps the offsets of {count} producers, which"
            " is the maximum: delete those of producers that have ended (deleteProducerOffsets)"
        )


def _by_bucket(request: pb.RegisterProducerOffsetsRequest) -> list[pb.PbProducerTableOffsets]:
    """The offsets, each table and bucket once: of several, the last one counts, as in Fluss."""
    tables: dict[int, dict[tuple[int | None, int], pb.PbBucketOffset]] = {}
    for table in request.table_offsets:
        buckets = tables.setdefault(table.table_id, {})
        for one in table.bucket_offsets:
            partition_id = one.partition_id if one.HasField("partition_id") else None
            buckets[partition_id, one.bucket_id] = pb.PbBucketOffset(
                partition_id=partition_id,
                bucket_id=one.bucket_id,
                log_end_offset=one.log_end_offset,
            )
    return [
        pb.PbProducerTableOffsets(table_id=table_id, bucket_offsets=buckets.values())
        for table_id, buckets in tables.items()
    ]
