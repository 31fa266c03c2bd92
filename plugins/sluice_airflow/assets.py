"""The lake tables as Airflow assets: downstream DAGs are scheduled by them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, urlunsplit

from airflow.sdk import Asset, AssetAlias

from sluice.errors import ConfigurationError, SluiceError
from sluice.model import TablePath
from sluice_airflow.config.settings import connection_id

if TYPE_CHECKING:
    from airflow.sdk import Context

    from sluice_airflow.outcomes.verdict import Verdict

LANDED = frozenset({"committed", "already_landed"})


def lake_table(table: str, fluss_conn_id: str | None = None) -> Asset:
    """Returns the asset of a lake table, for the ``schedule`` of a DAG.

    An event of it means that a run has committed a lake snapshot. Airflow may start one run for
    several events. The extra of an event has ``table``, ``lake_snapshot_id``, ``rows`` (rows
    written), ``offsets_sum`` (sum of the end offsets of all buckets) and ``tiering_epoch``.

    :param table: DATABASE.TABLE.
    :param fluss_conn_id: the connection with which the table is tiered. None: that of the option
        ``connection`` of the section [sluice].
    :raises ConfigurationError: the name of the table has another form.
    """
    try:
        path = TablePath.parse(table)
    except SluiceError as error:
        raise ConfigurationError(f"lake_table({table!r}): {error}") from error
    name = connection_id(fluss_conn_id)
    return Asset(name=f"{name}/{path}", uri=f"sluice://{name}/{path.database}/{path.table}")


def check_uri(parts: SplitResult) -> SplitResult:
    """Refuses an asset URI that names no lake table. Airflow calls it for each ``sluice:`` URI.

    :raises ValueError: the URI has another form.
    """
    names = parts.path.strip("/").split("/")
    if not parts.netloc or len(names) != 2 or not all(names) or parts.query:
        raise ValueError(
            f"asset URI {urlunsplit(parts)!r}: expected sluice://CONNECTION_ID/DATABASE/TABLE;"
            " lake_table() of sluice_airflow.assets makes it"
        )
    return parts


def lake_tables(fluss_conn_id: str | None = None) -> AssetAlias:
    """Returns the alias of all lake tables of a connection: each event of a table is one of it."""
    return AssetAlias(f"{connection_id(fluss_conn_id)}/*")


def add_events(context: Context, fluss_conn_id: str, verdicts: Iterable[Verdict]) -> None:
    """Adds an event for each table of which the lake has a new snapshot.

    :param context: of a task that has :func:`lake_tables` among its outlets.
    """
    alias = lake_tables(fluss_conn_id)
    for verdict in verdicts:
        if has_landed(verdict):
            asset = lake_table(verdict.table, fluss_conn_id)
            context["outlet_events"][alias].add(asset, extra=event_extra(verdict))


def has_landed(verdict: Verdict) -> bool:
    """Whether the round has committed rows, all of them or those of some buckets."""
    is_new = verdict.outcome in LANDED or verdict.rows > 0
    return verdict.lake_snapshot_id is not None and is_new


def event_extra(verdict: Verdict) -> dict[str, Any]:
    """Returns the extra of the event: see :func:`lake_table`."""
    return {
        "table": verdict.table,
        "lake_snapshot_id": verdict.lake_snapshot_id,
        "rows": verdict.rows,
        "offsets_sum": verdict.offsets_sum,
        "tiering_epoch": verdict.tiering_epoch,
    }
