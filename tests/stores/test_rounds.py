"""Rounds whose files lie on Google Cloud Storage and on Azure, as emulators play them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stores.conftest import ADLS_IO, GCS_IO, needs_sas
from tests.support.catalog_servers.catalog import Catalog, jars_with
from tests.support.catalogs.jdbc import SQLITE
from tests.support.catalogs.matrix import ROWS
from tests.support.catalogs.rounds import RoundSite, round_site
from tests.support.stores import bundles
from tests.support.stores.azurite import Azurite
from tests.support.stores.fake_gcs import FakeGcs

pytestmark = pytest.mark.long
_OTHERS = ("race", "created at once", "foreign commits", "repair", "sql")
"""Rows that are about the catalog, or about readers."""
RUN = [row for row in ROWS if row not in _OTHERS and "reader" not in row]


def on_gcs(server: FakeGcs) -> Catalog:
    options = {"io-impl": GCS_IO, "warehouse": "gs://lake/rounds", **server.options("good-token")}
    base = bundles.jars_with(bundles.GCP)
    return Catalog(options, jars_with("jars-sqlite-gcp", SQLITE, base=base))


def on_azure(server: Azurite) -> Catalog:
    warehouse = f"{server.uri('lake').rstrip('/')}/rounds"
    options = {"io-impl": ADLS_IO, "warehouse": warehouse, **server.sas_options()}
    base = bundles.jars_with(bundles.AZURE)
    return Catalog(options, jars_with("jars-sqlite-azure", SQLITE, base=base))


@pytest.fixture(scope="module", params=["gs", pytest.param("abfss", marks=needs_sas)])
def site(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RoundSite]:
    folder: Path = tmp_path_factory.mktemp("rounds")
    if request.param == "gs":
        store = on_gcs(request.getfixturevalue("gcs"))
    else:
        store = on_azure(request.getfixturevalue("azurite"))
    tables = {"type": "jdbc", "uri": f"jdbc:sqlite:{folder}/catalog.db"}
    catalog = Catalog({**tables, **store.options}, store.jars)
    with round_site(catalog, folder) as running:
        yield running


@pytest.mark.parametrize("row", RUN)
def test_rounds(site: RoundSite, row: str) -> None:
    ROWS[row](site)
