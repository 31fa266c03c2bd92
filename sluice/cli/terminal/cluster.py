"""The cluster of a command: an address where nothing listens is reported within a second."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import click

from sluice.client.connection.reachability import require_listener
from sluice.config import ClientConfig
from sluice.did_you_mean import closest
from sluice.errors import (
    DatabaseNotExist,
    NetworkError,
    NonPrimaryKeyTable,
    SluiceError,
    TableNotExist,
)
from sluice.model import TablePath

if TYPE_CHECKING:
    from sluice.client import Client

ADDRESS_HINT = "give the cluster's address by --bootstrap or SLUICE_CLIENT_BOOTSTRAP"
SERVE_HINT = f"start a server with `sluice serve`, or {ADDRESS_HINT}"


def require_cluster(config: ClientConfig) -> None:
    """Checks that something listens at the cluster's address.

    :raises NetworkError: nothing does; says how to start a server or to give another address.
    """
    try:
        require_listener(config)
    except NetworkError as error:
        hint = SERVE_HINT if error.details.get("no_listener") == "refused" else ADDRESS_HINT
        raise NetworkError(f"{error.message}; {hint}", **error.details) from error


@contextmanager
def connect(config: ClientConfig) -> Iterator[Client]:
    """A client of the cluster, until the block ends.

    :raises NetworkError: as ``require_cluster``.
    """
    require_cluster(config)
    from sluice.client import connect as open_client  # loads Arrow, and takes as long as the check

    with suggested_names(config), open_client(config) as client:
        yield client


@contextmanager
def suggested_names(config: ClientConfig) -> Iterator[None]:
    """Errors about the command's table or database also name the most similar one."""
    try:
        yield
    except (DatabaseNotExist, TableNotExist) as error:
        if not hasattr(error, "__notes__") and (name := _similar_name(config)):
            error.message = f"{error.message.rstrip('.')}; did you mean {name!r}?"
        raise


@contextmanager
def replaced_advice(advice: str) -> Iterator[None]:
    """Errors about a log table name a command in place of a function of the client."""
    try:
        yield
    except NonPrimaryKeyTable as error:
        error.message = f"{error.message.partition(': ')[0]}: {advice}"
        raise


def _similar_name(config: ClientConfig) -> str | None:
    """An existing table or database that the command's argument may mean."""
    context = click.get_current_context(silent=True)
    given = context.params if context else {}
    table: TablePath | None = given.get("table")
    database = table.database if table else given.get("database")
    if database is None:
        return None
    from sluice.client import connect as open_client

    with suppress(SluiceError), open_client(config) as client:  # the first error is shown
        databases = client.admin.list_databases()
        meant = database if database in databases else closest(database, databases)
        if table is None or meant is None:
            return meant if meant != database else None
        tables = client.admin.list_tables(meant)
        name = table.table if table.table in tables else closest(table.table, tables)
        found = TablePath(meant, name) if name else table
        return str(found) if found != table else None
    return None
