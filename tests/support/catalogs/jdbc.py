"""Iceberg's JDBC catalog in SQLite and in PostgreSQL, over a store."""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.catalog_servers.catalog import Catalog, Store, jars_with
from tests.support.catalog_servers.iam_s3 import BUCKET
from tests.support.catalog_servers.maven import MavenJar
from tests.support.clusters.postgres import postgres_folder, run_sql
from tests.support.network.ports import kept_port

SQLITE = MavenJar(
    "org.xerial",
    "sqlite-jdbc",
    "3.53.1.0",
    "28aceecfcc9535645bd19fa988385703c7b89982c1506a6855f5942b4032eca6",
)
POSTGRESQL = MavenJar(
    "org.postgresql",
    "postgresql",
    "42.7.13",
    "6e0e4cc2d8cae902084f8a2b18728b073a6fd9d1f87c9d8bff8f298c18185b93",
)
USER = "tables"


@contextmanager
def sqlite(store: Store) -> Iterator[Catalog]:
    """A catalog in a file of SQLite."""
    folder = Path(tempfile.mkdtemp(prefix="sluice-sqlite-"))
    try:
        options = _options(store, f"jdbc:sqlite:{folder}/catalog.db", "sqlite")
        yield Catalog(options, jars_with("jars-sqlite", SQLITE))
    finally:
        shutil.rmtree(folder)


@contextmanager
def postgresql(store: Store) -> Iterator[Catalog]:
    """A catalog in PostgreSQL, whose user has a password."""
    password = secrets.token_urlsafe()
    with kept_port() as port, postgres_folder(port) as folder:
        run_sql(
            folder,
            port,
            f"CREATE ROLE {USER} LOGIN PASSWORD '{password}'",
            f"CREATE DATABASE catalog OWNER {USER}",
        )
        options = {
            **_options(store, f"jdbc:postgresql://127.0.0.1:{port}/catalog", "postgresql"),
            "jdbc.user": USER,
            "jdbc.password": password,
        }
        yield Catalog(options, jars_with("jars-postgresql", POSTGRESQL))


def _options(store: Store, uri: str, folder: str) -> dict[str, str]:
    return {
        "type": "jdbc",
        "uri": uri,
        "warehouse": f"s3://{BUCKET}/{folder}",
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        **store.options(),
    }
