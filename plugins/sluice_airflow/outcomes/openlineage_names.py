"""OpenLineage's names of Fluss tables and of their lake tables. Imports neither Airflow nor Fluss.

A lake table is named as OpenLineage's Spark integration names it: by its location, with the
catalog's own name as a symlink. Only so do both meet in one graph. All of it comes from the options
of the connection, because no event may wait for a catalog.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

from sluice.masking import mask

ICEBERG = "iceberg."
DB_FOLDERS = ("hive", "glue")
"""Catalog types whose folder of a database is ``DATABASE.db``."""
PLAIN_FOLDERS = ("hadoop", "jdbc")
"""Catalog types whose folder of a database is named as the database."""
ONE_SCHEME = ("s3", "gs", "wasbs")
"""Object stores with several schemes: s3a://, s3n:// and s3:// name the same bucket."""


class DatasetName(NamedTuple):
    """What identifies a dataset in OpenLineage."""

    namespace: str
    name: str


class LakeName(NamedTuple):
    """The name of a lake table, and its other name in the catalog, if that is known."""

    dataset: DatasetName
    symlink: DatasetName | None


def fluss_name(bootstrap: str, table: str) -> DatasetName:
    """Names a Fluss table. The namespace has the scheme fluss, whatever the transport is.

    :param bootstrap: SCHEME://HOST:PORT of the coordinator.
    :param table: DATABASE.TABLE.
    """
    return DatasetName(f"fluss://{bootstrap.partition('://')[2]}", table)


def lake_name(datalake: Mapping[str, str], table: str) -> LakeName | None:
    """Names a lake table.

    :param datalake: the lake options of the connection, such as ``iceberg.warehouse``.
    :param table: DATABASE.TABLE.
    :returns: None if the options name neither a location nor a catalog. The driver may then have
        options of its own.
    """
    options = {k.removeprefix(ICEBERG): v for k, v in datalake.items() if k.startswith(ICEBERG)}
    kind = options.get("type", "" if "catalog-impl" in options else "hive").lower()
    if not options:
        return None
    in_catalog = _catalog_name(kind, options, table)
    location = _location(kind, options.get("warehouse", ""), table)
    if location:
        return LakeName(_of_location(urlsplit(location)), in_catalog)
    return None if in_catalog is None else LakeName(in_catalog, None)


def _location(kind: str, warehouse: str, table: str) -> str:
    """The folder in which the catalog creates the table; empty: only the catalog knows."""
    if not warehouse or mask(warehouse) != warehouse:  # its name must not show a secret
        return ""
    database, _, name = table.partition(".")
    if kind in PLAIN_FOLDERS:
        return f"{warehouse.rstrip('/')}/{database}/{name}"
    if kind in DB_FOLDERS:
        return f"{warehouse.rstrip('/')}/{database}.db/{name}"
    return ""


def _catalog_name(kind: str, options: Mapping[str, str], table: str) -> DatasetName | None:
    if kind == "hadoop":
        return _in_warehouse(options.get("warehouse", ""), table)
    if kind == "glue":
        return _in_glue(options, table)
    uri = options.get("uri", "").split(",")[0]
    if kind == "jdbc":
        return _in_postgres(uri, table)
    if not uri or mask(uri) != uri:
        return None
    if kind == "hive":
        return DatasetName(f"hive://{_split(uri).netloc}", table)
    return DatasetName(uri, table)


def _in_warehouse(warehouse: str, table: str) -> DatasetName | None:
    if not warehouse or mask(warehouse) != warehouse:
        return None
    parts = urlsplit(warehouse.rstrip("/"))
    if not parts.scheme or parts.scheme == "file":
        return DatasetName(f"file:{parts.path}", table)
    return DatasetName(f"{_scheme(parts)}://{parts.netloc}{parts.path}", table)


def _in_glue(options: Mapping[str, str], table: str) -> DatasetName | None:
    region = options.get("client.region", "")
    account = options.get("glue.account-id") or options.get("glue.id", "")
    if not region or not account:
        return None
    return DatasetName(f"arn:aws:glue:{region}:{account}", f"table/{table.replace('.', '/')}")


def _in_postgres(uri: str, table: str) -> DatasetName | None:
    """The name with the catalog's database, but without its user, password and parameters."""
    parts = _split(uri.removeprefix("jdbc:"))
    if parts.scheme != "postgresql" or "@" in parts.path + parts.query + parts.fragment:
        return None
    try:
        host, port = parts.hostname, parts.port or 5432
    except ValueError:  # several hosts, or part of a password
        return None
    database = parts.path.strip("/")
    return DatasetName(f"postgres://{host}:{port}", f"{database}.{table}") if host else None


def _of_location(parts: SplitResult) -> DatasetName:
    path = parts.path.rstrip("/")
    if not parts.scheme or parts.scheme == "file":
        return DatasetName("file", path)
    scheme = _scheme(parts)
    if scheme in ONE_SCHEME:
        path = path.lstrip("/")
    return DatasetName(f"{scheme}://{parts.netloc}", path)


def _scheme(parts: SplitResult) -> str:
    return next((one for one in ONE_SCHEME if parts.scheme.startswith(one)), parts.scheme)


def _split(uri: str) -> SplitResult:
    try:
        return urlsplit(uri)
    except ValueError:  # a bracket in the host
        return urlsplit("")
