"""Tasks whose API server does not answer; only Airflow's side is a fake."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import (
    ConnectionResult,
    ErrorResponse,
    GetConnection,
    GetVariable,
    PutVariable,
    VariableResult,
)

from sluice.errors import ConfigurationError
from sluice_airflow.airflow_api.airflow_names import (
    AirflowFailException,
    AirflowNotFoundException,
    AirflowTaskTimeout,
)
from sluice_airflow.airflow_api.api_server import (
    AWAY_DELAY,
    AWAY_RETRIES,
    ApiServerAway,
    RetriedIfAway,
    connection_of,
    fails_at_once,
    is_away,
    variable_of,
)
from sluice_airflow.config.connection import FlussConnection
from sluice_airflow.config.deployment import VARIABLE, deployment_id
from sluice_airflow.config.settings import load_settings
from sluice_airflow.group import lake_tiering_group
from sluice_airflow.hooks.fluss import FlussHook
from sluice_airflow.operators.maintain import SluiceMaintainOperator
from sluice_airflow.operators.open import SluiceOpenOperator
from sluice_airflow.operators.tier import SluiceTierOperator
from sluice_airflow.submit.submission import submission_of
from sluice_airflow.tier.spark_driver import SparkDriverOperator

pytestmark = pytest.mark.filterwarnings("default")
"""Airflow 3.1 warns of parts of its own."""
REFUSED = {"status_code": None, "message": "[Errno 111] Connection refused"}


def error(kind: str, **detail: Any) -> AirflowRuntimeError:
    return AirflowRuntimeError(ErrorResponse(error=ErrorType[kind], detail=detail))


class ApiServer:
    """Answers what a task asks its supervisor. It is away for the first so many questions."""

    def __init__(self) -> None:
        self.away = 0
        self.refusal: BaseException | None = None
        self.asked: list[str] = []
        """The connections that it was asked for."""
        self.variables: dict[str, str] = {}
        self.connections: dict[str, ConnectionResult] = {}

    def define(self, conn_id: str, conn_type: str, host: str) -> None:
        fields = dict.fromkeys(("schema", "login", "password", "port", "extra"))
        found = ConnectionResult(conn_id=conn_id, conn_type=conn_type, host=host, **fields)
        self.connections[conn_id] = found

    def send(self, msg: Any) -> Any:
        if isinstance(msg, GetConnection):
            self.asked.append(msg.conn_id)
        if isinstance(msg, GetConnection | GetVariable) and self.away > 0:
            self.away -= 1
            raise error("API_SERVER_ERROR", **REFUSED)
        if isinstance(msg, GetConnection | GetVariable) and self.refusal is not None:
            raise self.refusal
        if isinstance(msg, GetConnection):
            return self.connections.get(msg.conn_id) or ErrorResponse(
                error=ErrorType.CONNECTION_NOT_FOUND
            )
        if isinstance(msg, GetVariable):
            if msg.key not in self.variables:
                return ErrorResponse(error=ErrorType.VARIABLE_NOT_FOUND)
            return VariableResult(key=msg.key, value=self.variables[msg.key])
        if isinstance(msg, PutVariable):
            self.variables[msg.key] = str(msg.value)
        return None


@pytest.fixture
def api_server(monkeypatch: pytest.MonkeyPatch) -> ApiServer:
    fake = ApiServer()
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", fake, raising=False)
    return fake


def context() -> Any:
    return {"dag": SimpleNamespace(dag_id="d"), "run_id": "r"}


def test_an_id_that_cannot_be_read_is_not_made_anew(api_server: ApiServer) -> None:
    """The claims and leases of all runs would belong to nobody."""
    api_server.variables[VARIABLE] = "airflow-first"
    connection = FlussConnection.parse("c", "fluss", None, {})
    api_server.away = 2
    with pytest.raises(ApiServerAway, match=f"Variable {VARIABLE}: .*Connection refused"):
        deployment_id(connection)
    assert api_server.variables == {VARIABLE: "airflow-first"}
    api_server.away = 1
    assert deployment_id(connection) == "airflow-first", "it answers again"


@pytest.mark.parametrize("status_code", [403, 429])
def test_an_id_that_may_not_be_read_is_not_made_anew(
    api_server: ApiServer, status_code: int
) -> None:
    api_server.variables[VARIABLE] = "airflow-first"
    api_server.refusal = error("API_SERVER_ERROR", status_code=status_code)
    with pytest.raises(AirflowRuntimeError):
        deployment_id(FlussConnection.parse("c", "fluss", None, {}))
    with pytest.raises(AirflowRuntimeError):
        connection_of("fluss_default")
    assert api_server.variables == {VARIABLE: "airflow-first"}


def test_the_first_run_makes_an_id(api_server: ApiServer) -> None:
    made = deployment_id(FlussConnection.parse("c", "fluss", None, {}))
    assert api_server.variables == {VARIABLE: made}
    assert variable_of("another") is None


def test_a_connection_that_cannot_be_read_is_not_missing(api_server: ApiServer) -> None:
    api_server.define("fluss_default", "fluss", "fluss")
    api_server.away = 2
    with pytest.raises(ApiServerAway, match="connection fluss_default: .*Connection refused"):
        FlussHook().config()
    api_server.away = 1
    assert FlussHook().config().bootstrap == "grpc://fluss:9123", "it answers again"
    api_server.away = 2
    with pytest.raises(ApiServerAway, match="connection spark_default"):
        submission_of(load_settings(), {})
    with pytest.raises(ConfigurationError, match="connection 'spark_default' does not exist"):
        submission_of(load_settings(), {})


@pytest.fixture(params=["tier", "maintain"])
def driver_task(request: pytest.FixtureRequest) -> SparkDriverOperator:
    if request.param == "maintain":
        return SluiceMaintainOperator(task_id="maintain", tables="shop.*")
    return SluiceTierOperator(task_id="tier", entry={"label": "shop", "tables": []})


def test_no_driver_starts_on_another_cluster(
    api_server: ApiServer, driver_task: SparkDriverOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow's provider takes yarn for a connection that it cannot read."""
    monkeypatch.setenv("HADOOP_CONF_DIR", "/etc/hadoop/conf")
    monkeypatch.setenv("PATH", "/nowhere")  # no spark-submit
    api_server.define("spark_default", "spark", "local[2]")
    api_server.away = 2
    with pytest.raises(ApiServerAway, match="connection spark_default: .*Connection refused"):
        driver_task._run_driver(context())
    api_server.refusal = error("API_SERVER_ERROR", status_code=403)
    with pytest.raises(AirflowRuntimeError):
        driver_task._run_driver(context())
    assert driver_task._hook is None
    api_server.refusal = None
    assert driver_task._get_hook().master == "local[2]"


def test_a_missing_spark_connection_stands_for_yarn(
    api_server: ApiServer, driver_task: SparkDriverOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("HADOOP_CONF_DIR", "YARN_CONF_DIR"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(ConfigurationError, match="connection 'spark_default' does not exist"):
        driver_task._run_driver(context())
    monkeypatch.setenv("YARN_CONF_DIR", "/etc/hadoop/conf")
    hook = driver_task._get_hook()
    assert (hook.master, hook.deploy_mode, hook.binary) == ("yarn", None, "spark-submit")
    assert submission_of(load_settings(), {}).master == "yarn"


def test_the_connection_that_is_checked_is_the_one_that_is_used(
    api_server: ApiServer, driver_task: SparkDriverOperator
) -> None:
    api_server.define("fluss_default", "fluss", "fluss")
    api_server.define("spark_default", "spark", "nonsense://host")
    if isinstance(driver_task, SluiceMaintainOperator):
        with pytest.raises(AirflowFailException):
            driver_task._checked(context())
        api_server.define("spark_default", "spark", "yarn")
    for _ in range(2):  # applications
        assert driver_task._get_hook().master == "nonsense://host"
    assert api_server.asked.count("spark_default") == 1


def test_a_time_limit_ends_the_task_though_nobody_answers(
    api_server: ApiServer, tmp_path: Path
) -> None:
    """Airflow calls ``on_kill`` for its own error only."""

    def away(**_: Any) -> None:
        raise error("API_SERVER_ERROR", **REFUSED)

    plan = f"file://{tmp_path}/run/0-1/plan.json"
    of_claim = {"table_id": 0, "tiering_epoch": 1, "coordinator_epoch": 1, "lease_id": "run"}
    entry = {"label": "shop.a", "tables": [{"table": "shop.a", "plan_uri": plan, **of_claim}]}
    task = SluiceTierOperator(task_id="tier", entry=entry)
    api_server.refusal = AirflowTaskTimeout("execution_timeout")
    names = {"dag_id": "d", "run_id": "r", "task_id": "tier", "map_index": 0, "try_number": 1}
    ti = SimpleNamespace(id="try", xcom_push=away, **names)
    with pytest.raises(AirflowTaskTimeout):
        task.execute({**context(), "ti": ti})
    failure = json.loads((tmp_path / "run/0-1/failure-try.json").read_text())
    assert failure["kind"] == "TierTimedOut"


def test_outside_of_tasks_a_missing_connection_is_missing() -> None:
    with pytest.raises(AirflowNotFoundException):
        connection_of("nowhere")


def test_only_an_absent_api_server_is_waited_for(api_server: ApiServer) -> None:
    """The operator's own retries are for all of its errors."""
    usual = SluiceOpenOperator(task_id="open_job", fluss_conn_id="nowhere")
    assert (usual.retries, usual.retry_delay) == (AWAY_RETRIES, AWAY_DELAY)
    own = SluiceOpenOperator(
        task_id="own", fluss_conn_id="nowhere", retries=1, retry_delay=timedelta(minutes=1)
    )
    assert (own.retries, own.retry_delay) == (1, timedelta(minutes=1))
    for operator in (usual, own):
        api_server.away = 2
        with pytest.raises(ApiServerAway):
            operator.execute(context())
    with pytest.raises(AirflowFailException, match="AirflowNotFoundException: .*`nowhere`"):
        usual.execute(context())
    with pytest.raises(AirflowNotFoundException):
        own.execute(context())


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (error("API_SERVER_ERROR", **REFUSED), True),
        (error("API_SERVER_ERROR", status_code=503), True),
        (error("API_SERVER_ERROR", status_code=422), False),
        (error("CONNECTION_NOT_FOUND"), False),
        (ApiServerAway("away"), True),
        (OSError("Connection refused"), False),  # of another server
    ],
)
def test_which_errors_are_its(found: Exception, expected: bool) -> None:
    assert is_away(found) is expected


def test_a_task_that_is_away_twice_says_so(capfd: pytest.CaptureFixture[str]) -> None:
    class Reads(RetriedIfAway):
        @fails_at_once
        def execute(self, context: Any) -> None:
            raise error("API_SERVER_ERROR", **REFUSED)

    with pytest.raises(AirflowRuntimeError):
        Reads(task_id="reads").execute(context())
    assert "Airflow's API server does not answer" in capfd.readouterr().err


@pytest.mark.parametrize("given", [{}, {"retries": 2}, {"retries": 0}])
def test_all_tasks_of_a_group_but_tier_have_these_retries(given: dict[str, Any]) -> None:
    make: Callable[..., DAG] = DAG
    with make("d", schedule=None, default_args=given) as dag:
        lake_tiering_group()
    retries = {task.task_id.rpartition(".")[2]: task.retries for task in dag.tasks}
    assert retries.pop("tier") == 1
    names = {"open_job", "acquire_lease", "keep_claims", "settle", "drop_lease", "check_tables"}
    assert retries == dict.fromkeys(names, given.get("retries", AWAY_RETRIES))
