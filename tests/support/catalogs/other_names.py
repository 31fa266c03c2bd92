"""Other ways to name a catalog or to log in: by class, Nessie's own API, logins of REST."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from tests.support.catalog_servers.aws_bundle import jars_with_s3
from tests.support.catalog_servers.catalog import Catalog
from tests.support.catalog_servers.iam_s3 import BUCKET, IamS3
from tests.support.catalogs.jdbc import sqlite
from tests.support.catalogs.nessie import nessie
from tests.support.catalogs.oauth_rest import RestSettings, rest_server
from tests.support.catalogs.rest_logins import BasicLogin, RestLogin, SignedLogin


@contextmanager
def sqlite_by_class(store: IamS3) -> Iterator[Catalog]:
    """JDBC on SQLite, named by ``catalog-impl`` in place of ``type``."""
    with sqlite(store) as catalog:
        named = {name: value for name, value in catalog.options.items() if name != "type"}
        named["catalog-impl"] = "org.apache.iceberg.jdbc.JdbcCatalog"
        yield replace(catalog, options=named)


@contextmanager
def nessie_by_its_api(store: IamS3) -> Iterator[Catalog]:
    """Nessie by Iceberg's own client of it, which writes the metadata files itself."""
    with nessie(store) as catalog:
        options = {
            **catalog.options,
            "type": "nessie",
            "uri": catalog.options["uri"].replace("/iceberg/", "/api/v2"),
            "ref": "main",
            "warehouse": f"s3://{BUCKET}/nessie-api",
        }
        yield replace(catalog, options=options)


@contextmanager
def basic_rest(store: IamS3) -> Iterator[Catalog]:
    """A REST catalog with a user and a password."""
    with _rest(store, BasicLogin()) as catalog:
        yield catalog


@contextmanager
def signed_rest(store: IamS3) -> Iterator[Catalog]:
    """A REST catalog that wants each request signed by SigV4."""
    with _rest(store, SignedLogin()) as catalog:
        yield catalog


@contextmanager
def _rest(store: IamS3, login: RestLogin) -> Iterator[Catalog]:
    with rest_server(store, RestSettings(other_login=login)) as server:
        yield Catalog(server.options, jars_with_s3())
