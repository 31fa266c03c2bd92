"""The sensor SluiceTableSensor and its trigger; only Airflow's side is a fake."""

from __future__ import annotations

import asyncio
import io
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.triggers.base import TriggerEvent

from sluice.model import Reason, TablePath
from sluice_airflow.airflow_api.airflow_names import (
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowSkipException,
)
from sluice_airflow.operators.keep import TIMED_OUT
from sluice_airflow.sensors.table import SluiceTableSensor
from sluice_airflow.triggers import table as triggers
from sluice_airflow.triggers.table import TableTieredTrigger
from tests.airflow.place import wait_until
from tests.docs.blocks import claimed_blocks
from tests.docs.outputs import matches
from tests.unit.client.conftest import Cluster
from tests.unit.client.conftest import client as client
from tests.unit.client.tiering.test_idle_check import Shop
from tests.unit.client.tiering.test_idle_check import shop as shop

try:
    from airflow.sdk.exceptions import TaskDeferred
except ImportError:  # Airflow 3.1
    from airflow.exceptions import TaskDeferred

pytestmark = pytest.mark.filterwarnings("default")
"""Airflow 3.1 warns of parts of its own."""
ORDERS = TablePath("shop", "orders")


class Airflow:
    """The health of the triggerer, and the context of a task."""

    triggerer = "healthy"
    user = "admin"

    def urlopen(self, url: str, **_: Any) -> io.BytesIO:
        assert url.endswith("/api/v2/monitor/health")
        return io.BytesIO(json.dumps({"triggerer": {"status": self.triggerer}}).encode())

    def context(self) -> Any:
        return {"dag_run": SimpleNamespace(triggering_user_name=self.user), "ti": None}


@pytest.fixture
def cluster(tmp_path: Any) -> Iterator[Cluster]:
    found = Cluster(tmp_path / "data", "grpc")
    yield found
    found.close()


@pytest.fixture
def airflow(monkeypatch: pytest.MonkeyPatch, cluster: Cluster) -> Airflow:
    fake = Airflow()
    monkeypatch.setattr("urllib.request.urlopen", fake.urlopen)
    connect_to(cluster.address, monkeypatch)
    return fake


def connect_to(address: str, monkeypatch: pytest.MonkeyPatch, **more: Any) -> None:
    host, port = address.removeprefix("grpc://").split(":")
    content = {"conn_type": "fluss", "host": host, "port": int(port), **more}
    monkeypatch.setenv("AIRFLOW_CONN_FLUSS_DEFAULT", json.dumps(content))


@pytest.fixture
def orders(shop: Shop) -> TablePath:
    path = shop.create("orders")
    shop.write(path, range(10))
    return path


def sensor(**arguments: Any) -> SluiceTableSensor:
    given = {"poke_interval": 0.05, "timeout": 30, "deferrable": False, **arguments}
    return SluiceTableSensor(task_id="wait", table="shop.orders", **given)


def deferred(task: SluiceTableSensor, airflow: Airflow) -> TableTieredTrigger:
    """The trigger of a task that defers, as the triggerer makes it anew."""
    with pytest.raises(TaskDeferred) as found:
        task.execute(airflow.context())
    trigger = found.value.trigger
    path, arguments = trigger.serialize()
    assert path == "sluice_airflow.triggers.table.TableTieredTrigger"
    assert found.value.method_name == "execute_complete"
    left_s = trigger.until - time.time()
    assert found.value.timeout > timedelta(seconds=left_s + 60)
    return TableTieredTrigger(**json.loads(json.dumps(arguments)))


class Triggerer:
    """Runs triggers in an event loop of a thread."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool
        self.cancel: Callable[[], object] = lambda: None
        self.running: list[Future[dict[str, Any]]] = []

    def start(self, trigger: TableTieredTrigger) -> Future[dict[str, Any]]:
        async def only_event() -> dict[str, Any]:
            task = asyncio.current_task()
            assert task is not None
            self.cancel = partial(asyncio.get_running_loop().call_soon_threadsafe, task.cancel)
            [event] = [event async for event in trigger.run()]
            assert type(event) is TriggerEvent
            payload: dict[str, Any] = json.loads(json.dumps(event.payload))
            return payload

        self.running.append(self._pool.submit(lambda: asyncio.run(only_event())))
        return self.running[-1]


@pytest.fixture
def triggerer() -> Iterator[Triggerer]:
    with ThreadPoolExecutor(1) as pool:
        found = Triggerer(pool)
        yield found
        if not all(one.done() for one in found.running):  # after a failed test
            found.cancel()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as found:
        yield found


def lines(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> str:
    return caplog.text + capfd.readouterr().err


def test_rows_that_are_written_later_are_not_waited_for(
    airflow: Airflow, shop: Shop, orders: TablePath, pool: ThreadPoolExecutor
) -> None:
    ends = shop.ends(orders)
    task = sensor()
    running = pool.submit(task.execute, airflow.context())
    wait_until(lambda: task._watch is not None and not task._watch.may_move, 20, "its first look")
    shop.write(orders, range(10, 20))
    [claim] = shop.claim(orders)
    shop.register(claim, ends)
    assert running.result(20) == {"lake_snapshot_id": "1", "offsets_sum": 10}


def test_a_deferred_sensor_keeps_what_it_waits_for(
    airflow: Airflow, shop: Shop, orders: TablePath, triggerer: Triggerer
) -> None:
    """The trigger starts twice, as after a restart of the triggerer."""
    ends = shop.ends(orders)
    task = sensor(deferrable=True)
    trigger = deferred(task, airflow)
    shop.write(orders, range(10, 20))
    first = triggerer.start(TableTieredTrigger(**trigger.serialize()[1]))
    time.sleep(0.3)
    triggerer.cancel()
    with pytest.raises(asyncio.CancelledError):
        first.result(20)
    second = triggerer.start(trigger)
    [claim] = shop.claim(orders)
    shop.register(claim, ends)
    event = second.result(20)
    assert event["tiered"] == {"lake_snapshot_id": "1", "offsets_sum": 10}
    assert event["line"].startswith("shop.orders: 10 rows in ")
    found = sensor().resume_execution("execute_complete", {"event": event}, airflow.context())
    assert found == {"lake_snapshot_id": "1", "offsets_sum": 10}


def test_a_table_that_is_tiered_already_needs_no_trigger(
    airflow: Airflow, shop: Shop, orders: TablePath
) -> None:
    shop.tier(orders)
    found = sensor(deferrable=True).execute(airflow.context())
    assert found == {"lake_snapshot_id": "1", "offsets_sum": 10}


def test_a_trigger_says_why_it_is_of_no_use_to_wait(
    airflow: Airflow, shop: Shop, orders: TablePath, triggerer: Triggerer
) -> None:
    task = sensor(deferrable=True)
    running = triggerer.start(deferred(task, airflow))
    shop.client.admin.drop_table(orders)
    event = running.result(20)
    assert event["failure"].startswith("shop.orders: the table does not exist")
    with pytest.raises(AirflowFailException, match="`sluice tables` lists the tables"):
        task.resume_execution("execute_complete", {"event": event}, airflow.context())


def test_a_trigger_ends_at_the_timeout_with_what_is_missing_and_why(
    airflow: Airflow, shop: Shop, orders: TablePath, triggerer: Triggerer
) -> None:
    [claim] = shop.claim(orders)
    shop.client.tiering.failed(claim, Reason.from_text("no space is left", kind="LakeNotWritable"))
    task = sensor(deferrable=True, timeout=0.5)
    event = triggerer.start(deferred(task, airflow)).result(20)
    with pytest.raises(AirflowSensorTimeout) as raised:
        task.resume_execution("execute_complete", {"event": event}, airflow.context())
    assert_says_why(raised.value)


def assert_says_why(error: BaseException) -> None:
    """As the page says it, but sooner."""
    [shown] = claimed_blocks("docs/airflow-sensor.md", __file__)
    seen = f"{type(error).__name__}: {error}".replace("timeout of 0.5 s", "timeout of 1 h")
    assert matches(shown.content.splitlines(), [seen]), seen


def test_a_task_ends_at_the_timeout_with_what_is_missing_and_why(
    airflow: Airflow, shop: Shop, orders: TablePath
) -> None:
    [claim] = shop.claim(orders)
    shop.client.tiering.failed(claim, Reason.from_text("no space is left", kind="LakeNotWritable"))
    with pytest.raises(AirflowSensorTimeout) as raised:
        sensor(timeout=0.5).execute(airflow.context())
    assert_says_why(raised.value)


@pytest.mark.parametrize("deferrable", [False, True])
@pytest.mark.parametrize("lenient", ["soft_fail", "never_fail"])
def test_a_lenient_sensor_is_skipped(
    airflow: Airflow, shop: Shop, orders: TablePath, deferrable: bool, lenient: str
) -> None:
    task = sensor(timeout=0.1, deferrable=deferrable, **{lenient: True})
    shop.client.admin.drop_table(orders)
    with pytest.raises(AirflowSkipException):
        task.execute(airflow.context())
    with pytest.raises(AirflowSkipException):
        task.resume_execution(
            "execute_complete", {"event": {"timed_out": "late"}}, airflow.context()
        )
    with pytest.raises(AirflowSkipException):
        task.resume_execution("__fail__", {"error": TIMED_OUT}, airflow.context())


def test_a_deferral_that_no_triggerer_ends(airflow: Airflow) -> None:
    with pytest.raises(AirflowSensorTimeout, match="see that `airflow triggerer` runs"):
        sensor().resume_execution("__fail__", {"error": TIMED_OUT}, airflow.context())


@pytest.mark.parametrize(
    ("triggerer", "user", "words"),
    [
        ("unhealthy", "admin", "no triggerer runs (`airflow triggerer` starts a triggerer)"),
        ("healthy", "dag_test", "a test run has no triggerer"),
    ],
)
def test_without_a_triggerer_the_task_looks_itself(
    airflow: Airflow,
    shop: Shop,
    orders: TablePath,
    pool: ThreadPoolExecutor,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    triggerer: str,
    user: str,
    words: str,
) -> None:
    airflow.triggerer, airflow.user = triggerer, user
    running = pool.submit(sensor(deferrable=True).execute, airflow.context())
    [claim] = shop.claim(orders)
    shop.register(claim)
    assert running.result(20)["lake_snapshot_id"] == "1"
    said = lines(caplog, capfd)
    assert said.count(f"{words}; this task looks itself every 0.05 s") == 1


def test_now_is_resolved_before_the_deferral(
    airflow: Airflow,
    shop: Shop,
    orders: TablePath,
    cluster: Cluster,
    pool: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While the cluster is away, the task stays: another triggerer would find other rows."""
    monkeypatch.setattr("sluice_airflow.goals.table_watch.CALL_MS", 300)
    cluster.stop()
    task = sensor(deferrable=True)
    running = pool.submit(task.execute, airflow.context())
    wait_until(lambda: task._watch is not None and "error" in task._watch._said, 20, "a look")
    assert not running.done()
    cluster.start()
    with pytest.raises(TaskDeferred) as found:
        running.result(20)
    assert found.value.trigger.watch["goal"]["rows"] == 10


def test_a_trigger_outlasts_a_cluster_and_a_connection_that_are_away(
    airflow: Airflow,
    shop: Shop,
    orders: TablePath,
    cluster: Cluster,
    triggerer: Triggerer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sluice_airflow.goals.table_watch.CALL_MS", 300)
    trigger = deferred(sensor(deferrable=True), airflow)
    monkeypatch.delenv("AIRFLOW_CONN_FLUSS_DEFAULT")
    running = triggerer.start(trigger)
    time.sleep(0.3)
    cluster.stop()
    connect_to(cluster.address, monkeypatch)
    time.sleep(0.5)
    assert not running.done()
    cluster.start()
    [claim] = shop.claim(orders)
    shop.register(claim)
    assert running.result(30)["tiered"]["lake_snapshot_id"] == "1"


def test_a_cancelled_trigger_closes_its_client(
    airflow: Airflow,
    orders: TablePath,
    triggerer: Triggerer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    closed = []
    really_open = triggers._open

    def opened(config: Any) -> Any:
        client = really_open(config)
        close = client.close
        monkeypatch.setattr(client, "close", lambda: (closed.append(client), close()))
        return client

    monkeypatch.setattr(triggers, "_open", opened)
    running = triggerer.start(deferred(sensor(deferrable=True), airflow))
    time.sleep(0.3)
    assert closed == []
    triggerer.cancel()
    with pytest.raises(asyncio.CancelledError):
        running.result(20)
    assert len(closed) == 1


def test_a_paused_table_fails_the_sensor_if_it_is_asked_to(
    airflow: Airflow, shop: Shop, orders: TablePath, triggerer: Triggerer
) -> None:
    task = sensor(deferrable=True, fail_on_paused=True)
    running = triggerer.start(deferred(task, airflow))
    shop.client.statuses.pause(orders)
    event = running.result(20)
    with pytest.raises(AirflowFailException, match="`sluice resume shop.orders` ends the pause"):
        task.resume_execution("execute_complete", {"event": event}, airflow.context())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"until": "soon"}, "wait: until: 'soon' is not understood; use 'now', a time such as"),
        ({"until": {"9": 1}}, "shop.orders: .* has no bucket '9'"),
    ],
)
def test_a_wrong_argument_fails_at_once(
    airflow: Airflow, orders: TablePath, arguments: dict[str, Any], words: str
) -> None:
    with pytest.raises(AirflowFailException, match=words):
        sensor(**arguments).execute(airflow.context())


def test_a_wrong_name_of_a_table_fails_at_once(airflow: Airflow) -> None:
    task = SluiceTableSensor(task_id="wait", table="orders")
    with pytest.raises(
        AirflowFailException, match=r"'orders' is not a table; write DATABASE\.TABLE"
    ):
        task.execute(airflow.context())


def test_a_wrong_connection_fails_at_once(
    airflow: Airflow, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect_to(cluster.address, monkeypatch, extra={"transport": "http"})
    with pytest.raises(AirflowFailException, match="transport 'http'; use grpc or fluss"):
        sensor().execute(airflow.context())


def test_reschedule_is_refused_with_what_to_use() -> None:
    with pytest.raises(ValueError, match=r"task 'wait': mode='reschedule' .* use deferrable=True"):
        sensor(mode="reschedule")
    assert sensor(mode="reschedule", deferrable=True).mode == "poke"


@pytest.mark.parametrize("default", ["True", "False"])
def test_airflow_says_whether_sensors_defer(default: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE", default)
    task = SluiceTableSensor(task_id="wait", table="shop.orders")
    assert task.deferrable == (default == "True")
    assert (task.until, task.poke_interval) == ("now", 30)


def test_the_log_has_no_password(
    airflow: Airflow,
    shop: Shop,
    orders: TablePath,
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Another worker may know no secret of this connection, and report it as a reason."""
    connect_to(cluster.address, monkeypatch, password="planted4716")
    [claim] = shop.claim(orders)
    shop.client.tiering.failed(claim, Reason.from_text("the proxy refused planted4716"))
    with pytest.raises(AirflowSensorTimeout) as raised:
        sensor(timeout=0.1).execute(airflow.context())
    assert str(raised.value).endswith("last error: the proxy refused ***")
    said = lines(caplog, capfd)
    assert "last error: the proxy refused ***" in said
    assert "planted4716" not in said.partition("waiting until")[2]
