"""The matrix of catalogs: a cell is green, or refused in words, or run elsewhere for a reason."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.docs.blocks import ROOT
from tests.support.catalog_servers.iam_s3 import IamS3
from tests.support.catalogs.matrix import CELLS, EXCEPTIONS, ROWS, Elsewhere, Refusal
from tests.support.catalogs.rounds import RoundSite, round_site
from tests.support.catalogs.servers import COLUMNS, VENDED


@pytest.fixture(scope="module")
def site(
    request: pytest.FixtureRequest, store: IamS3, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RoundSite]:
    folder = tmp_path_factory.mktemp("rounds")
    with COLUMNS[request.param](store) as catalog, round_site(catalog, folder) as running:
        has_keys = any(name.startswith("s3.") for name in catalog.options)
        assert has_keys is (request.param not in (*VENDED, "hadoop"))
        yield running


@pytest.mark.long
@pytest.mark.parametrize(
    ("site", "cell"),
    [(cell[0], cell) for cell in CELLS],
    indirect=["site"],
    scope="module",  # of the site; pytest would take it for one of each test
    ids=[f"{column}-{row}" for column, row in CELLS],
)
def test_cell(site: RoundSite, cell: tuple[str, str]) -> None:
    act, exception = ROWS[cell[1]], EXCEPTIONS.get(cell)
    if isinstance(exception, Refusal):
        with pytest.raises(Exception, match=re.escape(exception.words)):
            act(site)
    else:
        act(site)


@pytest.mark.slow
@pytest.mark.parametrize("row", ["log", "keyed", "foreign commits"])
def test_rounds_in_short(vending: RoundSite, row: str) -> None:
    ROWS[row](vending)


def test_each_exception_is_of_a_cell_and_each_test_exists() -> None:
    assert {column for column, _ in EXCEPTIONS} <= set(COLUMNS)
    assert {row for _, row in EXCEPTIONS} <= set(ROWS)
    tests = [each.test for each in EXCEPTIONS.values() if isinstance(each, Elsewhere) and each.test]
    assert [test for test in tests if not (ROOT / test).exists()] == []
