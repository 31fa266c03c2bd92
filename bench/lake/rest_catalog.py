"""Compares a round on a REST catalog that vends the keys of its S3 with one on local folders.

The same rows, in turns in one run. The catalog answers by Iceberg's own handlers from a JVM of its
own, with its tables in SQLite, and asks STS for new keys with each table; S3 and STS are moto's.
"""

from __future__ import annotations

import statistics
import tempfile
from contextlib import ExitStack
from pathlib import Path

from bench.measure import Line, report

ROUNDS, WARM_ROUNDS, ROWS = 9, 3, 1_000
REQUESTS_MAX = 6
PHASES = ("recover", "lake_commit", "total")


def run(rows: int) -> None:
    """Ignores ``rows``: what a catalog costs does not depend on them."""
    from tests.support.catalog_servers.aws_bundle import (
        jars_with_s3,  # servers that only a checkout has
    )
    from tests.support.catalog_servers.catalog import Catalog
    from tests.support.catalog_servers.iam_s3 import IamS3
    from tests.support.catalogs.oauth_rest import RestSettings, rest_server
    from tests.support.catalogs.operations import fill, numbers_table
    from tests.support.catalogs.rounds import round_site
    from tests.support.catalogs.vending import Vending

    del rows
    with ExitStack() as stack:
        tmp = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sluice-bench-")))
        store = stack.enter_context(IamS3())
        server = stack.enter_context(rest_server(store, RestSettings(vending=Vending.CONFIG)))
        options = {
            "hadoop": {"type": "hadoop", "warehouse": f"{tmp}/lake"},
            "rest": server.options,
        }
        sites = {}
        for name, one in options.items():
            (folder := tmp / name).mkdir()
            catalog = Catalog(one, jars_with_s3())
            sites[name] = stack.enter_context(round_site(catalog, folder))
        paths = {name: numbers_table(site) for name, site in sites.items()}
        seconds: dict[str, list[dict[str, float]]] = {name: [] for name in sites}
        requests: list[int] = []
        for number in range(WARM_ROUNDS + ROUNDS):
            for name, site in sites.items():  # in turns: both see the same machine
                fill(site, paths[name], number * ROWS, ROWS)
                server.requests.clear()
                result = site.tier(paths[name])
                assert result.rows == ROWS, result
                if number >= WARM_ROUNDS:
                    seconds[name].append(dict(result.seconds))
                    if name == "rest":
                        requests.append(sum(server.counts().values()))
    most = max(requests)
    goal = f"the goal of {REQUESTS_MAX} requests for a log round; the most of {ROUNDS} rounds"
    report(Line("rest_catalog", most, "requests", most / REQUESTS_MAX, goal))
    for phase in PHASES:
        hadoop, rest = (
            1000 * statistics.median(one[phase] for one in seconds[name]) for name in sites
        )
        text = f"local folders ({hadoop:,.0f} ms); medians of {ROUNDS} rounds"
        report(Line(f"  {phase}", rest, "ms", rest / hadoop, text))
