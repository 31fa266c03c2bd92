"""Engines read a table that rounds have written, with settings made from the catalog's options."""

from __future__ import annotations

from sluice.catalog_options import CATALOG_NAME
from sluice.model import TablePath
from tests.support.catalogs.iceberg_client import opened
from tests.support.catalogs.readers import duckdb_rows, pyiceberg_rows, spark_rows
from tests.support.catalogs.rounds import RoundSite
from tests.support.tables.keyed_stock import Stock, stock_table

COLUMNS = ("day", "id", "item", "n")


def spark_reader(site: RoundSite) -> None:
    """Spark SQL, by the catalog's own name."""
    path, expected = _written(site)
    options = site.catalog.options
    jars = [str(jar) for jar in sorted(site.catalog.jars.glob("*.jar"))]
    properties = {
        "spark.jars": ",".join(jars),
        f"spark.sql.catalog.{CATALOG_NAME}": "org.apache.iceberg.spark.SparkCatalog",
        **{f"spark.sql.catalog.{CATALOG_NAME}.{name}": value for name, value in options.items()},
    }
    query = f"SELECT {', '.join(COLUMNS)} FROM `{CATALOG_NAME}`.{path}"
    assert spark_rows(site.catalog, properties, [query]) == [expected]


def pyiceberg_reader(site: RoundSite) -> None:
    """PyIceberg, through the catalog if it has a client of it, else by the metadata file."""
    path, expected = _written(site)
    options = dict(site.catalog.options)
    if options.get("type") == "rest":
        code = _pyiceberg_catalog(_of_rest(options), path)
    elif options.get("uri", "").startswith("jdbc:"):
        uri = "sqlite:///" + options["uri"].removeprefix("jdbc:sqlite:")
        options.pop("catalog-impl", None)
        code = _pyiceberg_catalog({**options, "type": "sql", "uri": uri}, path)
    else:
        code = (
            "from pyiceberg.table import StaticTable\n"
            f"table = StaticTable.from_metadata({_metadata_file(site, path)!r}, {options!r})\n"
            "rows = table.scan().to_arrow()\n"
        )
    assert pyiceberg_rows(site.catalog, code, COLUMNS) == expected


def duckdb_reader(site: RoundSite) -> None:
    """DuckDB, through a REST catalog if it knows the login, else by the metadata file."""
    path, expected = _written(site)
    options = site.catalog.options
    statements = _s3_secret(options) if "s3.access-key-id" in options else ""
    if options.get("type") == "rest" and "rest.auth.type" not in options:
        statements += _attach(options) + f"SELECT * FROM lake.{path};"
    else:
        statements += f"SELECT * FROM iceberg_scan('{_metadata_file(site, path)}');"
    assert duckdb_rows(site.catalog, statements, COLUMNS) == expected


def _written(site: RoundSite) -> tuple[TablePath, list[list[object]]]:
    """A table with updated and deleted rows, and the rows that it has."""
    path = site.new_path("read")
    site.client.admin.create_table(path, stock_table())
    stock = Stock(site.client, path, lambda query: [])
    stock.put({key: key for key in range(20)})
    site.tier(path)
    stock.put({key: -key for key in range(5)})
    stock.delete(6, 7)
    site.tier(path)
    return path, sorted([*key, *row] for key, row in stock.held.items())


def _metadata_file(site: RoundSite, path: TablePath) -> str:
    with opened(site.jvm, site.reader_options, CATALOG_NAME) as client:
        found = client.load(str(path)).operations().current().metadataFileLocation()
    return str(found)


def _pyiceberg_catalog(options: dict[str, object], path: TablePath) -> str:
    return (
        "from pyiceberg.catalog import load_catalog\n"
        f"catalog = load_catalog({CATALOG_NAME!r}, **{options!r})\n"
        f"rows = catalog.load_table({str(path)!r}).scan().to_arrow()\n"
    )


def _of_rest(options: dict[str, str]) -> dict[str, object]:
    """Options of a REST catalog as PyIceberg names them."""
    found: dict[str, object] = dict(options)
    if options.get("rest.auth.type") == "basic":
        found["auth"] = {
            "type": "basic",
            "basic": {
                "username": options["rest.auth.basic.username"],
                "password": options["rest.auth.basic.password"],
            },
        }
    elif options.get("rest.auth.type") == "sigv4":
        found |= {
            "rest.sigv4-enabled": "true",
            "client.access-key-id": options["rest.access-key-id"],
            "client.secret-access-key": options["rest.secret-access-key"],
        }
    elif "credential" in options:
        found["oauth2-server-uri"] = f"{options['uri']}/v1/oauth/tokens"
    return found


def _s3_secret(options: dict[str, str]) -> str:
    host = options["s3.endpoint"].removeprefix("http://")
    return (
        f"CREATE SECRET store (TYPE s3, KEY_ID '{options['s3.access-key-id']}',"
        f" SECRET '{options['s3.secret-access-key']}', ENDPOINT '{host}', URL_STYLE 'path',"
        f" USE_SSL false, REGION '{options['client.region']}');"
    )


def _attach(options: dict[str, str]) -> str:
    """Opens a REST catalog as ``lake``."""
    uri, more = options["uri"].rstrip("/"), ""
    secret = ""
    if "credential" in options:
        client, _, word = options["credential"].partition(":")
        headers = {
            name.removeprefix("header."): value
            for name, value in options.items()
            if name.startswith("header.")
        }
        said = f", EXTRA_HTTP_HEADERS MAP {headers}" if headers else ""
        secret = (
            f"CREATE SECRET catalog (TYPE iceberg, CLIENT_ID '{client}', CLIENT_SECRET '{word}',"
            f" OAUTH2_SERVER_URI '{uri}/v1/oauth/tokens', OAUTH2_SCOPE 'catalog'{said});"
        )
        more = ", SECRET catalog"
    else:
        more = ", AUTHORIZATION_TYPE 'none'"
    if "s3.access-key-id" in options:
        more += ", ACCESS_DELEGATION_MODE 'none'"
    name = options.get("warehouse", "")
    return f"{secret}ATTACH '{name}' AS lake (TYPE iceberg, ENDPOINT '{uri}'{more});"
