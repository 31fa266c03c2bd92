"""Nessie for tests, which are skipped where no Java is new enough for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sluice.errors import ConfigurationError
from tests.support.catalog_servers import nessie as servers
from tests.support.catalog_servers.catalog import Catalog
from tests.support.catalog_servers.iam_s3 import IamS3
from tests.support.catalog_servers.newer_java import java_of


@contextmanager
def nessie(store: IamS3, *, vended_life_s: int | None = None) -> Iterator[Catalog]:
    """Nessie over a store; see :func:`tests.support.catalog_servers.nessie.nessie`."""
    try:
        java_of(servers.JAVA_MIN)
    except ConfigurationError as error:
        pytest.skip(str(error))
    with servers.nessie(store, vended_life_s=vended_life_s) as catalog:
        yield catalog
