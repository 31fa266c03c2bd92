"""Nessie for tests, which are skipped where no Java is new enough for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sluice.errors import ConfigurationError
from sluice.testing.catalogs import nessie as servers
from sluice.testing.catalogs.catalog import Catalog
from sluice.testing.catalogs.iam_s3 import IamS3
from sluice.testing.catalogs.newer_java import java_of


@contextmanager
def nessie(store: IamS3, *, vended_life_s: int | None = None) -> Iterator[Catalog]:
    """Nessie over a store; see :func:`sluice.testing.catalogs.nessie.nessie`."""
    try:
        java_of(servers.JAVA_MIN)
    except ConfigurationError as error:
        pytest.skip(str(error))
    with servers.nessie(store, vended_life_s=vended_life_s) as catalog:
        yield catalog
