"""All catalogs on which rounds are tried: the columns of the matrix."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from sluice.testing.catalogs.catalog import Catalog
from sluice.testing.catalogs.iam_s3 import IamS3

from .glue import glue
from .hive_metastore import hive3, hive4
from .jdbc import postgresql, sqlite
from .nessie import nessie
from .oauth_rest import oauth_rest
from .s3proxy import sqlite_on_s3proxy

STATIC: dict[str, Callable[[IamS3], AbstractContextManager[Catalog]]] = {
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
