"""Projects batches of one table to the columns that a fetch requests."""

from __future__ import annotations

from sluice.errors import InvalidColumnProjection
from sluice.formats.log.batch import iter_batches
from sluice.formats.log.log_format import LOG_FORMAT, LogFormat
from sluice.formats.log.projection import check_positions, project, project_evolved, projection
from sluice.server.tablet.buckets.ports import HostedTable
from sluice.server.tablet.buckets.schemas import schema_of


class Projector:
    """Projects batches to columns, given by their positions in the table's newest schema."""

    def __init__(self, table: HostedTable, positions: tuple[int, ...]) -> None:
        """:raises InvalidColumnProjection: the table does not have such positions, or its log
        stores rows, not columns.
        """
        log_format = LogFormat.of(table.info.descriptor.properties)
        if not log_format.is_arrow:
            raise InvalidColumnProjection(
                f"table {table.info.path} has {LOG_FORMAT} = {log_format.name}: only ARROW can be"
                " projected to columns: fetch complete rows"
            )
        self._table = table
        self._positions = positions
        self._newest = table.info.descriptor.schema
        check_positions(positions, self._newest)

    def project(self, records: memoryview) -> bytes:
        """Returns complete batches with only those columns.

        :raises CorruptRecord: a batch does not match its schema.
        """
        parts: list[bytes | memoryview] = []
        for header, view in iter_batches(records):
            written = schema_of(self._table, header)
            if self._positions[-1] < len(written.columns):
                parts += project(view, header, projection(written, self._positions))
            else:
                newest_id = self._table.info.schema_id
                parts.append(
                    project_evolved(view, header, written, self._newest, newest_id, self._positions)
                )
        return b"".join(parts)
