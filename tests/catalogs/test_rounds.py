"""Rounds on every catalog, read back by Iceberg's own reader through the same catalog."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sluice.testing.catalogs.iam_s3 import IamS3
from tests.support.catalogs.operations import MORE_OPERATIONS
from tests.support.catalogs.rounds import OPERATIONS, RoundSite, round_site
from tests.support.catalogs.servers import STATIC

pytestmark = pytest.mark.long


@pytest.fixture(scope="module", params=STATIC)
def site(
    request: pytest.FixtureRequest, store: IamS3, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RoundSite]:
    folder = tmp_path_factory.mktemp("rounds")
    with STATIC[request.param](store) as catalog, round_site(catalog, folder) as running:
        yield running


ALL = OPERATIONS | MORE_OPERATIONS


@pytest.mark.parametrize("operation", ALL)
def test_rounds(site: RoundSite, operation: str) -> None:
    ALL[operation](site)
