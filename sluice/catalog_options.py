"""What the options of an Iceberg catalog mean where they do not say it: its type, its name."""

from __future__ import annotations

from collections.abc import Mapping

from sluice.did_you_mean import closest, is_slip

CATALOG_NAME = "fluss-iceberg-catalog"
"""The name that Fluss gives the catalog (``IcebergCatalogUtils``)."""
_CLASSES = {
    "org.apache.iceberg.aws.glue.GlueCatalog": "glue",
    "org.apache.iceberg.gcp.bigquery.BigQueryMetastoreCatalog": "bigquery",
    "org.apache.iceberg.hadoop.HadoopCatalog": "hadoop",
    "org.apache.iceberg.hive.HiveCatalog": "hive",
    "org.apache.iceberg.jdbc.JdbcCatalog": "jdbc",
    "org.apache.iceberg.nessie.NessieCatalog": "nessie",
    "org.apache.iceberg.rest.RESTCatalog": "rest",
}
"""The types of Iceberg's own classes, which ``catalog-impl`` may name (``CatalogUtil``)."""
_REST_DEFAULTS = {
    # reports of scans and commits would double the requests
    "rest-metrics-reporting-enabled": "false",
    "rest.client.connection-timeout-ms": "15000",
    "rest.client.socket-timeout-ms": "60000",
}
"""Sources: ``RESTCatalog`` and ``HTTPClient`` of Iceberg 1.12."""
_SOCKET_TIMEOUTS = {
    "jdbc:postgresql:": "60",
    "jdbc:mysql:": "60000",
    "jdbc:mariadb:": "60000",
}
"""A minute in the unit of each driver's ``socketTimeout``: seconds or milliseconds."""
LAYOUT = "layout"
"""Sluice's own option among those of the catalog: the layout of new lake tables."""
_WITH_RENAME = ("file", "hdfs", "viewfs")
_TYPES = ("type", "catalog-type", "catalog-impl")
_OF_CATALOGS = ("hive.", "hadoop.hive.", "glue.", "jdbc.", "nessie.", "rest.")
_ALIKE = 0.85
"""Higher than the similarity of catalog-id or Iceberg's own lock-impl to catalog-impl."""


def with_type(options: Mapping[str, str]) -> Mapping[str, str]:
    """The options of a catalog; of type hadoop if they name a folder and nothing else.

    Iceberg's default is hive, which would start a database in the current folder.
    """
    warehouse = options.get("warehouse", "")
    if "/" not in warehouse or is_on_object_store(warehouse):
        return options
    if names_catalog(options) or misspelt(options):
        return options
    return {"type": "hadoop", **options}


def of_catalog(options: Mapping[str, str]) -> dict[str, str]:
    """The options of the catalog itself: none if no lake is configured."""
    return {name: value for name, value in options.items() if name != LAYOUT}


def names_catalog(options: Mapping[str, str]) -> bool:
    """Whether options tell a type, a class, an address or what only one type of catalog has."""
    return any(name in (*_TYPES, "uri") or name.startswith(_OF_CATALOGS) for name in options)


def is_on_object_store(warehouse: str) -> bool:
    """Whether a warehouse is on a store that may have no rename, as ``s3://`` and unlike HDFS.

    A catalog of type hadoop commits by a rename.
    """
    scheme, is_uri, _ = warehouse.partition("://")
    return bool(is_uri) and scheme.lower() not in _WITH_RENAME


def misspelt(options: Mapping[str, str]) -> tuple[str, str] | None:
    """The option that looks like a misspelt type, class or address, and what seems to be meant.

    :returns: None if none does, or the options have a type or a class.
    """
    if "type" in options or "catalog-impl" in options:
        return None
    others = [name for name in options if name not in (*_TYPES, "uri", "warehouse")]
    for meant in (*_TYPES, "uri"):
        slips = (name for name in others if is_slip(name, meant))
        found = next(slips, None) or closest(meant, others, cutoff=_ALIKE)
        if found is not None and meant not in options:
            return found, "type" if meant == "catalog-type" else meant
    return None


def kind_of(options: Mapping[str, str]) -> str:
    """The type of the catalog in lower case, also if its class is named instead.

    :returns: empty if neither says it.
    """
    kind = options.get("type", "").lower()
    return kind or _CLASSES.get(options.get("catalog-impl", ""), "")


def with_client_defaults(options: Mapping[str, str]) -> Mapping[str, str]:
    """The options with which a round opens the catalog: the client waits for no answer for ever.

    Iceberg's REST client and the JDBC drivers have no timeout of their own. A request whose
    connection is dropped without a word would keep the keys of a table from being renewed.
    """
    options = of_catalog(options)
    uri = options.get("uri", "")
    if kind_of(options) == "rest":
        return {**_REST_DEFAULTS, **options}
    found = next((value for start, value in _SOCKET_TIMEOUTS.items() if uri.startswith(start)), "")
    return {"jdbc.socketTimeout": found, **options} if found else options


def shown_kind(options: Mapping[str, str]) -> str:
    """The type of the catalog in words, also if nothing says it."""
    if kind := kind_of(options):
        return kind
    return "of a custom class" if "catalog-impl" in options else "hive (Iceberg's default)"


def name_of(options: Mapping[str, str]) -> str:
    """The name of the catalog, which JDBC stores with each table."""
    return options.get("name", CATALOG_NAME)


def sql_names(options: Mapping[str, str]) -> tuple[str, ...]:
    """How SQL may name the catalog: by its own name, also as ``lake`` unless it is stored."""
    stores_name = kind_of(options) == "jdbc"
    return (name_of(options),) if stores_name else ("lake", name_of(options))
