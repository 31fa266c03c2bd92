"""Rounds whose files lie on Google Cloud Storage and on Azure, as emulators play them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice.testing.catalogs.catalog import Catalog, jars_with
from tests.stores.conftest import ADLS_IO, GCS_IO, needs_sas
from tests.support.catalogs.jdbc import SQLITE
from tests.support.catalogs.operations import MORE_OPERATIONS
from tests.support.catalogs.rounds import OPERATIONS, RoundSite, round_site
from tests.support.stores import bundles
from tests.support.stores.azurite import Azurite
from tests.support.stores.fake_gcs import FakeGcs

pytestmark = pytest.mark.long
NAMES = ("partitions", "recovery", "compaction", "commands", "executors")
ALL = OPERATIONS | {name: MORE_OPERATIONS[name] for name in NAMES}


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


@pytest.mark.parametrize("operation", ALL)
def test_rounds(site: RoundSite, operation: str) -> None:
    ALL[operation](site)
