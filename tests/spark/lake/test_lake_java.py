"""What Java throws, through both gateways: that of our own JVM, and that of a Spark session.

A Spark session makes exceptions of its own from some of Java's.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from sluice.driver.lakes.jvm import Jvm
from sluice.errors import LakeCommitRefused, LakeNotWritable
from sluice.lake.iceberg.catalog.java import JavaThrew, JvmLost, java_errors, java_map, lake_errors
from sluice.lake.iceberg.lake import IcebergLake
from sluice.lake.iceberg.table import IcebergTable
from sluice.model import types as t
from sluice.rounds.values.expiry import TAG
from sluice.rounds.values.reasons import reason_of
from tests.support.models.tables import table_info

pytestmark = pytest.mark.spark
STACK_TRACES = "spark.sql.pyspark.jvmStacktrace.enabled"
BRANCH = f"IllegalArgumentException: Ref {TAG} is a branch not a tag"


@pytest.fixture(params=["jvm", "spark"])
def gateway(request: pytest.FixtureRequest) -> Any:
    """The gateway of our own JVM, and that of a Spark session."""
    found = request.getfixturevalue(request.param)
    return found.gateway if request.param == "jvm" else found.sparkContext._gateway


@pytest.fixture
def table(gateway: Any, tmp_path: Path) -> Iterator[IcebergTable]:
    """A table with a tiering snapshot, where a user has made a branch with the name of our tag."""
    lake = IcebergLake(gateway, {"type": "hadoop", "warehouse": str(tmp_path)})
    made = lake.create(table_info({"a": t.BIGINT}))
    snapshot_id = made.commit([], None, {}).snapshot_id
    made._loaded.java.manageSnapshots().removeTag(TAG).createBranch(TAG, snapshot_id).commit()
    yield made
    lake.close()


def test_an_illegal_argument_in_java_is_an_error_of_the_lake(gateway: Any) -> None:
    with pytest.raises(LakeNotWritable) as raised, lake_errors("make a list"):
        gateway.jvm.java.util.ArrayList(-1)
    said = "make a list: IllegalArgumentException: Illegal Capacity: -1"
    assert str(raised.value) == said
    reason = reason_of(raised.value)
    assert (reason.kind, reason.text) == ("LakeNotWritable", said)
    assert reason.deepest_cause == "IllegalArgumentException: Illegal Capacity: -1"


def test_a_commit_that_meets_an_illegal_argument_is_refused(table: IcebergTable) -> None:
    base = table.newest_tiering_snapshot()
    assert base is not None
    with pytest.raises(LakeCommitRefused, match=rf"commit to lake table db\.t: {BRANCH}"):
        table.commit([], base, {})
    assert table.newest_tiering_snapshot() == base
    with pytest.raises(LakeNotWritable, match=rf"tag snapshot .*: {BRANCH}"):
        table.tag(base.snapshot_id)


def test_an_exception_has_its_own_class_and_the_text_of_its_deepest_cause(gateway: Any) -> None:
    options = java_map(gateway, {"catalog-impl": "java.lang.Object"})
    with pytest.raises(JavaThrew) as raised, java_errors():
        gateway.jvm.org.apache.iceberg.CatalogUtil.buildIcebergCatalog("x", options, None)
    assert raised.value.kind == "IllegalArgumentException"
    assert str(raised.value).startswith("ClassCastException: class java.lang.Object cannot be cast")
    with pytest.raises(JavaThrew) as raised, java_errors():
        gateway.jvm.java.lang.Class.forName("a.B")
    assert (raised.value.kind, str(raised.value)) == (
        "ClassNotFoundException",
        "ClassNotFoundException: a.B",
    )


def test_a_text_stands_for_an_exception_that_spark_does_not_pass_on(spark: Any) -> None:
    from pyspark.errors.exceptions.captured import UnknownException

    error = UnknownException("java.io.IOException: gone", "\tat a.B.c(B.java:7)")
    spark.conf.set(STACK_TRACES, "true")
    try:
        assert "JVM stacktrace" in str(error)
        with pytest.raises(LakeNotWritable) as raised, lake_errors("read x"):
            raise error
        reason = reason_of(raised.value)
    finally:
        spark.conf.unset(STACK_TRACES)
    assert str(raised.value) == "read x: UnknownException: java.io.IOException: gone"
    assert reason.text == str(raised.value)


def test_other_errors_pass() -> None:
    with pytest.raises(KeyError), java_errors():
        raise KeyError("x")


def test_a_jvm_that_dies_before_it_tells_what_it_threw_is_lost() -> None:
    with Jvm(os.environ.get("SLUICE_TIERING_JARS", "")) as mortal:
        with pytest.raises(Py4JJavaError) as raised:
            mortal.gateway.jvm.java.util.ArrayList(-1)
        mortal.kill()
        with pytest.raises(JvmLost, match="the JVM does not answer"), java_errors():
            raise raised.value
        with pytest.raises(LakeNotWritable, match="make a list: the JVM does not answer"):
            _make_a_list(mortal.gateway)


def _make_a_list(gateway: Any) -> None:
    with lake_errors("make a list"):
        gateway.jvm.java.util.ArrayList(3)
