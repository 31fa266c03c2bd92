"""Fluss's own Java client: its jars, and the program in tests/java_client that uses them.

The program is compiled by ECJ, a jar, because only a JRE may be installed. ``since_1_0`` has what
the client of 0.9.1 does not know.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sluice.artifacts.jars import Jar
from sluice.artifacts.java import java
from sluice.client import connect
from sluice.client.connection.addresses import Address
from sluice.model import Column, Schema, TableBucket, TableDescriptor, TablePath
from sluice.model.types import INT
from sluice.wire import apis
from tests.support.fluss.fluss_jars import VERSION, default_folder, fetch_jars
from tests.support.fluss.recorder import Recorder
from tests.support.fluss.table_creation import create_table

CLIENT = Jar(
    "org.apache.fluss",
    "fluss-client",
    VERSION,
    "6921994a2067704ac714cb03cc727ff8448453815eda83b792cd6f937fc491d2",
    69,
)
CLIENT_1_0 = Jar(
    "org.apache.fluss",
    "fluss-client",
    "1.0.0",
    "a73101b243277f618f0acfd8a38eb31635f9cb903c040168809d480f575654c0",
    69,
)
CLIENTS = (CLIENT, CLIENT_1_0)
COMPILER = Jar(
    "org.eclipse.jdt",
    "ecj",
    "3.43.0",
    "c786468c65e906498e7e36ece4e0d04c6d3dd34c9a61b34a3a5b512801911a82",
    4,
)
SOURCES = Path(__file__).resolve().parents[2] / "java_client"
SINCE_1_0 = "since_1_0"
"""The subject of the program, and the folder of its sources, for the client of 1.0 alone."""
_LIGHT = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_COMPILE_S = 120
_RUN_S = 280
_DUE_S = 60
_MISSED = 3
"""The program's exit code (``Tour.MISSED``)."""

IN_WORDS = ", in words"
"""Ends the question whose answer is an error's message; the question itself has its class."""

Answers = dict[tuple[str, str], str]
"""(subject, question) -> what the client saw."""


class TableMissed(Exception):
    """Fluss 0.9.1 has not noticed a new table (docs/fluss/known-problems.md)."""


@dataclass(frozen=True)
class Program:
    """The compiled program, and the client that it uses."""

    classes: Path
    client: Jar


def compiled(into: Path, client: Jar = CLIENT) -> Program:
    """Compiles the program into a folder.

    :raises ConfigurationError: a jar is missing and cannot be downloaded.
    """
    jars = fetch_jars(jars=(client, COMPILER))
    sources = [*SOURCES.glob("*.java")]
    if client is not CLIENT:
        sources += (SOURCES / SINCE_1_0).glob("*.java")
    command = [
        java(), *_LIGHT, "-jar", str(jars / COMPILER.name), "-17", "-warn:none",
        "-cp", str(jars / client.name), "-d", str(into), *map(str, sorted(sources)),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=_COMPILE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return Program(into, client)


def tour(
    program: Program,
    bootstrap: str,
    log: Path,
    subjects: Sequence[str] = (),
    settings: Mapping[str, str] | None = None,
) -> Answers:
    """Runs the program and returns its answers.

    :param log: file for the program's standard error: times, and stack traces. The answers are in a
        file next to it.
    :param subjects: some of ``Tour.SUBJECTS``; by default all.
    :param settings: of the client, in addition to its address.
    :raises TableMissed: a real cluster is of no use any more; start another one.
    """
    command = [
        java(), "-Xmx256m", *_LIGHT, "--add-opens=java.base/java.nio=ALL-UNNAMED",
        "-cp", f"{program.classes}:{default_folder() / program.client.name}", "Tour",
        bootstrap.removeprefix("fluss://"), *subjects,
        *(f"{key}={value}" for key, value in (settings or {}).items()),
    ]  # fmt: skip
    with log.open("w") as said, log.with_suffix(".tsv").open("w+", encoding="utf-8") as answered:
        code = subprocess.run(command, stdout=answered, stderr=said, timeout=_RUN_S, check=False)
        if code.returncode == _MISSED:
            raise TableMissed(log.read_text().rstrip().rpartition("\n")[2])
        assert code.returncode == 0, log.read_text()[-3000:]
        answered.seek(0)
        lines = answered.read().splitlines()
    answers: Answers = {}
    for line in lines:
        subject, question, answer = line.split("\t")
        assert (subject, question) not in answers, f"{subject}: {question!r} was asked twice"
        answers[subject, question] = answer
    return answers


def sent_by(
    program: Program, bootstrap: str, log: Path, subjects: Sequence[str]
) -> dict[str, list[bytes]]:
    """The batches that the client sends to a fresh server in some subjects, in order, by call."""
    with connect(bootstrap) as client:
        addresses = [Address.parse(server.address) for server in client.admin.servers()]
    with Recorder(*(address.port for address in addresses)) as recorder:
        tour(program, recorder.bootstrap, log, subjects)
        return {
            api.name: [
                bytes(bucket.records)
                for request, _ in recorder.calls(api)
                for bucket in request.buckets_req
            ]
            for api in (apis.PRODUCE_LOG, apis.PUT_KV)
        }


def register_lake_snapshots(bootstrap: str, warehouse: Path | None = None) -> None:
    """Makes the table lake.tiered and registers its snapshots 7 and 9, as a tiering job does."""
    path = TablePath("lake", "tiered")
    described = TableDescriptor(
        Schema((Column("id", INT, 0),), highest_field_id=0),
        bucket_count=2,
        properties={"table.datalake.enabled": "true", "table.datalake.freshness": "1s"},
    )
    with connect(bootstrap) as client:
        client.admin.create_database(path.database)
        create_table(client, path, described, warehouse)
        deadline = time.monotonic() + _DUE_S
        while (claim := client.tiering.claim([path])) is None:
            assert time.monotonic() < deadline, f"{path} was not handed out"
            time.sleep(0.1)
        for snapshot_id, ends in ((7, (3, 0)), (9, (5, 4))):
            offsets = {TableBucket(claim.table_id, None, n): end for n, end in enumerate(ends)}
            file = client.tiering.prepare_lake_snapshot(claim.table_id, path, offsets)
            client.tiering.commit_lake_snapshot(claim, snapshot_id, file, offsets, {}, -1)
