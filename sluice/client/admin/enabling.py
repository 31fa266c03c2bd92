"""How a user enables tiering of a table."""

from __future__ import annotations

from sluice.model import TablePath


def how_to_enable(path: TablePath) -> str:
    """The statements that enable tiering of a table."""
    return (
        f"in Flink SQL, ALTER TABLE {path} SET ('table.datalake.enabled' = 'true'); in Python,"
        f" client.admin.set_options(TablePath({path.database!r}, {path.table!r}),"
        " {'table.datalake.enabled': 'true'})"
    )
