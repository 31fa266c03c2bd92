"""The store and a JVM, once for the tests of each file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sluice.driver.lakes.jvm import Jvm
from tests.support.catalog_servers.aws_bundle import jars_with_s3
from tests.support.catalog_servers.iam_s3 import IamS3
from tests.support.catalogs.rounds import RoundSite, round_site
from tests.support.catalogs.servers import vended_by_prefix


@pytest.fixture(scope="module")
def store() -> Iterator[IamS3]:
    with IamS3() as running:
        yield running


@pytest.fixture(scope="module")
def vending(store: IamS3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RoundSite]:
    """On the catalog that says the most: keys of some seconds, others for each prefix."""
    folder = tmp_path_factory.mktemp("rounds")
    with vended_by_prefix(store) as catalog, round_site(catalog, folder) as running:
        yield running


@pytest.fixture(scope="module")
def s3_jvm() -> Iterator[Jvm]:
    """A JVM with Iceberg and its S3FileIO."""
    with Jvm(str(jars_with_s3())) as running:
        yield running
