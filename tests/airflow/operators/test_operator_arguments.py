"""The arguments of single operators: names, defaults of the section, and what overrides them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from airflow.sdk import DAG

from sluice.errors import ConfigurationError
from sluice_airflow.claims.packs import Pack
from sluice_airflow.group import GroupArguments
from sluice_airflow.operators.acquire import SluiceAcquireOperator
from sluice_airflow.operators.drop import SluiceDropOperator
from sluice_airflow.operators.keep import SluiceKeepOperator
from sluice_airflow.operators.open import SluiceOpenOperator
from sluice_airflow.operators.settle import SluiceSettleOperator
from sluice_airflow.operators.tier import SluiceTierOperator
from sluice_airflow.release import ReleaseOfFailedRun

pytestmark = pytest.mark.airflow
SECTION = {
    "CONNECTION": "fluss_shop",
    "SPARK_CONNECTION": "spark_shop",
    "POOL": "lake",
    "TIER_RETRIES": "4",
    "TIER_RETRY_DELAY_SECONDS": "7",
    "TIER_TIMEOUT_SECONDS": "600",
    "HEARTBEAT_INTERVAL_SECONDS": "5",
    "JARS": "/srv/iceberg.jar",
}
PACK = Pack(label="", tables=[])


@pytest.fixture(autouse=True)
def section(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SECTION.items():
        monkeypatch.setenv(f"AIRFLOW__SLUICE__{name}", value)


def tier(**arguments: Any) -> SluiceTierOperator:
    return SluiceTierOperator(**{"task_id": "tier", "entry": PACK, **arguments})


def test_what_no_argument_gives_comes_from_the_section() -> None:
    task = tier()
    assert (task.pool, task.retries, task.retry_delay) == ("lake", 4, timedelta(seconds=7))
    assert (task.tier_timeout_seconds, task.heartbeat_interval_seconds) == (600, 5)
    assert (task._conn_id, task.jars, task.packages) == ("spark_shop", "/srv/iceberg.jar", None)
    keep = SluiceKeepOperator(task_id="keep", lease_id="job", drop_task_id="drop")
    acquire = SluiceAcquireOperator(task_id="acquire", lease_id="job")
    assert keep.heartbeat_interval_seconds == acquire.settings.heartbeat_interval_seconds == 5
    others = (
        SluiceOpenOperator(task_id="open"),
        SluiceSettleOperator(task_id="settle", entry=PACK),
        SluiceDropOperator(task_id="drop", lease_id="job"),
        ReleaseOfFailedRun(),
    )
    assert {task.fluss_conn_id for task in (tier(), keep, acquire, *others)} == {"fluss_shop"}


def test_the_call_and_default_args_override_the_section() -> None:
    usual = {"retries": 2, "pool": "usual", "retry_delay": timedelta(minutes=1)}
    with DAG("own", schedule=None, default_args={**usual, "tier_timeout_seconds": 60}):
        task, given = tier(), tier(task_id="given", retries=0, pool="given", tier_timeout_seconds=0)
    assert (task.retries, task.pool, task.retry_delay) == (2, "usual", timedelta(minutes=1))
    assert task.tier_timeout_seconds == 60
    assert (given.retries, given.pool, given.tier_timeout_seconds) == (0, "given", 0)
    with DAG("mapped", schedule=None) as dag:
        SluiceTierOperator.partial(task_id="tier").expand(entry=[PACK])
    assert (dag.get_task("tier").retries, dag.get_task("tier").pool) == (0, "default_pool")
    keep = {"task_id": "keep", "lease_id": "job", "drop_task_id": "drop"}
    assert SluiceKeepOperator(**keep, heartbeat_interval_seconds=9).heartbeat_interval_seconds == 9
    with pytest.raises(ConfigurationError, match="heartbeat_interval_seconds: expected"):
        tier(heartbeat_interval_seconds=0)


def test_the_two_names_of_the_spark_connection() -> None:
    with pytest.raises(ConfigurationError, match="spark_conn_id: expected the id of a connection"):
        tier(spark_conn_id=5)
    assert tier(spark_conn_id="a")._conn_id == "a"
    assert tier(conn_id="a")._conn_id == "a"
    assert tier(conn_id="a", spark_conn_id="a")._conn_id == "a"
    with DAG("own", schedule=None, default_args={"conn_id": "of_others"}):
        assert tier(spark_conn_id="a")._conn_id == "a"
        assert tier(task_id="other")._conn_id == "of_others"
    said = "task 'tier': spark_conn_id is 'a', but conn_id is 'b': give one of them"
    with pytest.raises(ConfigurationError, match=said):
        tier(conn_id="b", spark_conn_id="a")


def test_arguments_have_the_names_that_a_dag_gives_them() -> None:
    known = {*GroupArguments.__annotations__, "dry_run", "conf_keys"}
    for operator in (SluiceAcquireOperator, SluiceKeepOperator, SluiceTierOperator):
        own = operator.__init__.__wrapped__.__kwdefaults__ or {}  # type: ignore[attr-defined]
        assert {name for name in own if not name.endswith("_task_id")} <= known
