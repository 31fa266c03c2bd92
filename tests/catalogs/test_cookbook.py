"""Rounds with the settings that pages of docs/catalogs show, read by their blocks for engines.

Only what stands for a place or a secret is replaced: addresses, keys, passwords.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest

from sluice.model import TablePath
from tests.docs.blocks import ROOT, Block, Page, claimed_blocks
from tests.support.catalog_servers.catalog import Catalog
from tests.support.catalog_servers.iam_s3 import IamS3
from tests.support.catalogs.cookbook_cases import CASES, Case
from tests.support.catalogs.readers import duckdb_rows, pyiceberg_rows, spark_rows
from tests.support.catalogs.rounds import (
    DATABASE,
    RoundSite,
    keyed_rounds,
    log_rounds,
    round_site,
)

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
BLOCKS = {
    "glue.md": claimed_blocks("docs/catalogs/glue.md", __file__),
    "hive.md": claimed_blocks("docs/catalogs/hive.md", __file__),
    "jdbc.md": claimed_blocks("docs/catalogs/jdbc.md", __file__),
    "nessie.md": claimed_blocks("docs/catalogs/nessie.md", __file__),
    "rest.md": claimed_blocks("docs/catalogs/rest.md", __file__),
}
COLUMNS = {"log0": ("id", "item", "note"), "stock1": ("day", "id", "item", "n")}
"""The tables of the two operations, in their order, and the columns that are compared."""
NO_GET_TABLE = "Invalid method name: 'get_table'"
_JAR = re.compile(r"/srv/sluice/jars/(?P<name>\S+)")


class Cookbook:
    """A page's blocks, with the names of a running server."""

    def __init__(self, case: Case, server: Catalog) -> None:
        self._replaced = [*case.changed.items(), *case.names(server).items()]
        self._blocks = BLOCKS[case.page]
        self.options = self._options(Page(ROOT / "docs" / "catalogs" / case.page))
        self.catalog = Catalog(self.options, server.jars, server.env)

    def _options(self, page: Page) -> dict[str, str]:
        [block] = [each for each in page.blocks if each.language == "toml"]
        found: dict[str, str] = tomllib.loads(self.text(block))["datalake"]["iceberg"]
        return found

    def text(self, block: Block) -> str:
        """A block's text."""
        found = block.content
        for old, new in self._replaced:
            found = found.replace(old, new)
        assert ".example" not in found
        return found

    def of(self, language: str, beginning: str = "") -> str:
        """The text of the one block of a language that has such a line."""
        blocks = [each for each in self._blocks if each.language == language]
        [block] = [each for each in blocks if f"\n{beginning}" in f"\n{each.content}"]
        return self.text(block)

    def spark_properties(self) -> dict[str, str]:
        """The page's properties of Spark, with the jars that are here."""
        lines = self.of("text", "spark.sql.catalog.").splitlines()
        found = dict(line.split(None, 1) for line in lines)
        del found["spark.jars.packages"]
        own = sorted(self.catalog.jars.glob("*.jar"))
        first = [each for each in self._blocks if "extraClassPath" in each.content]
        named = [_JAR.search(each.content) for each in first]
        jars = {match["name"] for match in named if match}
        in_front = [jar for jar in own if jar.name in jars]
        rest = [jar for jar in own if not jar.name.startswith("hive-")]
        return {
            **found,
            "spark.jars": ",".join(map(str, rest)),
            "spark.driver.extraClassPath": ":".join(map(str, in_front)),
        }


Tiered = tuple[Cookbook, RoundSite]


@pytest.fixture(scope="module", params=CASES)
def tiered(
    request: pytest.FixtureRequest, store: IamS3, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Tiered]:
    """Two tables that rounds with the page's settings have written."""
    case = CASES[request.param]
    with case.server(store) as server:
        cookbook = Cookbook(case, server)
        with round_site(cookbook.catalog, tmp_path_factory.mktemp("cookbook")) as site:
            log_rounds(site)
            keyed_rounds(site)
            yield cookbook, site


def expected(site: RoundSite) -> dict[str, list[Any]]:
    return {
        name: sorted(list(row) for row in site.rows(TablePath(DATABASE, name), *columns))
        for name, columns in COLUMNS.items()
    }


def test_spark(tiered: Tiered) -> None:
    cookbook, site = tiered
    properties = cookbook.spark_properties()
    [lake] = [name for name in properties if re.fullmatch(r"spark\.sql\.catalog\.[\w-]+", name)]
    catalog = lake.removeprefix("spark.sql.catalog.")
    queries = [
        f"SELECT {', '.join(columns)} FROM `{catalog}`.shop.{name}"
        for name, columns in COLUMNS.items()
    ]
    found = spark_rows(cookbook.catalog, properties, queries)
    assert found == [*expected(site).values()]


def test_pyiceberg(tiered: Tiered, request: pytest.FixtureRequest) -> None:
    cookbook, site = tiered
    code = cookbook.of("python")
    if "hive4" in request.node.name:
        with pytest.raises(AssertionError, match=re.escape(NO_GET_TABLE)):
            pyiceberg_rows(cookbook.catalog, code, ())
        return
    for name, rows in expected(site).items():
        of_table = code.replace("shop.orders", f"shop.{name}")
        assert of_table != code
        assert pyiceberg_rows(cookbook.catalog, of_table, COLUMNS[name]) == rows


@pytest.mark.parametrize("tiered", ["rest", "nessie"], indirect=True)
def test_duckdb(tiered: Tiered) -> None:
    cookbook, site = tiered
    for name, rows in expected(site).items():
        code = cookbook.of("sql").replace("shop.orders", f"shop.{name}")
        assert duckdb_rows(cookbook.catalog, code, COLUMNS[name]) == rows
