"""In place of spark-submit: a driver that does what its table is named for, on the real server.

It takes spark-submit's own command line. No lake and no JVM: what is tested around it is Airflow.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

SIGNATURE = "planted4716signature"
SIGNED = f"https://bucket.s3/lake/f?X-Amz-Credential=k%2F20261122&X-Amz-Signature={SIGNATURE}"
REASONS = {
    "broken": "cannot write s3://lake/broken: Access Denied",
    "unmasked": f"cannot read {SIGNED}",
}
LONG_S = 600
"""No test waits this long for a driver to end by itself."""


def main(arguments: list[str]) -> int:
    uri = arguments[arguments.index("--plan") + 1]
    attempt = arguments[arguments.index("--attempt") + 1]
    plan_file = Path(uri.removeprefix("file://"))
    table = json.loads(plan_file.read_text())["table"]
    folder = plan_file.parent
    (folder / f"command-{attempt}").write_text("\n".join(arguments))
    tries = len(list(folder.glob("command-*")))
    kind = table.partition(".")[2].partition("_")[0]

    if table.endswith("_keyed"):
        (folder / f"leased-{attempt}").write_text(json.dumps(leased(uri)))

    if kind == "killed":
        print("the last words of a driver", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "leaky":
        for name, value in json.loads(os.environ["SLUICE_SETTINGS"]).items():
            print(f"--{name} {value}", flush=True)
            print(f"cannot log in as {value}, nor read {SIGNED}", flush=True)
        return 3
    if kind in ("slow", "last", "late"):
        return hang(uri, attempt, folder / "started", kind)
    if kind == "huge":  # 2 GB at 2 MB/s: 1,000 s more than tier_timeout_seconds
        from sluice.rounds.copy_size import CopySize, size_uri
        from sluice.rounds.files import write_json

        write_json(size_uri(uri, attempt), CopySize(snapshot_bytes=2_000_000_000).to_json())
        time.sleep(int(os.environ["AIRFLOW__SLUICE__TIER_TIMEOUT_SECONDS"]))
    if kind == "busy":
        return work_on(folder / "started")
    if kind == "once" and not (slept := folder.parent.parent / f"{table}-slept").exists():
        slept.write_text(str(os.getpid()))
        time.sleep(LONG_S)
    if kind in REASONS:
        told = REASONS[kind]
        masked = kind != "unmasked"
        return fail(uri, attempt, "LakeNotWritable", told, retryable=False, masked=masked)
    if kind == "garbled":
        (folder / f"result-{attempt}.json").write_text("{")
        return 0
    if kind == "flaky" and tries == 1:
        return fail(uri, attempt, "NetworkError", "127.0.0.1:1 went away", retryable=True)
    return commit(uri, attempt, settings(arguments), stolen=kind == "lost")


def settings(arguments: list[str]) -> dict[str, str]:
    """What the command line says to Sluice, as the real driver takes it from Spark's properties."""
    given = (text for flag, text in pairwise(arguments) if flag == "--conf")
    ours = [text.removeprefix("spark.sluice.") for text in given if text.startswith("spark.sluice")]
    return dict(text.split("=", 1) for text in ours)


def leased(uri: str) -> dict[str, int]:
    """How many buckets each lease holds now."""
    from sluice.client import connect
    from sluice.rounds.files import PlanFile, read_json

    with connect(PlanFile.from_json(read_json(uri) or {}).bootstrap) as client:
        return {lease.lease_id: lease.buckets for lease in client.leases.all()}


def hang(uri: str, attempt: str, started: Path, kind: str) -> int:
    """Hangs, as a JVM whose threads do not end: "late" after a reason, "last" before its reason."""

    def speak(*_: object) -> None:
        fail(uri, attempt, "SparkError", "the Spark context was shut down", retryable=False)

    if kind == "late":
        speak()
    if kind == "last":
        signal.signal(signal.SIGTERM, speak)
    started.write_text(str(os.getpid()))
    until = time.monotonic() + LONG_S
    while time.monotonic() < until and (kind != "last" or not left(uri, attempt)):
        time.sleep(0.05)
    return 1


def left(uri: str, attempt: str) -> bool:
    from sluice.rounds.files import failure_uri, read_json

    return read_json(failure_uri(uri, attempt)) is not None


def work_on(started: Path) -> int:
    """Copies on for ten minutes, as does a child of it that no polite signal ends."""
    stubborn = ("sh", "-c", 'trap "" TERM; for n in $(seq 600); do sleep 1; done')
    child = subprocess.Popen(stubborn)
    started.write_text(f"{os.getpid()} {child.pid}")
    until = time.monotonic() + LONG_S
    copied = started.with_name("copied")
    while time.monotonic() < until:
        with copied.open("a") as file:
            file.write("a row\n")
        time.sleep(0.05)
    return 0


def commit(uri: str, attempt: str, overrides: dict[str, str], *, stolen: bool) -> int:
    """What a round does on the Fluss side, with a made-up lake snapshot."""
    from sluice.client import connect
    from sluice.config import load_config
    from sluice.model import Reason, TableBucket
    from sluice.rounds.files import PlanFile, RoundResult, read_json, result_uri, write_json

    plan = PlanFile.from_json(read_json(uri) or {})
    config = load_config(environment=os.environ, overrides=overrides).client
    with connect(replace(config, bootstrap=plan.bootstrap)) as client:
        tiering, claim = client.tiering, plan.claim
        if stolen:
            tiering.failed(claim, Reason.from_text("taken by somebody else"))  # so its epoch rises
        if not tiering.still_claimed(claim):
            reason = f"{claim.path}: epoch {claim.tiering_epoch} is over"
            return fail(uri, attempt, "FencedTieringEpoch", reason, retryable=False)
        ends = tiering.latest_offsets(claim.path, claim.table_id, None, [0])
        offsets = {TableBucket(claim.table_id, None, 0): ends[0]}
        path = tiering.prepare_lake_snapshot(claim.table_id, claim.path, offsets)
        tiering.commit_lake_snapshot(claim, 4711, path, offsets, {}, -1)
    result = RoundResult(
        str(claim.path),
        claim.table_id,
        claim.tiering_epoch,
        claim.coordinator_epoch,
        "committed",
        rows=ends[0],
        offsets={str(bucket): ends[0] for bucket in range(1000)},
        lake_snapshot_id=4711,
        notes=tuple(f"note {n} " + "x" * 500 for n in range(9)),
        history_notes=tuple(f"note {n} " + "x" * 500 for n in range(9)),
    )
    write_json(result_uri(uri, attempt), result.to_json())
    return 0


def fail(
    uri: str, attempt: str, kind: str, reason: str, *, retryable: bool, masked: bool = True
) -> int:
    from sluice.model import Reason
    from sluice.rounds.files import RoundFailure, failure_uri, write_json

    failure = RoundFailure(Reason.from_text(reason, kind=kind, retryable=retryable))
    content = failure.to_json() if masked else {**failure.to_json(), "reason": reason}
    write_json(failure_uri(uri, attempt), content)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
