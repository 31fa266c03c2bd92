"""The DAG as Airflow loads it: shape, parameters, provider. One process, no cluster."""

import importlib
import json
import pydoc
import subprocess
import sys
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

import airflow as airflow_package
import pytest

from sluice_airflow.provider_info import get_provider_info
from tests.airflow.place import AirflowProcess
from tests.docs.blocks import claimed_blocks
from tests.support.network.ports import kept_port

pytestmark = pytest.mark.airflow


@pytest.fixture(scope="module")
def shape(airflow: AirflowProcess) -> dict:
    return airflow.ask("shape")


def test_tasks_and_edges(shape: dict) -> None:
    tasks = shape["tasks"]
    assert {name: task["upstream"] for name, task in tasks.items()} == {
        "open_job": [],
        "keep_claims": ["open_job"],
        "acquire_lease": ["open_job"],
        "per_application.tier": ["acquire_lease"],
        "per_application.settle": ["acquire_lease", "open_job", "per_application.tier"],
        "drop_lease": ["acquire_lease", "open_job", "per_application.settle"],
    }


def test_the_page_shows_the_tasks_in_their_order(shape: dict) -> None:
    [shown] = claimed_blocks("docs/airflow.md", __file__)
    names = [name.split(": ")[-1] for name in shown.content.strip().split(" -> ")]
    full = [next(task for task in shape["tasks"] if task.endswith(name)) for name in names]
    assert sorted([*full, "keep_claims"]) == sorted(shape["tasks"])
    for before, after in pairwise(full):
        assert before in shape["tasks"][after]["upstream"]


def test_setups_and_teardowns(shape: dict) -> None:
    tasks = shape["tasks"]
    assert [name for name, task in tasks.items() if task["setup"]] == ["open_job", "acquire_lease"]
    assert {name for name, task in tasks.items() if task["teardown"]} == {
        "keep_claims",
        "per_application.settle",
        "drop_lease",
    }
    assert [name for name, task in tasks.items() if task["fails_run"]] == ["drop_lease"]


def test_time_limits_are_on_tier_and_not_on_the_run(shape: dict) -> None:
    assert shape["dag"]["dagrun_timeout"] is None, "it would skip every teardown"
    assert shape["dag"]["callback"]
    tier = shape["tasks"]["per_application.tier"]
    assert (tier["execution_timeout"], tier["time_limit"], tier["retries"]) == (None, 3600, 1)


def test_every_minute_without_catch_up_one_at_a_time(shape: dict) -> None:
    dag = shape["dag"]
    assert (dag["schedule"], dag["catchup"], dag["max_active_runs"]) == ("* * * * *", False, 1)


def test_settings_come_from_the_section(airflow: AirflowProcess) -> None:
    ours = {"AIRFLOW__SLUICE__SCHEDULE": "none", "AIRFLOW__SLUICE__POOL": "lake"}
    shape = airflow.ask("shape", environment=ours)
    assert shape["dag"]["schedule"] is None
    assert shape["tasks"]["per_application.tier"]["pool"] == "lake"


def test_params_have_a_schema_and_words_for_the_form(shape: dict) -> None:
    params = shape["params"]
    assert set(params) == {"tables", "max_tables", "force", "wait", "dry_run", "spark_conf"}
    for param in params.values():
        assert param["title"]
        assert param["description"]
    assert (params["max_tables"]["minimum"], params["max_tables"]["maximum"]) == (1, 10_000)
    assert params["tables"]["default"] == ["*"]


@pytest.mark.parametrize(
    "conf",
    [
        {"tables": "sales.*"},
        {"tables": []},
        {"max_tables": 0},
        {"max_tables": 10_001},
        {"spark_conf": {"executor.memory": "2g"}},
        {"spark_conf": {"spark.executor.memory": None}},
    ],
)
def test_params_that_break_the_schema(airflow: AirflowProcess, conf: dict) -> None:
    with pytest.raises(AssertionError, match="ParamValidationError|Invalid input for param"):
        airflow.ask("validate", conf=conf)


def test_provider_is_found_and_describes_its_connection(
    airflow_environment: dict[str, str],
) -> None:
    code = (
        "import json, sys\n"
        "from airflow.providers_manager import ProvidersManager\n"
        "manager = ProvidersManager()\n"
        "hook = manager.hooks['fluss']\n"
        "fields = [n for n in manager.connection_form_widgets if n.startswith('extra__fluss__')]\n"
        "from sluice_airflow.config.settings import load_settings\n"
        "heavy = {'pyspark', 'pyroaring', 'sluice.server', 'sluice.lake', 'grpc'}\n"
        "heavy = sorted(heavy & set(sys.modules))\n"
        "print(json.dumps([hook.hook_class_name, fields, load_settings().schedule, heavy]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=airflow_environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    name, fields, schedule, heavy = json.loads(done.stdout.splitlines()[-1])
    assert name == "sluice_airflow.hooks.fluss.FlussHook"
    expected = ("transport", "work_uri", "datalake", "deployment_id", "tls", "tls_ca", "fs")
    is_31 = version("apache-airflow").startswith("3.1.")
    if not is_31:  # there, the form's own fields ask for flask_appbuilder
        assert fields == [f"extra__fluss__{name}" for name in expected]
    assert schedule == "* * * * *"
    assert heavy == []


def test_the_provider_keeps_to_the_convention() -> None:
    """Airflow's own schema, and names that exist."""
    info = get_provider_info()
    schema = Path(airflow_package.__file__).with_name("provider_info.schema.json")
    jsonschema: Any = importlib.import_module("jsonschema")  # Airflow's own, without types
    jsonschema.validate(info, json.loads(schema.read_text()))
    for kind in ("operators", "sensors", "hooks", "triggers"):
        for name in (name for found in info[kind] for name in found["python-modules"]):
            importlib.import_module(name)
    for name in (*info["extra-links"], *(uri["handler"] for uri in info["asset-uris"])):
        assert pydoc.locate(name) is not None, name


def test_a_task_starts_without_what_only_some_need(airflow_environment: dict[str, str]) -> None:
    code = (
        "import sys\n"
        "import sluice_airflow.dag\n"
        "print({'pyarrow', 'numpy', 'grpc', 'pyspark'} & set(sys.modules))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=airflow_environment, capture_output=True, text=True
    )
    assert done.stdout == "set()\n", done.stderr[-3000:]


def test_airflow_finds_the_module_where_it_looks_for_example_dags() -> None:
    """Else there is an error in the log of each task."""
    name = get_provider_info()["package-name"].replace("-", "_")
    module = importlib.import_module(name)
    assert not [path for path in module.__path__ if (Path(path) / "example_dags").exists()]


def test_the_keeper_task_never_fails(airflow_environment: dict[str, str]) -> None:
    """Neither without an API server that shows a triggerer, nor after a trigger that failed."""
    code = (
        "import json\n"
        "from types import SimpleNamespace as Some\n"
        "from pydoc import locate\n"
        "from sluice_airflow.operators import keep\n"
        "from sluice_airflow.triggers.keep import ARGUMENTS, KeepClaimsTrigger\n"
        "keep.HEALTH_WAIT_S = 0.1\n"
        "task = keep.SluiceKeepOperator(task_id='keep', lease_id='job', drop_task_id='drop')\n"
        "try: task.execute({'dag_run': Some(triggering_user_name='me', run_id='r')})\n"
        "except BaseException as error: assert type(error).__name__ == 'TaskDeferred', error\n"
        "else: raise AssertionError('it may run')\n"
        "task.resume_execution('__fail__', {'error': 'Trigger failure'}, {})\n"
        "trigger = KeepClaimsTrigger('fluss', 'job', 'dag', 'r', 'drop', 20.0, 1.5)\n"
        "path, arguments = trigger.serialize()\n"
        "again = locate(path)(**arguments)\n"
        "assert again.serialize() == (path, arguments) and set(arguments) == set(ARGUMENTS)\n"
        "print(json.dumps(keep.missing_triggerer()))\n"
    )
    with kept_port() as port:
        url = f"http://127.0.0.1:{port}"
        own = {"AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{url}/execution/"}
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**airflow_environment, **own},
            capture_output=True,
            text=True,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert said.startswith(f"cannot read from {url}/api/v2/monitor/health whether a triggerer runs")


def test_provider_info_imports_nothing() -> None:
    code = (
        "import sys\n"
        "for name in ('airflow', 'sluice', 'pyspark', 'grpc'): sys.modules[name] = None\n"
        "from sluice_airflow.provider_info import get_provider_info\n"
        "assert get_provider_info()['connection-types'][0]['connection-type'] == 'fluss'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
