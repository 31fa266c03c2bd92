"""Errors of Airflow or of storage inside the tier task, which are none of Sluice's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sluice.model import Claim, TablePath
from sluice.rounds.records.json_files import write_json
from sluice.rounds.records.plan_file import PlanFile, plan_uri
from sluice.rounds.records.result import RoundFailure, round_outcome
from sluice_airflow.claims.claims import claimed_table
from sluice_airflow.claims.packs import Pack
from sluice_airflow.operators.tier import SluiceTierOperator

pytestmark = pytest.mark.airflow


class TaskInstance:
    """What the operator uses of Airflow's, until its storage fails."""

    id = "a1"
    dag_id, run_id, task_id, map_index, try_number = "lake", "manual__1", "tier", 0, 1

    def __init__(self) -> None:
        self.pushed: dict[str, Any] = {}

    def xcom_push(self, key: str, value: Any) -> None:
        self.pushed[key] = value


def test_a_retry_may_follow_an_error_of_storage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder of the run is a file, so nothing can be listed in it."""
    work = tmp_path / "work"
    extra = {"work_uri": f"nosuch://{work}", "datalake": {"iceberg.type": "hadoop"}}
    fluss = {"conn_type": "fluss", "host": "127.0.0.1", "port": 1, "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_FLUSS_DEFAULT", json.dumps(fluss))
    plan = PlanFile(Claim(1, TablePath("shop", "a"), 7, 3), "sluice-lease", "grpc://127.0.0.1:1")
    uri = plan_uri(work.as_uri(), plan.lease_id, plan.claim)
    write_json(uri, plan.to_json())
    tier = SluiceTierOperator(
        task_id="tier", entry=Pack(label="shop.a", tables=[claimed_table(plan, uri)])
    )
    ti = TaskInstance()
    with pytest.raises(Exception, match="nosuch"):
        tier.execute({"ti": ti, "params": {}})  # type: ignore[typeddict-item]
    failure = round_outcome(uri)
    assert isinstance(failure, RoundFailure)
    assert failure.reason.retryable, "a retry reads this file"
    assert ti.pushed["failures"]["shop.a"]["retryable"]
