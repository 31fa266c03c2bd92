"""How many requests a round sends to a REST catalog, and what each is for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.catalog_servers.aws_bundle import jars_with_s3
from tests.support.catalog_servers.catalog import Catalog
from tests.support.catalog_servers.iam_s3 import IamS3
from tests.support.catalogs.oauth_rest import RestSettings, rest_server
from tests.support.catalogs.operations import fill, numbers_table
from tests.support.catalogs.rounds import round_site
from tests.support.catalogs.vending import Vending

pytestmark = pytest.mark.long
NAMESPACE = "/v1/p%2F1/namespaces/{namespace}"
TABLE = f"{NAMESPACE}/tables/{{table}}"


def test_a_log_round_sends_six_requests(store: IamS3, tmp_path: Path) -> None:
    with (
        rest_server(store, RestSettings(vending=Vending.CONFIG)) as server,
        round_site(Catalog(server.options, jars_with_s3()), tmp_path) as site,
    ):
        path = numbers_table(site)
        fill(site, path, 0, 5)
        site.tier(path)
        fill(site, path, 5, 5)
        server.requests.clear()
        assert site.tier(path).rows == 5
        assert server.counts() == {
            "POST /v1/oauth/tokens": 1,  # the login
            "GET /v1/config": 1,
            # the table as the round begins; whether another attempt of it has committed
            # meanwhile; and the metadata on which its commit is made
            f"GET {TABLE}": 3,
            f"POST {TABLE}": 1,  # the commit
        }
        server.requests.clear()
        assert site.tier(path).outcome == "nothing_new"
        assert sum(server.counts().values()) <= 4
