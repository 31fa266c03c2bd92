"""What Iceberg's own CatalogUtil demands, and a JVM that has no Iceberg."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from sluice.artifacts.iceberg import CATALOGS, FENCE, installed_iceberg
from sluice.checks import iceberg_options
from sluice.driver.lakes.jvm import Jvm
from sluice.errors import ConfigurationError
from sluice.lake.iceberg.catalog.java import JavaThrew, java_errors, java_map
from sluice.lake.iceberg.lake import IcebergLake
from sluice.rounds.values.reasons import reason_of

GIVEN = {"uri": "http://127.0.0.1:1/api/v2", "warehouse": "file:///nowhere/lake"}


def opened(jvm: Jvm, options: dict[str, str]) -> str:
    """Why Iceberg opens no such catalog; empty if it does."""
    util = jvm.gateway.jvm.org.apache.iceberg.CatalogUtil
    conf = jvm.gateway.jvm.org.apache.hadoop.conf.Configuration()
    try:
        with java_errors():
            util.buildIcebergCatalog("test", java_map(jvm.gateway, options), conf)
    except JavaThrew as thrown:
        return str(thrown)
    return ""


def test_the_types_are_those_that_iceberg_knows(jvm: Jvm) -> None:
    util: Any = jvm.gateway.jvm.org.apache.iceberg.CatalogUtil
    fields = jvm.gateway.jvm.java.lang.Class.forName(CATALOGS).getFields()
    names = [field.getName() for field in fields]
    types = {getattr(util, n) for n in names if n.startswith("ICEBERG_CATALOG_TYPE_")}
    assert types == set(iceberg_options.NEEDS)
    assert "Unknown catalog type" in opened(jvm, {"type": "hadop", **GIVEN})


@pytest.mark.parametrize("kind", [kind for kind, needs in iceberg_options.NEEDS.items() if needs])
def test_iceberg_demands_the_same_options(kind: str, jvm: Jvm) -> None:
    for option in iceberg_options.NEEDS[kind]:
        options = {"type": kind, **{k: v for k, v in GIVEN.items() if k != option}}
        assert opened(jvm, options), option
        assert iceberg_options.missing(options), option
    whole = {"type": kind, **{option: GIVEN[option] for option in iceberg_options.NEEDS[kind]}}
    assert not iceberg_options.missing(whole)


@pytest.mark.parametrize(
    ("options", "refused"),
    [
        ({"type": "hadoop", "catalog-impl": "a.B", **GIVEN}, True),
        ({"catalog-impl": "", **GIVEN}, True),
        ({"type": "", **GIVEN}, True),
        ({"type": "hadoop ", **GIVEN}, True),
        ({"type": "HADOOP", **GIVEN}, False),
        ({}, False),
    ],
)
def test_iceberg_refuses_the_same(options: dict[str, str], refused: bool, jvm: Jvm) -> None:
    assert bool(opened(jvm, options)) is refused
    assert bool(iceberg_options.wrong(options)) is refused


def class_file(name: str) -> bytes:
    """A class of nothing but its name, as Java reads it."""

    def text(value: str) -> bytes:
        return b"\x01" + len(value).to_bytes(2, "big") + value.encode()

    constants = text(name.replace(".", "/")) + b"\x07\0\x01" + text("java/lang/Object")
    head = bytes.fromhex("cafebabe 0000 0034 0005")  # of Java 8, with constants from 1 to 4
    # public; the class is constant 2, what it extends is 4; it has no members
    return head + constants + b"\x07\0\x03" + bytes.fromhex("0021 0002 0004") + bytes(8)


@pytest.mark.parametrize(
    ("classes", "told"),
    [
        ([], f"Iceberg's runtime is missing on Spark's class path (no class {CATALOGS}). Set it"),
        ([CATALOGS], f"(no class {FENCE}). Set it with jars or packages in section sluice"),
    ],
)
def test_a_jvm_without_iceberg(classes: list[str], told: str, tmp_path: Path) -> None:
    with ZipFile(tmp_path / installed_iceberg().name, "w") as jar:
        for name in classes:
            jar.writestr(name.replace(".", "/") + ".class", class_file(name))
    with Jvm(str(tmp_path)) as jvm, pytest.raises(ConfigurationError) as caught:
        IcebergLake(jvm.gateway, {"type": "hadoop", "warehouse": str(tmp_path / "lake")})
    assert told in str(caught.value)
    reason = reason_of(caught.value)
    assert (reason.kind, reason.retryable) == ("ConfigurationError", False)
