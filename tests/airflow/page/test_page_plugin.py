"""The page's plugin is light, and Airflow works without the page."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.airflow

CASES = {
    "usual": {},
    "without fastapi": {"broken": "fastapi"},
    "without pyarrow": {"broken": "pyarrow"},
    "without serialized DAGs": {"broken": "airflow.models.serialized_dag"},
    "switched off": {"page": "False"},
}
PLUGINS = """
import json, os, sys
from airflow import plugins_manager
for name, case in json.loads(sys.argv[1]).items():
    if os.fork():  # each case has the plugins to load, and this process never does
        assert os.wait()[1] == 0, name
        continue
    if broken := case.get("broken"):
        sys.modules[broken] = None  # as if it were not installed
    os.environ["AIRFLOW__SLUICE__PAGE"] = case.get("page", "True")
    before = set(sys.modules)
    plugins_manager.ensure_plugins_loaded()
    loaded = sorted({name.partition(".")[0] for name in set(sys.modules) - before})
    infos = {one["name"]: one for one in plugins_manager.get_plugin_info()}
    print(json.dumps([name, loaded, infos.get("sluice")], default=str), file=sys.__stdout__)
    sys.__stdout__.flush()
    os._exit(0)
"""


@pytest.fixture(scope="module")
def plugins(airflow_environment: dict[str, str]) -> dict[str, tuple[list[str], Any]]:
    """By case: the packages that loading all plugins has loaded, and what Airflow knows of ours."""
    done = subprocess.run(
        [sys.executable, "-c", PLUGINS, json.dumps(CASES)],
        env=airflow_environment,
        cwd=Path(airflow_environment["AIRFLOW_HOME"]),
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    return {case: (loaded, info) for case, loaded, info in found}


def test_loading_plugins_loads_no_page(plugins: dict[str, tuple[list[str], Any]]) -> None:
    loaded, info = plugins["usual"]
    assert not {"grpc", "pyarrow", "sluice"} & set(loaded), loaded
    assert [view["destination"] for view in info["external_views"]] == ["nav", "dag"]


@pytest.mark.parametrize("case", [case for case in CASES if case != "usual"])
def test_a_page_that_cannot_be_loaded_or_is_switched_off_is_left_out(
    plugins: dict[str, tuple[list[str], Any]], case: str
) -> None:
    _, info = plugins[case]
    assert (info["fastapi_apps"], info["external_views"]) == ([], [])
