"""The first commands of docs/apache-fluss.md, on a real Fluss."""

from __future__ import annotations

import shlex

import pytest

from tests.docs.blocks import claimed
from tests.real_fluss.place import Place

pytestmark = [pytest.mark.real_fluss, pytest.mark.spark, pytest.mark.timeout(600)]


def test_the_commands_of_the_page_list_and_tier_a_table(place: Place) -> None:
    path = place.create("orders", freshness="1d")
    here = {
        "fluss://coordinator:9123": place.fluss.bootstrap,
        "shop.orders": str(path),
        "/srv/lake": str(place.fluss.warehouse),
    }
    printed = []
    for command in claimed("docs/apache-fluss.md", __file__):
        program, *arguments = shlex.split(command.text)
        assert program == "sluice"
        done = place.sluice(*(here.get(each, each) for each in arguments))
        assert done.exit_code == 0, done.output
        printed.append(done.output)
    tables, tiered = printed
    assert str(path) in tables
    assert f"{path}: committed to the lake" in tiered
