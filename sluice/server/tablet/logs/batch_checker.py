"""Checks batches of clients before they are stored, with bounded memory."""

from __future__ import annotations

import threading
from contextlib import nullcontext

from sluice.errors import RecordTooLarge
from sluice.formats.log.batch import MAX_UNCOMPRESSED, LogBatchHeader
from sluice.formats.log.checks import CHECKS
from sluice.formats.log.log_format import LogFormat
from sluice.server.tablet.buckets.ports import HostedTable
from sluice.server.tablet.buckets.schemas import schema_of

_FACTOR = 4
"""A batch may have so many times the largest request, uncompressed."""

LARGE_BYTES = 8 * 1024 * 1024
"""Batches that are larger uncompressed are checked one after the other."""


class BatchChecker:
    """Checks batches of log tables. Safe for use by many threads.

    Memory: one batch of ``bytes_max``, and ``LARGE_BYTES`` for each further thread.
    """

    def __init__(self, max_message_bytes: int) -> None:
        self.bytes_max = min(_FACTOR * max_message_bytes, MAX_UNCOMPRESSED)
        self._large = threading.Lock()

    def check(self, table: HostedTable, header: LogBatchHeader, records: bytes) -> None:
        """Checks that every reader of the table can decode the batch.

        :raises RecordTooLarge: it may have more bytes uncompressed than the server allows.
        :raises CorruptRecord: it cannot be decoded, or breaks a rule of its schema.
        """
        check = CHECKS[LogFormat.of(table.info.descriptor.properties).name]
        schema = schema_of(table, header)
        size = check.declared_bytes(records, header, schema)
        if size > self.bytes_max:
            raise RecordTooLarge(
                f"the batch has {size:,} bytes uncompressed, more than the limit of"
                f" {self.bytes_max:,}: send smaller batches"
            )
        with self._large if size > LARGE_BYTES else nullcontext():
            check.check(records, header, schema, size)
