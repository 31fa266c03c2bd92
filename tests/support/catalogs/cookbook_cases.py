"""Pages of docs/catalogs, each with a server that plays what it is about, and its names there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial

from tests.support.catalog_servers.catalog import Catalog
from tests.support.catalog_servers.iam_s3 import IamS3
from tests.support.catalogs.glue import glue
from tests.support.catalogs.hive_metastore import hive3, hive4
from tests.support.catalogs.jdbc import postgresql, sqlite
from tests.support.catalogs.servers import vended_by_nessie, vended_in_config


@dataclass(frozen=True)
class Case:
    """A page, and a server that plays what it is about."""

    page: str
    server: Callable[[IamS3], AbstractContextManager[Catalog]]
    names: Callable[[Catalog], dict[str, str]]
    """What replaces the page's names of places and secrets."""
    changed: dict[str, str] = field(default_factory=dict)
    """Words of the page for the other kind of server that it describes."""


@contextmanager
def glue_of_the_environment(store: IamS3) -> Iterator[Catalog]:
    """Without an option for it: the page's are those for AWS."""
    with glue(store) as catalog:
        env = {**catalog.env, "AWS_ENDPOINT_URL": store.endpoint}
        yield Catalog(catalog.options, catalog.jars, env)


def rest_names(catalog: Catalog) -> dict[str, str]:
    client, _, secret = catalog.options["credential"].partition(":")
    return {
        "https://catalog.example/iceberg": catalog.options["uri"],
        "CLIENT-ID": client,
        "CLIENT-SECRET": secret,
    }


def store_names(catalog: Catalog) -> dict[str, str]:
    return {
        "http://minio.example:9000": catalog.options["s3.endpoint"],
        "ACCESS-KEY": catalog.options["s3.access-key-id"],
        "SECRET-KEY": catalog.options["s3.secret-access-key"],
        "s3://lake/warehouse": catalog.options["warehouse"],
    }


def glue_names(catalog: Catalog) -> dict[str, str]:
    """PyIceberg's writers and readers do not know the variable for the endpoint."""
    region = '        "client.region": "eu-central-1",\n'
    return {
        "s3://lake/warehouse": catalog.options["warehouse"],
        region: f'{region}        "s3.endpoint": "{catalog.options["s3.endpoint"]}",\n',
    }


def uri_names(page: str) -> Callable[[Catalog], dict[str, str]]:
    return lambda catalog: {**store_names(catalog), page: catalog.options["uri"]}


def postgresql_names(catalog: Catalog) -> dict[str, str]:
    return {
        **store_names(catalog),
        "db.example:5432/catalog": catalog.options["uri"].partition("//")[2],
        '"sluice"': f'"{catalog.options["jdbc.user"]}"',
        "  sluice\n": f"  {catalog.options['jdbc.user']}\n",
        "sluice:PASSWORD": f"{catalog.options['jdbc.user']}:{catalog.options['jdbc.password']}",
        "PASSWORD": catalog.options["jdbc.password"],
    }


def sqlite_names(catalog: Catalog) -> dict[str, str]:
    path = catalog.options["uri"].removeprefix("jdbc:sqlite:")
    return {**store_names(catalog), "/srv/sluice/catalog.db": path}


POSTGRESQL_URI = "jdbc:postgresql://db.example:5432/catalog"
TO_SQLITE = {
    POSTGRESQL_URI: "jdbc:sqlite:/srv/sluice/catalog.db",
    "postgresql+psycopg2://sluice:PASSWORD@db.example:5432/catalog": (
        "sqlite:////srv/sluice/catalog.db"
    ),
    '"jdbc.user" = "sluice"\n': "",
    '"jdbc.password" = "PASSWORD"\n': "",
}
METASTORE = "thrift://metastore.example:9083"
CASES = {
    "rest": Case("rest.md", partial(vended_in_config, life_s=900), rest_names),
    "nessie": Case(
        "nessie.md",
        vended_by_nessie,
        lambda catalog: {"http://nessie.example:19120/iceberg": catalog.options["uri"].rstrip("/")},
    ),
    "glue": Case("glue.md", glue_of_the_environment, glue_names),
    "hive3": Case("hive.md", hive3, uri_names(METASTORE)),
    "hive4": Case("hive.md", hive4, uri_names(METASTORE)),
    "postgresql": Case("jdbc.md", postgresql, postgresql_names),
    "sqlite": Case("jdbc.md", sqlite, sqlite_names, TO_SQLITE),
}
