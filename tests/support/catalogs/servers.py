"""All catalogs on which rounds are tried: the columns of the matrix."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from tests.support.catalog_servers.aws_bundle import jars_with_s3
from tests.support.catalog_servers.catalog import Catalog
from tests.support.catalog_servers.iam_s3 import BUCKET, IamS3
from tests.support.catalogs.glue import glue
from tests.support.catalogs.hive_metastore import hive3, hive4
from tests.support.catalogs.jdbc import postgresql, sqlite
from tests.support.catalogs.nessie import nessie
from tests.support.catalogs.oauth_rest import RestSettings, oauth_rest, rest_server
from tests.support.catalogs.other_names import (
    basic_rest,
    nessie_by_its_api,
    signed_rest,
    sqlite_by_class,
)
from tests.support.catalogs.s3proxy import sqlite_on_s3proxy
from tests.support.catalogs.vending import Vending

Server = Callable[[IamS3], AbstractContextManager[Catalog]]
LIFE_S = 8
"""Of vended keys: shorter than the rounds of one test together."""
_LONGER_S = 60
"""So that Spark, whose tables keep their keys, can read before they end."""


@contextmanager
def vended_in_config(store: IamS3, life_s: int = LIFE_S) -> Iterator[Catalog]:
    settings = RestSettings(vending=Vending.CONFIG, key_life_s=life_s)
    with rest_server(store, settings) as server:
        yield Catalog(server.options, jars_with_s3())


@contextmanager
def vended_by_prefix(store: IamS3, life_s: int = LIFE_S) -> Iterator[Catalog]:
    """The catalog that says the most: keys of some seconds, others for each prefix."""
    settings = RestSettings(
        vending=Vending.CREDENTIALS, key_life_s=life_s, below=("", "/data", "/metadata")
    )
    with rest_server(store, settings) as server:
        yield Catalog(server.options, jars_with_s3())


@contextmanager
def vended_by_nessie(store: IamS3) -> Iterator[Catalog]:
    with nessie(store, vended_life_s=3600) as catalog:
        yield catalog


@contextmanager
def hadoop(store: IamS3) -> Iterator[Catalog]:
    """A folder of this machine."""
    with tempfile.TemporaryDirectory(prefix="sluice-hadoop-") as folder:
        yield Catalog({"type": "hadoop", "warehouse": folder}, jars_with_s3())


@contextmanager
def hadoop_on_s3(store: IamS3) -> Iterator[Catalog]:
    """A folder of the store, without the jars of Hadoop's own client of S3."""
    options = {"type": "hadoop", "warehouse": f"s3a://{BUCKET}/hadoop", **store.options()}
    yield Catalog(options, jars_with_s3())


STATIC: dict[str, Server] = {
    "nessie": nessie,
    "oauth-rest": oauth_rest,
    "jdbc-sqlite": sqlite,
    "jdbc-postgresql": postgresql,
    "glue": glue,
    "hive3": hive3,
    "hive4": hive4,
    "s3proxy": lambda store: sqlite_on_s3proxy(),
}
"""Those whose clients have keys of their own."""
VENDED: dict[str, Server] = {
    "vended-in-config": vended_in_config,
    "vended-by-prefix": lambda store: vended_by_prefix(store, _LONGER_S),
    "vended-by-nessie": vended_by_nessie,
}
"""Those whose clients have none."""
OTHER_NAMES: dict[str, Server] = {
    "catalog-impl": sqlite_by_class,
    "nessie-api": nessie_by_its_api,
    "basic-rest": basic_rest,
    "sigv4-rest": signed_rest,
}
"""Catalogs of the other lists, named or logged in to in another way."""
FOLDERS: dict[str, Server] = {"hadoop": hadoop, "hadoop-on-s3": hadoop_on_s3}
"""Folders that are catalogs: by Hadoop's file systems, without a server."""
COLUMNS = STATIC | VENDED | OTHER_NAMES | FOLDERS
