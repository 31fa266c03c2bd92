"""``sys.lake_tiering_status``: one row for each lake table of a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark_sluice.system_table import SystemTable

if TYPE_CHECKING:
    from sluice.client import Client
    from sluice.model import TablePath, TieringStatus


class LakeTieringStatus(SystemTable):
    """``USING lake_tiering_status``."""

    NAME = "lake_tiering_status"

    @classmethod
    def recorded(cls) -> type[TieringStatus]:
        from sluice.model import TieringStatus

        return TieringStatus

    @classmethod
    def records(
        cls, client: Client, path: TablePath | None
    ) -> Sequence[tuple[TablePath, TieringStatus]]:
        return [(status.path, status) for status in client.statuses.list(path)]
