"""The cookbook of catalogs: a page gives the same options to Fluss, Sluice, Airflow and readers.

What its pages say of a server that runs here is tried by tests/catalogs/test_cookbook.py.
"""

from __future__ import annotations

import ast
import json
import re
import tomllib
from functools import cache

import pytest

from sluice.checks import iceberg_options
from sluice.errors import ConfigurationError
from sluice.lake.storage.table_storage import TableStorage
from sluice.storage import CHECKSUM_VARIABLE, check_storage
from tests.docs.blocks import ROOT, Block, Page, claimed_blocks

FOLDER = ROOT / "docs" / "catalogs"
INDEX = Page(FOLDER / "README.md")
TAKEN = {
    block.page: block
    for blocks in (
        claimed_blocks("docs/catalogs/adls.md", __file__),
        claimed_blocks("docs/catalogs/gcs.md", __file__),
        claimed_blocks("docs/catalogs/glue.md", __file__),
        claimed_blocks("docs/catalogs/gravitino.md", __file__),
        claimed_blocks("docs/catalogs/hive.md", __file__),
        claimed_blocks("docs/catalogs/jdbc.md", __file__),
        claimed_blocks("docs/catalogs/lakekeeper.md", __file__),
        claimed_blocks("docs/catalogs/minio-r2.md", __file__),
        claimed_blocks("docs/catalogs/nessie.md", __file__),
        claimed_blocks("docs/catalogs/polaris.md", __file__),
        claimed_blocks("docs/catalogs/rest.md", __file__),
        claimed_blocks("docs/catalogs/s3-tables.md", __file__),
        claimed_blocks("docs/catalogs/s3.md", __file__),
        claimed_blocks("docs/catalogs/snowflake-open-catalog.md", __file__),
        claimed_blocks("docs/catalogs/unity.md", __file__),
    )
    for block in blocks
}
PAGES = [Page(ROOT / name) for name in TAKEN]
STORES = {"docs/catalogs/" + name for name in ("adls.md", "gcs.md", "minio-r2.md", "s3.md")}
"""Pages whose options are beside those of any catalog."""
NAMES = (
    *("Polaris", "Lakekeeper", "Nessie", "Gravitino", "Unity Catalog", "AWS Glue", "S3 Tables"),
    *("Snowflake Open Catalog", "Hive Metastore 3 and 4", "JDBC", "PostgreSQL", "SQLite"),
    *("Amazon S3", "MinIO", "Cloudflare R2", "Google Cloud Storage", "Azure Data Lake Storage"),
)
_FLUSS, _AIRFLOW = "datalake.iceberg.", "iceberg."
_CATALOG = re.compile(r"spark\.sql\.catalog\.(?P<catalog>[\w-]+)(\.(?P<option>\S+))?")
_WRITERS_ONLY = {"hadoop.iceberg.engine.hive.enabled"}
_SPARK_ONLY = {"type", "uri"}
"""What the pages of stores add for Spark: some catalog."""


@cache
def options(page: Page) -> dict[str, str]:
    """The options that the page's file for Sluice has."""
    [block] = [each for each in page.blocks if each.language == "toml"]
    found: dict[str, str] = tomllib.loads(block.content)["datalake"]["iceberg"]
    return found


def texts(page: Page, beginning: str) -> list[Block]:
    """Its text blocks with a line that begins so."""
    blocks = [block for block in page.blocks if block.language == "text"]
    return [block for block in blocks if f"\n{beginning}" in f"\n{block.content}"]


def pairs(block: Block, separator: str) -> dict[str, str]:
    """The settings of a block, one a line."""
    lines = [line.split(separator, 1) for line in block.content.splitlines() if line]
    return {name.strip(): value.strip() for name, value in lines}


each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


@each_page
def test_fluss_gets_the_same_options(page: Page) -> None:
    [block] = texts(page, _FLUSS)
    found = pairs(block, ": ")
    assert found.pop("datalake.format", "iceberg") == "iceberg"
    assert {name.removeprefix(_FLUSS): value for name, value in found.items()} == options(page)
    assert all(name.startswith(_FLUSS) for name in found)


@each_page
def test_airflow_gets_the_same_options(page: Page) -> None:
    [block] = [each for each in page.blocks if each.language == "json"]
    found = json.loads(block.content)
    assert {name.removeprefix(_AIRFLOW): value for name, value in found.items()} == options(page)
    assert all(name.startswith(_AIRFLOW) for name in found)


@each_page
def test_spark_gets_the_same_options(page: Page) -> None:
    [block] = texts(page, "spark.sql.catalog.")
    lines = [line.split(None, 1) for line in block.content.splitlines()]
    matches = [(_CATALOG.fullmatch(name), value) for name, value in lines]
    named = [(match["catalog"], match["option"], value) for match, value in matches if match]
    [catalog] = {catalog for catalog, _, _ in named}
    given = {option: value for _, option, value in named}
    assert given.pop(None) == "org.apache.iceberg.spark.SparkCatalog"
    of_any = _SPARK_ONLY if page.name in STORES else set()
    assert {name: value for name, value in given.items() if name not in of_any} == {
        name: value for name, value in options(page).items() if name not in _WRITERS_ONLY
    }
    assert (catalog == "fluss-iceberg-catalog") == (given["type"] == "jdbc"), "JDBC stores it"


@each_page
def test_pyiceberg_gets_the_same_options(page: Page) -> None:
    for block in (each for each in page.blocks if each.language == "python"):
        [call] = [
            each
            for each in ast.walk(ast.parse(block.content))
            if isinstance(each, ast.Call) and ast.unparse(each.func) == "load_catalog"
        ]
        given: dict[str, str] = {}
        for keyword in call.keywords:
            value = ast.literal_eval(keyword.value)
            given |= {keyword.arg: value} if keyword.arg else value
        own = options(page)
        if own.get("type") == "jdbc":  # SQLAlchemy writes its address in another way
            assert (given.pop("type"), ast.literal_eval(call.args[0])) == (
                "sql",
                "fluss-iceberg-catalog",
            )
            del given["uri"]
        same = {name for name in given if name in own}
        assert {name: given[name] for name in same} == {name: own[name] for name in same}
        assert same or page.name in STORES


@each_page
def test_no_option_is_misspelt_or_refused(page: Page) -> None:
    own = options(page)
    if page.name not in STORES:
        assert iceberg_options.wrong(own) == iceberg_options.missing(own) == ""
    assert iceberg_options.near_misses(own) == []
    place = own.get("warehouse", "")
    check_storage(place if "://" in place else "s3://lake/warehouse", own)


@each_page
def test_the_index_names_the_page_and_its_evidence(page: Page) -> None:
    rows = [line for line in INDEX.lines if f"]({page.path.name}" in line and line.startswith("|")]
    assert rows
    evidence = page.text.split("\n## Evidence\n")[1]
    is_tried = any("| tried" in row or "| files tried" in row for row in rows)
    tests = re.findall(r"tests/(?:catalogs|stores)/\w+\.py", evidence)
    assert (bool(tests), "https://" in evidence or page.path.name == "rest.md") == (is_tried, True)


def test_each_test_that_the_cookbook_names_exists() -> None:
    for page in (*PAGES, INDEX):
        named = re.findall(r"`(tests/[\w/]+(?:\.py)?)`", page.text)
        assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_index_has_every_name() -> None:
    table = "\n".join(line for line in INDEX.lines if line.startswith("|"))
    assert [name for name in NAMES if name not in table] == []
    assert {path.name for path in FOLDER.glob("*.md")} == {
        *(page.path.name for page in PAGES),
        *("README.md", "store-options.md"),
    }


def test_what_lakekeeper_sends_with_soft_deletion_is_refused() -> None:
    uri = "s3://lake/warehouse/t"
    storage = TableStorage.of({"s3.delete-enabled": "false"}, {}, {}, uri, 0)
    told = "s3.delete-enabled=false: Sluice deletes objects for good"
    assert told in (FOLDER / "lakekeeper.md").read_text()
    with pytest.raises(ConfigurationError, match=told):
        check_storage(uri, storage.options_for(uri))


def test_the_variable_for_stores_that_refuse_checksums() -> None:
    [block] = texts(Page(FOLDER / "minio-r2.md"), "AWS_")
    assert block.content == f"{CHECKSUM_VARIABLE}=when_required\n"
