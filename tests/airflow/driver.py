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
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

SIGNATURE = "planted4716signature"
SIGNED = f"https://bucket.s3/lake/f?X-Amz-Credential=k%2F20261122&X-Amz-Signature={SIGNATURE}"
REASONS = {
    "broken": "cannot write s3://lake/broken: Access Denied",
    "unmasked": f"cannot read {SIGNED}",
}
AT_ONCE = 4
"""Tables of a pack that the driver tiers at the same time."""
LOOK_S = 7
"""In this time the tier task looks at the limits of its tables."""
LONG_S = 600
"""No test waits this long for a driver to end by itself."""


def main(arguments: list[str]) -> int:
    from sluice.rounds.records.json_files import read_json
    from sluice.rounds.records.packs import PackFile

    pack = arguments[arguments.index("--pack") + 1]
    plans = PackFile.from_json(read_json(pack) or {}).plans
    if any(table_of(plan).startswith("shop.unstartable") for plan in plans):
        return refuse(arguments)
    if len(plans) == 1:  # in the main thread, for signals
        return tier(plans[0], pack, arguments)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return max(pool.map(lambda plan: tier(plan, pack, arguments), plans))


def table_of(uri: str) -> str:
    table: str = json.loads(Path(uri.removeprefix("file://")).read_text())["table"]
    return table


def refuse(arguments: list[str]) -> int:
    """Prints what spark-submit has once printed that could not start with its settings."""
    pack = Path(arguments[arguments.index("--pack") + 1].removeprefix("file://"))
    with (pack.parents[1] / "refused").open("a") as file:
        file.write("a start\n")
    recorded = Path(__file__).parent / "failed_starts/memory_below_minimum.txt"
    print(recorded.read_text().partition("\n")[2], flush=True)
    return 1


def tier(uri: str, pack: str, arguments: list[str]) -> int:
    from sluice.rounds.records.packs import SparkApplication, mark_running

    attempt = arguments[arguments.index("--attempt") + 1]
    plan_file = Path(uri.removeprefix("file://"))
    table = json.loads(plan_file.read_text())["table"]
    folder = plan_file.parent
    (folder / f"command-{attempt}").write_text("\n".join(arguments))
    tries = len(list(folder.glob("command-*")))
    kind = table.partition(".")[2].partition("_")[0]
    if kind == "unbegun":
        wait_for_another(folder)
        os.kill(os.getpid(), signal.SIGKILL)
    mark_running(uri, attempt, SparkApplication("app-of-a-test", "http://127.0.0.1:4040"))
    if table.endswith("_keyed"):
        (folder / f"leased-{attempt}").write_text(json.dumps(leased(uri)))
    return act(kind, uri, pack, arguments, tries, table)


def act(kind: str, uri: str, pack: str, arguments: list[str], tries: int, table: str) -> int:
    """What a table of this kind does to its driver."""
    attempt = arguments[arguments.index("--attempt") + 1]
    folder = Path(uri.removeprefix("file://")).parent

    if kind in ("killed", "poison", "pair", "once", "held"):
        die_or_wait(kind, folder, table, tries)
    if kind == "hung":
        return hang_until_stopped(uri, pack, attempt, folder / "started")
    if kind == "leaky":
        from tests.support.network.repeating_server import ENCODINGS

        for name, value in json.loads(os.environ["SLUICE_SETTINGS"]).items():
            print("in other words", *(encode(value) for encode in ENCODINGS), flush=True)
            print(f"--{name} {value}", flush=True)
            print(f"cannot log in as {value}, nor read {SIGNED}", flush=True)
        return 3
    if kind in ("slow", "last", "late"):
        return hang(uri, attempt, folder / "started", kind)
    if kind == "huge":
        write_large_size(uri, attempt)
    if kind == "busy":
        return work_on(folder / "started")
    if kind in REASONS:
        told = REASONS[kind]
        masked = kind != "unmasked"
        return fail(uri, attempt, "LakeNotWritable", told, retryable=False, masked=masked)
    if kind in ("early", "stuck"):
        most = 1 if kind == "early" else 0
        return commit(uri, attempt, settings(arguments), stolen=False, most=most)
    if kind == "garbled":
        (folder / f"result-{attempt}.json").write_text("{")
        return 0
    if (kind == "flaky" and tries == 1) or (kind == "twice" and tries < 3):
        return fail(uri, attempt, "NetworkError", "127.0.0.1:1 went away", retryable=True)
    return commit(uri, attempt, settings(arguments), stolen=kind == "lost")


def write_large_size(uri: str, attempt: str) -> None:
    """2 GB at 2 MB/s: 1,000 s more than tier_timeout_seconds."""
    from sluice.rounds.records.copy_size import CopySize, size_uri
    from sluice.rounds.records.json_files import write_json

    write_json(size_uri(uri, attempt), CopySize(snapshot_bytes=2_000_000_000).to_json())
    time.sleep(int(os.environ["AIRFLOW__SLUICE__TIER_TIMEOUT_SECONDS"]) + LOOK_S)


def die_or_wait(kind: str, folder: Path, table: str, tries: int) -> None:
    """Ends the driver of all tables, or waits for another table or for the test."""
    if kind == "poison":
        wait_for_another(folder)
    if kind in ("killed", "poison"):
        print("the last words of a driver", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "held":
        wait_until_told(folder, table)
    if kind == "pair" and tries == 1:
        time.sleep(LONG_S)
    if kind == "once" and not (slept := folder.parent.parent / f"{table}-slept").exists():
        slept.write_text(str(os.getpid()))
        time.sleep(LONG_S)


def wait_for_another(folder: Path) -> None:
    """Waits until another table has ended, if there is one."""
    until = time.monotonic() + LOOK_S
    while time.monotonic() < until and not list(folder.parent.glob("*/result-*.json")):
        time.sleep(0.05)


def wait_until_told(folder: Path, table: str) -> None:
    """Works until the test says that it may commit: it writes the file TABLE-go."""
    work = folder.parent.parent
    (work / f"{table}-slept").write_text(str(os.getpid()))
    until = time.monotonic() + LONG_S
    while time.monotonic() < until and not (work / f"{table}-go").exists():
        time.sleep(0.05)


def hang_until_stopped(uri: str, pack: str, attempt: str, started: Path) -> int:
    """Hangs until the tier task asks for the end of this table."""
    from sluice.rounds.records.packs import read_stops

    started.write_text(str(os.getpid()))
    until = time.monotonic() + LONG_S
    while time.monotonic() < until and uri not in read_stops(pack):
        time.sleep(0.05)
    return fail(uri, attempt, "ClaimLost", "the round was cancelled", retryable=False)


def settings(arguments: list[str]) -> dict[str, str]:
    """What the command line says to Sluice, as the real driver takes it from Spark's properties."""
    given = (text for flag, text in pairwise(arguments) if flag == "--conf")
    ours = [text.removeprefix("spark.sluice.") for text in given if text.startswith("spark.sluice")]
    return dict(text.split("=", 1) for text in ours)


def leased(uri: str) -> dict[str, int]:
    """How many buckets each lease holds now."""
    from sluice.client import connect
    from sluice.rounds.records.json_files import read_json
    from sluice.rounds.records.plan_file import PlanFile

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
    from sluice.rounds.records.json_files import read_json
    from sluice.rounds.records.result import failure_uri

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


def commit(
    uri: str, attempt: str, overrides: dict[str, str], *, stolen: bool, most: int = 1000
) -> int:
    """What a round does on the Fluss side, with a made-up lake snapshot.

    :param most: rows after which a limit ends the round early.
    """
    from sluice.client import connect
    from sluice.config import load_config
    from sluice.model import Reason, TableBucket
    from sluice.rounds.records.json_files import read_json, write_json
    from sluice.rounds.records.plan_file import PlanFile
    from sluice.rounds.records.result import RoundResult, result_uri

    plan = PlanFile.from_json(read_json(uri) or {})
    config = load_config(environment=os.environ, overrides=overrides).client
    with connect(replace(config, bootstrap=plan.bootstrap)) as client:
        tiering, claim = client.tiering, plan.claim
        if stolen:
            tiering.failed(claim, Reason.from_text("taken by somebody else"))  # so its epoch rises
        if not tiering.still_claimed(claim):
            reason = f"{claim.path}: epoch {claim.tiering_epoch} is over"
            return fail(uri, attempt, "FencedTieringEpoch", reason, retryable=False)
        end = tiering.latest_offsets(claim.path, claim.table_id, None, [0])[0]
        before = tiering.lake_snapshot(claim.path)
        start = sum(before.offsets.values()) if before else 0
        reached = min(end, start + most)
        offsets = {TableBucket(claim.table_id, None, 0): reached}
        path = tiering.prepare_lake_snapshot(claim.table_id, claim.path, offsets)
        tiering.commit_lake_snapshot(claim, 4711 + start, path, offsets, {}, -1)
    result = RoundResult(
        str(claim.path),
        claim.table_id,
        claim.tiering_epoch,
        claim.coordinator_epoch,
        "committed",
        rows=reached - start,
        forced="the limit of the test" if reached < end else "",
        offsets={str(bucket): reached for bucket in range(1000)},
        lake_snapshot_id=4711 + start,
        notes=tuple(f"note {n} " + "x" * 500 for n in range(9)),
        history_notes=tuple(f"note {n} " + "x" * 500 for n in range(9)),
    )
    write_json(result_uri(uri, attempt), result.to_json())
    return 0


def fail(
    uri: str, attempt: str, kind: str, reason: str, *, retryable: bool, masked: bool = True
) -> int:
    from sluice.model import Reason
    from sluice.rounds.records.json_files import write_json
    from sluice.rounds.records.result import RoundFailure, failure_uri

    failure = RoundFailure(Reason.from_text(reason, kind=kind, retryable=retryable))
    content = failure.to_json() if masked else {**failure.to_json(), "reason": reason}
    write_json(failure_uri(uri, attempt), content)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
