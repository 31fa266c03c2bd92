"""Deploy mode cluster: what spark-submit asks Kubernetes for, and what is told of a lost driver."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import urllib.request
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from sluice.artifacts.java import pyspark_jars
from sluice.artifacts.spark_files import driver_script
from sluice.driver.lakes.jvm import Jvm, iceberg_jar
from sluice.errors import DriverLost, DriverRefused, SparkSettingsWrong
from sluice_airflow.provider_info import OPTIONS
from sluice_airflow.tier.errors import why_no_outcome
from tests.docs.blocks import claimed_blocks
from tests.support.clusters.kubernetes_api import KILLED, KubernetesApi, kubernetes_api
from tests.support.clusters.yarn_client import launch_of
from tests.support.programs.installed import JARS
from tests.support.programs.processes import wait_for

pytestmark = pytest.mark.airflow
PAGE = [block.content for block in claimed_blocks("docs/spark-clusters.md", __file__)]
ARGUMENTS = ["--pack", "s3://bucket/sluice/run/pack.json", "--attempt", "a1"]
PLANTED = "geheim-4711"
SETTINGS = {"SLUICE_SETTINGS": json.dumps({"client.password": PLANTED})}


class Client:
    """As much of Kubernetes' Python client as the provider uses."""

    def __init__(self, api: KubernetesApi) -> None:
        self._api = api

    def delete_namespaced_pod(self, name: str, namespace: str, **_words: object) -> None:
        url = f"{self._api.address}/api/v1/namespaces/{namespace}/pods/{name}"
        with urllib.request.urlopen(urllib.request.Request(url, method="DELETE"), timeout=30):
            pass


@pytest.fixture
def with_package(monkeypatch: pytest.MonkeyPatch) -> Callable[[KubernetesApi], None]:
    """The packages that the Spark provider imports for Kubernetes, which are not installed here."""
    from airflow.providers.apache.spark.hooks import spark_submit

    def put(api: KubernetesApi) -> None:
        client = SimpleNamespace(get_kube_client=lambda: Client(api), ApiException=OSError)
        monkeypatch.setattr(spark_submit, "kube_client", client, raising=False)
        package = ModuleType("kubernetes")
        package.client = SimpleNamespace(V1DeleteOptions=dict)  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "kubernetes", package)

    return put


def hook_of(monkeypatch: pytest.MonkeyPatch, connection: dict[str, Any], **words: Any) -> Any:
    from sluice_airflow.submit.process_group import GroupSubmitHook

    monkeypatch.setenv("AIRFLOW_CONN_FAR", json.dumps(connection))
    hook = GroupSubmitHook(conn_id="far", application_args=ARGUMENTS, name="sluice x", **words)
    hook.secret_environment, hook.secrets = SETTINGS, [PLANTED]
    return hook


def on_kubernetes(monkeypatch: pytest.MonkeyPatch, folder: Path, address: str) -> tuple[Any, str]:
    """The hook and the driver's script as the page says, with another address of Kubernetes."""
    connection, settings, defaults = PAGE[:3]
    conf = folder / "spark-conf"
    conf.mkdir()
    (conf / "spark-defaults.conf").write_text(defaults)
    monkeypatch.setenv("SPARK_CONF_DIR", str(conf))
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    options = dict(line.split(" = ") for line in settings.splitlines())
    assert options.keys() <= OPTIONS.keys()
    far = json.loads(connection)
    assert far["host"].startswith("k8s://https://")
    conf = {
        "spark.kubernetes.driver.secrets.more": "/etc/sluice",
        "spark.kubernetes.driverEnv.SLUICE_SETTINGS_FILE": "/etc/sluice/settings",
    }
    far["host"] = f"k8s://{address}"
    hook = hook_of(monkeypatch, far, jars=options["jars"], conf=conf)
    return hook, options["application"]


def submit(hook: Any, application: str) -> str:
    """Runs spark-submit to its end. Returns the error."""
    from sluice_airflow.airflow_api.airflow_names import AirflowException

    with pytest.raises(AirflowException) as failed:
        hook.submit(application)
    return str(failed.value)


def said(capfd: pytest.CaptureFixture[str]) -> str:
    """What Airflow's log got since it was read last."""
    found = capfd.readouterr()
    return found.out + found.err


@pytest.mark.slow
def test_the_driver_pod_of_the_page(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, with_package: Any
) -> None:
    with kubernetes_api(KILLED) as api:
        api.decided.set()
        with_package(api)
        hook, script = on_kubernetes(monkeypatch, tmp_path, api.address)
        error = submit(hook, script)
    assert api.pod["metadata"]["namespace"] == "data"
    spec = api.pod["spec"]
    [container] = spec["containers"]
    assert spec["serviceAccountName"] == "spark"
    assert container["image"] == "registry.example/sluice-spark:1"
    assert container["args"][-5:] == ["local:///opt/sluice/tier_tables.py", *ARGUMENTS]
    env = {each["name"]: each for each in container["env"]}
    assert env["SLUICE_SETTINGS"]["valueFrom"] == {
        "secretKeyRef": {"name": "sluice", "key": "settings"}
    }
    assert env["AWS_SECRET_ACCESS_KEY"]["valueFrom"]["secretKeyRef"]["name"] == "sluice"
    assert env["SLUICE_SETTINGS_FILE"]["value"] == "/etc/sluice/settings"
    assert {"secretName": "more"} in [volume.get("secret") for volume in spec["volumes"]]
    assert "/etc/sluice" in [mount["mountPath"] for mount in container["volumeMounts"]]
    assert env["PYSPARK_PYTHON"]["value"] == "python3", "not that of Airflow's machine"
    assert container["resources"]["limits"]["memory"] == "3072Mi"
    assert "spark.jars=local\\:///opt/sluice/" in api.properties
    assert "spark.driver.extra" not in api.properties, "options of Airflow's machine"
    assert PLANTED not in api.everything
    assert PLANTED not in error
    assert (hook.exit_code, hook.driver_exit_code) == (0, 137)
    assert not api.deleted, "it has ended: its pod has its log"
    name = api.pod["metadata"]["name"]
    assert str(why_no_outcome(hook)).startswith(
        f"the Spark driver {name} ended without a result or a reason"
        " (its exit code is 137, spark-submit's exit code is 0); its output says: "
    )


@pytest.mark.slow
@pytest.mark.long
def test_a_driver_pod_that_somebody_deletes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, with_package: Any
) -> None:
    with kubernetes_api(None) as api:
        api.decided.set()
        with_package(api)
        hook, script = on_kubernetes(monkeypatch, tmp_path, api.address)
        submit(hook, script)
    lost = why_no_outcome(hook)
    assert isinstance(lost, DriverLost)
    name = api.pod["metadata"]["name"]
    assert str(lost).startswith(
        f"spark-submit ended before the Spark driver {name} left a result or a reason"
        " (spark-submit's exit code is 0); the driver may still run on the cluster; its output"
    )


@pytest.mark.slow
@pytest.mark.long
def test_an_api_that_refuses_the_pod(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, with_package: Any
) -> None:
    with kubernetes_api(None) as api:
        with_package(api)
        api.refuses = True
        hook, script = on_kubernetes(monkeypatch, tmp_path, api.address)
        submit(hook, script)
    assert (hook.exit_code, hook.driver_exit_code) == (1, None)
    refused = why_no_outcome(hook)
    assert isinstance(refused, DriverRefused)
    assert str(refused).startswith(
        "spark-submit started no driver on the cluster (spark-submit's exit code is 1); its output"
    )
    assert "pods is forbidden" in str(refused)


@pytest.mark.slow
@pytest.mark.long
def test_a_standalone_cluster_has_no_such_mode_for_python(monkeypatch: pytest.MonkeyPatch) -> None:
    far = {"conn_type": "spark", "host": "spark://127.0.0.1:1", "extra": {"deploy-mode": "cluster"}}
    hook = hook_of(monkeypatch, far)
    submit(hook, str(driver_script()))
    refused = why_no_outcome(hook)
    assert isinstance(refused, SparkSettingsWrong)
    assert "not supported for python applications on standalone clusters" in str(refused)


@pytest.mark.slow
def test_the_driver_of_the_page_on_yarn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Up to the request that Spark sends to the ResourceManager. There is none here."""
    file = tmp_path / "settings.json"
    file.write_text(SETTINGS["SLUICE_SETTINGS"])
    (tmp_path / "spark-defaults.conf").write_text(
        PAGE[4].replace("/etc/sluice/settings.json", str(file))
    )
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.setenv("SPARK_HOME", str(pyspark_jars().parent))
    monkeypatch.setenv("SLUICE_SETTINGS", SETTINGS["SLUICE_SETTINGS"])  # as spark-submit has it
    hook = hook_of(monkeypatch, json.loads(PAGE[3]), jars=str(iceberg_jar(JARS)))
    words = hook._build_spark_submit_command(str(driver_script()))[1:]
    environment = {"SPARK_CONF_DIR": str(tmp_path), "HADOOP_CONF_DIR": str(tmp_path)}
    with Jvm(JARS) as jvm:
        launch = launch_of(jvm.gateway, words, environment, (tmp_path / "staging").as_uri())
    assert "--primary-py-file tier_tables.py" in launch.command
    assert " ".join(f"--arg '{word}'" for word in ARGUMENTS) in launch.command
    assert "-Xmx2048m" in launch.command
    assert launch.environment["SLUICE_SETTINGS_FILE"] == "sluice-settings.json"
    assert launch.environment["PYSPARK_PYTHON"] == "/opt/sluice/bin/python"
    assert set(launch.files.values()) == {"PRIVATE"}
    assert {"sluice-settings.json", "tier_tables.py", iceberg_jar(JARS).name} <= set(launch.files)
    assert "__spark_libs__" not in launch.files, "Spark's jars are on the machines"
    assert "spark.yarn.submit.waitAppCompletion=true" in launch.properties
    assert "queue=etl" in launch.properties
    assert PLANTED not in f"{launch}"


def stand_in(monkeypatch: pytest.MonkeyPatch, folder: Path, name: str, says: str) -> None:
    """A program of this name that writes down its words, prints a line and stays."""
    folder.mkdir(exist_ok=True)
    program = folder / name
    program.write_text(
        f'#!/bin/sh\necho "$@" > {folder}/{name}-words\n[ -z "{says}" ] && exit 0\n'
        f'echo "{says}"\nsleep 300\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def killed(hook: Any, kill: Callable[[], None] | None = None) -> str:
    """Starts spark-submit, kills it as soon as it has named the driver, returns the error."""
    errors: list[str] = []
    submitting = threading.Thread(target=lambda: errors.append(submit(hook, "local:///x.py")))
    submitting.start()
    wait_for("the name of the driver", lambda: hook.driver_name)
    (kill or hook.on_kill)()
    submitting.join(60)
    [error] = errors
    return error


def test_a_kill_deletes_the_driver_pod(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, with_package: Any
) -> None:
    stand_in(monkeypatch, tmp_path / "bin", "spark-submit", " pod name: sluice-x-0a1b-driver")
    with kubernetes_api(None) as api:
        with_package(api)
        api.made["pods"] = {}
        hook = hook_of(monkeypatch, K8S)
        killed(hook)
    assert api.deleted == ["/api/v1/namespaces/data/pods/sluice-x-0a1b-driver"]
    assert hook.exit_code == -9


K8S = {
    "conn_type": "spark",
    "host": "k8s://https://k:6443",
    "extra": {"deploy-mode": "cluster", "namespace": "data"},
}
YARN = {"conn_type": "spark", "host": "yarn", "extra": {"deploy-mode": "cluster"}}
SAYS = "INFO Client: Application report for application_1_0002 (state: RUNNING)"


def test_a_kill_ends_the_application_on_yarn(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stand_in(monkeypatch, tmp_path / "bin", "spark-submit", SAYS)
    stand_in(monkeypatch, tmp_path / "bin", "yarn", "")
    hook = hook_of(monkeypatch, YARN)
    killed(hook)
    words = (tmp_path / "bin/yarn-words").read_text()
    assert words == "application -kill application_1_0002\n"
    assert hook.exit_code == -9
    assert "may still run" in str(why_no_outcome(hook))


def test_a_stopped_task_ends_the_application_on_yarn(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from sluice_airflow.operators.maintain import SluiceMaintainOperator

    stand_in(monkeypatch, tmp_path / "bin", "spark-submit", SAYS)
    stand_in(monkeypatch, tmp_path / "bin", "yarn", "")
    monkeypatch.setenv("AIRFLOW_CONN_FAR", json.dumps(YARN))
    task = SluiceMaintainOperator(task_id="maintain", spark_conn_id="far")
    task.on_kill()  # before it has begun
    assert task._hook is None
    task._hook = task._get_hook()
    task._killed = False
    killed(task._hook, task.on_kill)
    assert (tmp_path / "bin/yarn-words").read_text() == "application -kill application_1_0002\n"


@pytest.mark.slow
def test_a_spark_submit_that_somebody_kills_leaves_no_driver_on_yarn(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The next try starts another one, which must not run beside it."""
    stand_in(monkeypatch, tmp_path / "bin", "spark-submit", SAYS)
    stand_in(monkeypatch, tmp_path / "bin", "yarn", "")
    hook = hook_of(monkeypatch, YARN)
    killing = threading.Thread(target=lambda: kill_spark_submit(hook))
    killing.start()
    submit(hook, "local:///x.py")
    killing.join(60)
    assert (tmp_path / "bin/yarn-words").read_text() == "application -kill application_1_0002\n"
    assert "may still run" in str(why_no_outcome(hook))


def kill_spark_submit(hook: Any) -> None:
    wait_for("the name of the driver", lambda: hook.driver_name)
    os.kill(hook._submit_sp.pid, signal.SIGKILL)


def test_a_kill_without_the_program_yarn_still_ends_spark_submit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    stand_in(monkeypatch, tmp_path / "bin", "spark-submit", SAYS)
    hook = hook_of(monkeypatch, YARN)
    killed(hook)
    assert hook.exit_code == -9
    assert "cannot end the Spark driver application_1_0002 on the cluster" in said(capfd)


def ends(monkeypatch: pytest.MonkeyPatch, folder: Path, code: int, *says: str) -> None:
    """A spark-submit that prints these lines and ends with this exit code."""
    folder.mkdir(exist_ok=True)
    lines = "".join(f"echo '{line}'\n" for line in says)
    program = folder / "spark-submit"
    program.write_text(f"#!/bin/sh\n{lines}exit {code}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def report(state: str) -> str:
    return f"INFO Client: Application report for application_1_0002 (state: {state})"


LOST_YARN = "Exception: Application application_1_0002 finished with failed status"
"""What Spark also says of an application that it lost."""


@pytest.mark.parametrize(
    ("code", "says", "is_asked"),
    [
        (1, [report("RUNNING"), LOST_YARN], True),
        (0, [report("RUNNING")], True),
        (0, [report("RUNNING"), report("FINISHED")], False),
        (1, [report("RUNNING"), report("FAILED"), LOST_YARN], False),
        (1, [report("KILLED")], False),
        (1, ["Error: Missing application resource."], False),  # started none
    ],
)
def test_yarn_is_asked_to_end_a_driver_that_spark_submit_lost(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: int, says: list[str], is_asked: bool
) -> None:
    """The next try starts another one, which must not run beside it."""
    ends(monkeypatch, tmp_path / "bin", code, *says)
    stand_in(monkeypatch, tmp_path / "bin", "yarn", "")
    hook = hook_of(monkeypatch, YARN)
    with nullcontext() if code == 0 else pytest.raises(Exception, match="Error code is: 1"):
        hook.submit("local:///x.py")
    words = tmp_path / "bin/yarn-words"
    assert words.exists() == is_asked
    hook.on_kill()  # as Airflow calls it after a timeout
    assert not is_asked or words.read_text() == "application -kill application_1_0002\n"


POD = "INFO Client: Deployed Spark application x into Kubernetes. pod name: sluice-x-0a1b-driver"
SIDECAR = "container name: proxy container state: terminated exit code: 0"


@pytest.mark.parametrize(
    ("code", "says", "is_asked"),
    [
        (1, [POD, "Application status for spark-1 (phase: Running)"], True),
        (0, [POD, "phase: Running", SIDECAR], True),
        (0, [POD, "phase: Pending", "Stopped watching with last-observed phase Running"], True),
        (0, [POD, "phase: Running", "phase: Failed", "exit code: 137"], False),
        (1, [POD, "phase: Failed"], False),
        (0, [POD, "phase: Succeeded", "exit code: 0"], False),
    ],
)
def test_the_pod_of_a_driver_that_spark_submit_lost_is_deleted(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    with_package: Any,
    code: int,
    says: list[str],
    is_asked: bool,
) -> None:
    """One that has ended stays: it has the driver's log."""
    ends(monkeypatch, tmp_path / "bin", code, *says)
    with kubernetes_api(None) as api:
        with_package(api)
        api.made["pods"] = {}
        hook = hook_of(monkeypatch, K8S)
        with suppress(Exception):  # by the provider, unless both exit codes are 0
            hook.submit("local:///x.py")
        hook.on_kill()
    path = "/api/v1/namespaces/data/pods/sluice-x-0a1b-driver"
    assert api.deleted == [path] * is_asked


def test_a_driver_pod_that_is_gone_is_no_problem(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    with_package: Any,
    capfd: pytest.CaptureFixture[str],
) -> None:
    ends(monkeypatch, tmp_path / "bin", 0, POD, "phase: Running")
    with kubernetes_api(None) as api:
        with_package(api)
        api.is_gone = True
        hook = hook_of(monkeypatch, K8S)
        submit(hook, "local:///x.py")
    assert len(api.deleted) == 1
    shown = said(capfd)
    assert "the driver pod sluice-x-0a1b-driver is gone" in shown
    assert "Traceback" not in shown
    assert "cannot end" not in shown


@pytest.mark.parametrize(
    ("program", "shown"),
    [
        ("sleep 300", "timed out"),
        ("echo no such application; exit 255", "exit code 255: no such application"),
    ],
)
def test_a_yarn_that_does_not_end_the_driver(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    program: str,
    shown: str,
) -> None:
    from sluice_airflow.submit import process_group as group_submit

    monkeypatch.setattr(group_submit, "_ANSWER_S", 0.3)
    ends(monkeypatch, tmp_path / "bin", 1, SAYS)
    stand_in(monkeypatch, tmp_path / "bin", "yarn", "")
    (tmp_path / "bin/yarn").write_text(f"#!/bin/sh\n{program}\n")
    error = submit(hook_of(monkeypatch, YARN), "local:///x.py")
    assert "Error code is: 1" in error
    warned = said(capfd)
    assert "cannot end the Spark driver application_1_0002 on the cluster, end it there" in warned
    assert shown in warned


def test_spark_submit_waits_for_the_only_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    own = {"spark.yarn.submit.waitAppCompletion": "false", "spark.yarn.maxAppAttempts": "3"}
    command = hook_of(monkeypatch, YARN, conf=own)._build_spark_submit_command("x.py")
    assert [word for word in command if word.startswith("spark.yarn.")] == [
        "spark.yarn.submit.waitAppCompletion=true",
        "spark.yarn.maxAppAttempts=1",
    ]
    client = hook_of(monkeypatch, {"conn_type": "spark", "host": "yarn"})
    command = client._build_spark_submit_command("x.py")
    assert not any(word.startswith("spark.yarn.") for word in command)


def test_the_warning_about_secrets_ends_with_a_property_that_gives_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    given = {"spark.yarn.appMasterEnv.SLUICE_SETTINGS_FILE": "settings.json"}
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    for conf, is_warned in (({}, True), (given, False)):
        hook = hook_of(monkeypatch, YARN, conf=conf)
        command = hook._build_spark_submit_command("tier_tables.py")
        assert ("give it SLUICE_SETTINGS or SLUICE_SETTINGS_FILE" in said(capfd)) == is_warned
        assert not any(PLANTED in word for word in command)
    (tmp_path / "spark-defaults.conf").write_text(" ".join(*given.items()))
    hook_of(monkeypatch, YARN)._build_spark_submit_command("tier_tables.py")
    assert "give it" not in said(capfd)
