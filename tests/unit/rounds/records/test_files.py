"""Plan, result and failure files: whole or absent, versioned, small."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from sluice.errors import UnknownFileVersion
from sluice.model import Claim, Reason, TablePath
from sluice.model.reason import WITHHELD
from sluice.rounds.records.json_files import read_json, write_json
from sluice.rounds.records.plan_file import PlanFile, plan_uri, plan_uris
from sluice.rounds.records.result import (
    RoundFailure,
    RoundResult,
    failure_uri,
    result_uri,
    round_outcome,
)
from sluice.rounds.records.run_files import delete_keys, keys_uri
from tests.support.clusters.s3_server import REGION, S3Server

CLAIM = Claim(7, TablePath("db", "t"), 3, 2)
PLAN = PlanFile(CLAIM, "sluice-1", "grpc://127.0.0.1:1")
RESULT = RoundResult(
    "db.t", 7, 3, 2, "committed", 10, 1, 2, 1, {"0": 10}, 99, None, ("n",), seconds={"total": 1.0}
)
FAILURE = RoundFailure(Reason("LakeNotWritable", "no", "ENOSPC", True), {"copy": 0.5, "total": 0.7})


@pytest.mark.parametrize("value", [PLAN, RESULT, FAILURE], ids=lambda v: type(v).__name__)
def test_round_trip_through_a_file(
    tmp_path: Path, value: PlanFile | RoundResult | RoundFailure
) -> None:
    uri = plan_uri(f"file://{tmp_path}", "sluice-1", CLAIM)
    write_json(uri, value.to_json())
    write_json(uri, value.to_json())  # a retried task writes its file again
    content = read_json(uri)
    assert content is not None
    assert type(value).from_json(content) == value
    assert len(json.dumps(content)) < 1000
    assert [p.name for p in tmp_path.rglob("*") if p.is_file()] == ["plan.json"]


def test_names_lie_beside_the_plan() -> None:
    plan = plan_uri("s3://b/work/", "sluice-1", CLAIM)
    assert plan == "s3://b/work/sluice-1/7-3/plan.json"
    assert result_uri(plan, "a1") == "s3://b/work/sluice-1/7-3/result-a1.json"
    assert failure_uri(plan, "a1") == "s3://b/work/sluice-1/7-3/failure-a1.json"


def test_a_file_that_is_not_there_is_none(tmp_path: Path) -> None:
    assert read_json(str(tmp_path / "result-1.json")) is None


@pytest.mark.parametrize("cls", [PlanFile, RoundResult, RoundFailure])
def test_another_version_is_refused(cls: type[PlanFile]) -> None:
    with pytest.raises(UnknownFileVersion, match="version 3"):
        cls.from_json({"version": 3})


def test_a_job_finds_its_plans(tmp_path: Path) -> None:
    work = f"file://{tmp_path}/work [1]"
    assert plan_uris(work, "sluice-1") == []
    for lease, table_id in (("sluice-1", 7), ("sluice-1", 8), ("sluice-2", 9)):
        claim = Claim(table_id, CLAIM.path, 3, 2)
        write_json(plan_uri(work, lease, claim), PlanFile(claim, lease, "grpc://h:1").to_json())
    found = [PlanFile.from_json(read_json(uri) or {}) for uri in plan_uris(work, "sluice-1")]
    assert [plan.claim.table_id for plan in found] == [7, 8]


def test_outcome_is_the_last_failure_until_some_try_has_a_result(tmp_path: Path) -> None:
    plan = plan_uri(f"file://{tmp_path}", "sluice-1", CLAIM)
    assert round_outcome(plan) is None
    for number, attempt in enumerate(("b", "a")):
        failure = RoundFailure(Reason("NetworkError", f"try {number}"))
        write_json(failure_uri(plan, attempt), failure.to_json())
        path = tmp_path / "sluice-1/7-3" / f"failure-{attempt}.json"
        os.utime(path, (1000 + number, 1000 + number))
    outcome = round_outcome(plan)
    assert isinstance(outcome, RoundFailure)
    assert outcome.reason.text == "try 1"
    lost = replace(RESULT, outcome="claim_lost")
    write_json(result_uri(plan, "c"), lost.to_json())
    assert round_outcome(plan) == lost
    write_json(result_uri(plan, "d"), RESULT.to_json())
    assert round_outcome(plan) == RESULT


def test_a_work_folder_on_s3(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reached by what the environment says, as Airflow and Spark both have it."""
    with S3Server() as s3:
        s3.bucket("work")
        monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "worker")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        monkeypatch.setenv("AWS_REGION", REGION)
        del s3.seen[:]
        work = "s3://work/sluice [1]"
        assert plan_uris(work, "sluice-1") == []
        plan = plan_uri(work, "sluice-1", CLAIM)
        assert read_json(plan) is None
        for _ in range(2):  # a retried task writes its file again
            write_json(plan, PLAN.to_json())
        assert plan_uris(work, "sluice-1") == [plan]
        assert PlanFile.from_json(read_json(plan) or {}) == PLAN
        assert round_outcome(plan) is None
        write_json(failure_uri(plan, "a"), FAILURE.to_json())
        assert round_outcome(plan) == FAILURE
        write_json(result_uri(plan, "b"), RESULT.to_json())
        assert round_outcome(plan) == RESULT
        assert set(s3.seen) == {"worker"}


OLD_FAILURE = {
    "version": 1,
    "kind": "LakeNotWritable",
    "reason": "no",
    "deepest_cause": "ENOSPC",
    "retryable": True,
}


def test_failure_files_of_other_versions_are_read() -> None:
    assert RoundFailure.from_json(OLD_FAILURE) == RoundFailure(FAILURE.reason)
    assert OLD_FAILURE.items() <= FAILURE.to_json().items(), "an older Sluice reads these keys"


def test_a_failure_file_holds_no_secret_whoever_made_the_reason() -> None:
    planted = RoundFailure(Reason("DriverLost", "token=abc", retryable=True))
    content = planted.to_json()
    assert (content["reason"], content["retryable"]) == (WITHHELD, True)
    named = RoundFailure(Reason("DriverLost", "login of planted-value refused"))
    assert named.to_json()["kind"] == "DriverLost"
    assert named.to_json(["planted-value"])["reason"] == WITHHELD


WHY = "equality deletes (300 data files may have the keys)"


def test_how_a_round_deleted_keys_is_kept(tmp_path: Path) -> None:
    result = replace(
        RESULT, deletes=5, deletes_as=WHY, lookup_files=3, lookup_bytes=400, lookup_ms=20
    )
    uri = str(tmp_path / "result-1.json")
    write_json(uri, result.to_json())
    read = RoundResult.from_json(read_json(uri) or {})
    assert read == result
    told = read.details()
    assert (told.keys_deleted, told.deletes_as) == (5, WHY)
    assert (told.lookup_files, told.lookup_bytes, told.lookup_ms) == (3, 400, 20)
    failed = RoundFailure(FAILURE.reason, committed=result)
    assert RoundFailure.from_json(failed.to_json()).details().deletes_as == WHY


def test_what_a_round_expired_is_kept(tmp_path: Path) -> None:
    result = replace(
        RESULT, snapshots_expired=6, files_expired=12, seconds={"expire": 0.25, "total": 1.0}
    )
    uri = str(tmp_path / "result-1.json")
    write_json(uri, result.to_json())
    told = RoundResult.from_json(read_json(uri) or {}).details()
    assert (told.snapshots_expired, told.files_expired, told.expire_ms) == (6, 12, 250)


def test_a_result_of_an_older_version_says_nothing_of_look_ups() -> None:
    content = replace(RESULT, deletes=5).to_json()
    for name in ("deletes_as", "lookup_files", "lookup_bytes", "lookup_ms"):
        del content[name]
    read = RoundResult.from_json(content)
    assert (read.deletes, read.deletes_as, read.lookup_files) == (5, "", 0)
    assert read.details().deletes_as is None
    assert RoundResult.from_json({**content, "of_a_newer_version": 1}) == read


def test_why_keys_were_not_looked_up_holds_no_secret() -> None:
    refused = "equality deletes (the look-up failed: login of planted-value refused)"
    planted = replace(RESULT, deletes_as=refused)
    assert planted.checked().deletes_as == refused
    assert planted.checked(["planted-value"]).deletes_as == f"equality deletes ({WITHHELD})"
    failure = RoundFailure(FAILURE.reason, committed=planted)
    assert "planted-value" not in json.dumps(failure.to_json(["planted-value"]))
    assert replace(RESULT, deletes_as="positions").checked(["planted"]).deletes_as == "positions"


def test_keys_that_a_killed_driver_has_left_are_deleted(tmp_path: Path) -> None:
    uri = plan_uri(str(tmp_path), "sluice-1", CLAIM)
    write_json(uri, PLAN.to_json())
    for attempt in ("a1", "a2"):
        keys = f"{keys_uri(uri, attempt)}-db.t.json"
        write_json(keys, {"version": 1}, private=True)
        assert Path(keys).stat().st_mode & 0o777 == 0o600
    delete_keys(keys_uri(uri, "a1"))
    folder = Path(uri).parent
    assert sorted(path.name for path in folder.iterdir()) == ["keys-a2-db.t.json", "plan.json"]
    delete_keys(keys_uri(uri))
    assert [path.name for path in folder.iterdir()] == ["plan.json"]
    delete_keys(keys_uri(plan_uri(str(tmp_path), "sluice-2", CLAIM)))  # there is none
