"""One round by spark-submit, with executors in processes of their own, on any catalog."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from sluice.artifacts.spark_files import driver_script, make_zip
from sluice.config import SETTINGS_VARIABLE
from sluice.model import TablePath
from sluice.rounds.records.json_files import write_json
from sluice.rounds.records.plan_file import PlanFile, plan_uri
from sluice.rounds.records.result import RoundFailure, RoundResult, round_outcome
from tests.support.catalogs.rounds import RoundSite

_TIMEOUT_S = 400
_LEASE = "sluice-lease"


def spark_round(
    site: RoundSite, path: TablePath, folder: Path, bootstrap: str = "", **settings: str
) -> RoundResult | RoundFailure | None:
    """Claims a table, runs spark-submit until it ends, and returns what it has left.

    :param folder: for the work folder and Spark's output.
    :param bootstrap: the cluster's address for driver and executors; empty: the site's.
    :param settings: more settings, with ``__`` for a dot.
    """
    folder.mkdir(exist_ok=True)
    claim = site.client.tiering.claim([path])
    assert claim is not None
    uri = plan_uri(f"{folder}/work", _LEASE, claim)
    write_json(uri, PlanFile(claim, _LEASE, bootstrap or site.config.client.bootstrap).to_json())
    make_zip(folder / "sluice.zip")
    jars = [str(jar) for jar in sorted(site.catalog.jars.glob("*.jar"))]
    conf = {
        # before Spark's own jars, as Hive's clients must be
        "spark.driver.extraClassPath": ":".join(jars),
        "spark.ui.enabled": "false",
        "spark.sluice.tiering.driver_copy_rows": "0",
        **{f"spark.sluice.{name.replace('__', '.')}": value for name, value in settings.items()},
    }
    command = [str(Path(sys.executable).with_name("spark-submit")), "--master", "local[2]"]
    command += ["--jars", ",".join(jars), "--py-files", str(folder / "sluice.zip")]
    command += [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    command += [str(driver_script()), "--plan", uri, "--attempt", "a1"]
    lake = {f"datalake.iceberg.{name}": value for name, value in site.catalog.options.items()}
    environment = {
        **os.environ,
        **site.catalog.env,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        SETTINGS_VARIABLE: json.dumps(lake),
    }
    with (folder / "spark-submit.log").open("wb") as log:
        subprocess.run(
            command, stdout=log, stderr=log, env=environment, timeout=_TIMEOUT_S, check=False
        )
    outcome = round_outcome(uri)
    if isinstance(outcome, RoundResult):
        site.client.tiering.finished(claim)  # Airflow's task reports it otherwise
    return outcome
