"""Table paths as messages and back."""

from __future__ import annotations

from sluice.model import TablePath
from sluice.wire import fluss_api_pb2 as pb


def table_path(path: TablePath) -> pb.PbTablePath:
    return pb.PbTablePath(database_name=path.database, table_name=path.table)


def path_of(message: pb.PbTablePath) -> TablePath:
    return TablePath(message.database_name, message.table_name)
