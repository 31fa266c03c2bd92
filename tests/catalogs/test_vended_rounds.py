"""Rounds on catalogs that vend the keys of the storage: clients have none of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from sluice.testing.catalogs.aws_bundle import jars_with_s3
from sluice.testing.catalogs.catalog import Catalog
from sluice.testing.catalogs.iam_s3 import IamS3
from tests.support.catalogs.nessie import nessie
from tests.support.catalogs.oauth_rest import RestSettings, rest_server
from tests.support.catalogs.operations import MORE_OPERATIONS
from tests.support.catalogs.rounds import OPERATIONS, RoundSite, round_site
from tests.support.catalogs.vending import Vending

LIFE_S = 8
"""Shorter than the rounds of one test together."""


@contextmanager
def in_config(store: IamS3) -> Iterator[Catalog]:
    settings = RestSettings(vending=Vending.CONFIG, key_life_s=LIFE_S)
    with rest_server(store, settings) as server:
        yield Catalog(server.options, jars_with_s3())


@contextmanager
def by_prefix(store: IamS3) -> Iterator[Catalog]:
    settings = RestSettings(
        vending=Vending.CREDENTIALS, key_life_s=LIFE_S, below=("", "/data", "/metadata")
    )
    with rest_server(store, settings) as server:
        yield Catalog(server.options, jars_with_s3())


@contextmanager
def by_nessie(store: IamS3) -> Iterator[Catalog]:
    with nessie(store, vended_life_s=3600) as catalog:
        yield catalog


VENDED: dict[str, Callable[[IamS3], AbstractContextManager[Catalog]]] = {
    "config": in_config,
    "prefixes": by_prefix,
    "nessie": by_nessie,
}


@pytest.fixture(scope="module", params=VENDED)
def site(
    request: pytest.FixtureRequest, store: IamS3, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RoundSite]:
    folder = tmp_path_factory.mktemp("rounds")
    with VENDED[request.param](store) as catalog, round_site(catalog, folder) as running:
        assert not any(name.startswith("s3.") for name in catalog.options)
        yield running


@pytest.fixture(scope="module")
def ci_site(store: IamS3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RoundSite]:
    """The catalog that says the most: keys of some seconds, others for each prefix."""
    folder = tmp_path_factory.mktemp("rounds")
    with by_prefix(store) as catalog, round_site(catalog, folder) as running:
        yield running


@pytest.mark.slow
@pytest.mark.parametrize("operation", ["log", "keyed", "foreign commits"])
def test_rounds_in_short(ci_site: RoundSite, operation: str) -> None:
    ALL[operation](ci_site)


ALL = OPERATIONS | MORE_OPERATIONS


@pytest.mark.long
@pytest.mark.parametrize("operation", ALL)
def test_rounds(site: RoundSite, operation: str) -> None:
    ALL[operation](site)
