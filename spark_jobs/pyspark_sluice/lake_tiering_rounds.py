"""``sys.lake_tiering_rounds``: one row for each kept round of each lake table of a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark_sluice.system_table import SystemTable

if TYPE_CHECKING:
    from sluice.client import Client
    from sluice.model import TablePath, TieringRound


class LakeTieringRounds(SystemTable):
    """``USING lake_tiering_rounds``, in a session that has registered it."""

    NAME = "lake_tiering_rounds"

    @classmethod
    def recorded(cls) -> type[TieringRound]:
        from sluice.model import TieringRound

        return TieringRound

    @classmethod
    def records(
        cls, client: Client, path: TablePath | None
    ) -> Sequence[tuple[TablePath, TieringRound]]:
        from sluice.model.round_record import ROUNDS_KEPT

        if path is None:
            return client.statuses.histories()
        return [(path, each) for each in client.statuses.history(path, ROUNDS_KEPT)]
