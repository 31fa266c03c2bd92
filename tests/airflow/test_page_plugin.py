"""The page's plugin is light, and Airflow works without the page."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.airflow

PLUGIN = """
import json, sys
from airflow import plugins_manager
broken = {broken!r}
if broken:
    sys.modules[broken] = None  # as if it were not installed
before = set(sys.modules)
plugins_manager.ensure_plugins_loaded()
loaded = sorted({{name.partition(".")[0] for name in set(sys.modules) - before}})
infos = {{one["name"]: one for one in plugins_manager.get_plugin_info()}}
print(json.dumps([loaded, infos.get("sluice")], default=str), file=sys.__stdout__)
"""


def plugin(environment: dict[str, str], *, broken: str = "", **more: str) -> tuple[list[str], Any]:
    """The packages that loading all plugins has loaded, and what Airflow knows of ours."""
    done = subprocess.run(
        [sys.executable, "-c", PLUGIN.format(broken=broken)],
        env={**environment, **more},
        cwd=Path(environment["AIRFLOW_HOME"]),
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    loaded, info = json.loads(done.stdout.splitlines()[-1])
    return loaded, info


def test_loading_plugins_loads_no_page(airflow_environment: dict[str, str]) -> None:
    loaded, info = plugin(airflow_environment)
    assert not {"grpc", "pyarrow", "sluice"} & set(loaded), loaded
    assert [view["destination"] for view in info["external_views"]] == ["nav", "dag"]


@pytest.mark.parametrize("broken", ["fastapi", "pyarrow", "airflow.models.serialized_dag"])
def test_a_page_that_cannot_be_loaded_is_left_out(
    airflow_environment: dict[str, str], broken: str
) -> None:
    _, info = plugin(airflow_environment, broken=broken)
    assert (info["fastapi_apps"], info["external_views"]) == ([], [])


def test_the_page_can_be_switched_off(airflow_environment: dict[str, str]) -> None:
    _, info = plugin(airflow_environment, AIRFLOW__SLUICE__PAGE="False")
    assert (info["fastapi_apps"], info["external_views"]) == ([], [])
