"""The lake that a cluster names for its tables, compared with the one that a round writes to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sluice.errors import LakeTableMissing
from sluice.model import TableInfo
from sluice.model import types as t
from sluice.rounds.plan.named_lake import other_lake
from tests.support.models.tables import table_info
from tests.unit.rounds.conftest import World

HERE = {"type": "hadoop", "warehouse": "/srv/lake"}


def named(options: dict[str, str]) -> TableInfo:
    """A table for which the cluster names this lake."""
    properties = {f"table.datalake.iceberg.{name}": value for name, value in options.items()}
    return table_info({"a": t.BIGINT}, properties=properties)


def of(world: World, options: dict[str, str]) -> None:
    """Has the cluster name this lake for the table of a world."""
    info = world.cluster.info
    assert info is not None
    properties = {**info.descriptor.properties, **named(options).descriptor.properties}
    descriptor = replace(info.descriptor, properties=properties)
    world.cluster.info = replace(info, descriptor=descriptor)


@pytest.mark.parametrize(
    ("there", "here"),
    [
        ("/srv/lake", "/srv/lake"),
        ("/srv/lake/", "/srv//lake"),
        ("file:/srv/lake", "/srv/lake"),
        ("file:///srv/lake", "FILE://localhost/srv/lake/"),
        ("s3a://bucket/lake", "s3://bucket/lake/"),
        ("s3n://bucket", "s3://bucket/"),
        ("lake", "/home/me/lake"),
        ("/home/me/data/lake", "./data/lake"),
    ],
)
def test_other_texts_of_one_warehouse(there: str, here: str) -> None:
    options = {"type": "hadoop", "warehouse": there}
    assert other_lake(named(options), {**HERE, "warehouse": here}) == ""


@pytest.mark.parametrize(
    ("there", "here", "said"),
    [
        (HERE, {**HERE, "warehouse": "/srv/other"}, "warehouse is /srv/lake there and /srv/other"),
        ({"warehouse": "s3://a/x"}, {"warehouse": "s3://b/x"}, "s3://a/x there and s3://b/x here"),
        ({"warehouse": "/a/lake"}, {"warehouse": "alake"}, "/a/lake there and alake here"),
        ({"type": "rest"}, {"type": "hive"}, "datalake.iceberg.type is rest there and hive here"),
        ({"catalog-impl": "org.A"}, {"catalog-impl": "org.B"}, "org.A there and org.B here"),
        (
            {"type": "rest", "uri": "http://catalog:8181", "warehouse": "main"},
            {"type": "REST", "uri": "http://localhost:8181/", "warehouse": "side"},
            "warehouse is main there and side here, datalake.iceberg.uri is http://catalog:8181"
            " there and http://localhost:8181/ here",
        ),
    ],
)
def test_another_lake_is_told_with_both_values(
    there: dict[str, str], here: dict[str, str], said: str
) -> None:
    told = other_lake(named(there), here)
    assert told.startswith("the cluster names another lake: datalake.iceberg.")
    assert said in told


@pytest.mark.parametrize(
    ("there", "here"),
    [
        ({}, HERE),
        ({"type": "Hadoop"}, HERE),
        ({**HERE, "uri": "thrift://a"}, {**HERE, "uri": "thrift://b"}),  # hadoop has no use for it
        ({"type": "rest", "uri": "HTTP://Catalog:8181/"}, {"uri": "http://catalog:8181"}),
        ({"s3.region": "a"}, {"s3.region": "b"}),
    ],
)
def test_what_cannot_tell_lakes_apart_is_not_compared(
    there: dict[str, str], here: dict[str, str]
) -> None:
    assert other_lake(named(there), here) == ""


def test_a_password_here_is_not_shown() -> None:
    there = {"type": "jdbc", "uri": "jdbc:postgresql://db/lake"}
    told = other_lake(named(there), {"type": "jdbc", "uri": "jdbc:postgresql://me:hidden@pg/lake"})
    assert "jdbc:postgresql://***@pg/lake here" in told


def test_the_first_round_notes_it_and_later_ones_do_not(world: World) -> None:
    """Once Fluss has registered a snapshot that this lake has, it is the right lake."""
    world.lake.options = {"type": "hadoop", "warehouse": "/here"}
    of(world, {"type": "hadoop", "warehouse": "/there"})
    world.append(0, 3)
    first = world.round()
    assert first.outcome == "committed"
    [note] = first.notes
    assert note.startswith(
        "the cluster names another lake: datalake.iceberg.warehouse is /there there and /here here."
    )
    world.append(0, 2)
    assert world.round().notes == ()


def test_a_table_that_was_tiered_elsewhere_is_refused_with_both_names(world: World) -> None:
    world.append(0, 3)
    world.round()
    world.lake.tables.clear()
    world.lake.options = {"type": "hadoop", "warehouse": "/here"}
    of(world, {"type": "hadoop", "warehouse": "/there"})
    said = r"is missing in mem:/ \(the cluster names another lake: .* /there there and /here here\)"
    with pytest.raises(LakeTableMissing, match=said):
        world.round()
