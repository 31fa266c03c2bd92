"""Fluss's own Java client sees the same of the embedded server as of a real Fluss.

The program in tests/java_client makes databases, tables and partitions, writes and reads rows in
every way that the client has, and prints each answer. Answers that differ are listed with a reason
in tests/support/clients/java_differences.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sluice.artifacts.jars import Jar
from sluice.config import DatalakeConfig, ServerConfig
from sluice.server.cluster import EmbeddedCluster
from tests.support.clients.java_client import (
    CLIENT,
    CLIENT_1_0,
    CLIENTS,
    SINCE_1_0,
    Answers,
    Program,
    TableMissed,
    compiled,
    register_lake_snapshots,
    tour,
)
from tests.support.clients.java_differences import (
    LISTED,
    LISTED_1_0,
    OWN_WORDS,
    OWN_WORDS_1_0,
    wrong,
)
from tests.support.fluss.fluss_versions import RELEASES
from tests.support.fluss.real_fluss import RealFluss
from tests.support.network.users import TOKENS, write_users

pytestmark = [pytest.mark.real_fluss]
TRIES = 4
"""Clusters that may miss a table (docs/fluss/known-problems.md) before the test fails."""
NOT_OFFERED = {
    "rules of access",
    "a tag of a server",
    "a tag of a server less",
    "progress of a rebalance",
    "a rebalance",
    "a tag of a rack",
    "a tag of a rack less",
}
"""docs/design/embedded-server.md#calls has the reasons."""
REFUSED_SINCE_1_0 = {
    "a missing database",
    "a missing database: seen",
    "KV snapshots of nobody",
    "KV snapshots of no partition",
    "manifests of nobody",
    "manifests of no partition",
    "partitions of a plain table with those of the system",
    "a wrong name",
    "another number of buckets",
    "a tag of a rack",
    "a tag of a rack less",
}
SEEN_SINCE_1_0 = {
    "a comment and two options: seen": "for the tour, {owner=ann, team=blue}",
    "another value and an option less: seen": "for the tour, {owner=bob}",
    "no comment: seen": "no comment, {owner=bob}",
    "settings": "{default.bucket.number=4 of INITIAL_SERVER_CONFIG,"
    " default.replication.factor=1 of INITIAL_SERVER_CONFIG}",
    "health": "GREEN, any buckets true, not in sync 0, not active 0",
    "KV snapshots of each bucket": "true",
    "manifests": "[]",
    "partitions with those of the system": "[d1]",
    "register": "CREATED",
    "register again": "ALREADY_EXISTS",
    "registered": "[0 at 7, 1 at 0]",
    "a column of a tiered table": "done",
}
ROWS = [f"+A {n} (1, n{n}, {n})" for n in range(40)]


BOTH_CLIENTS = pytest.mark.parametrize(
    "program", CLIENTS, ids=[client.version for client in CLIENTS], indirect=True
)


@pytest.fixture(scope="module")
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Program:
    """The program with the client of the test's parameter, by default that of 0.9.1."""
    client: Jar = getattr(request, "param", CLIENT)
    return compiled(tmp_path_factory.mktemp("classes"), client)


@contextmanager
def embedded(home: Path, *, lake: bool = True, users: Path | None = None) -> Iterator[str]:
    config = ServerConfig(
        data_dir=str(home / "data"),
        listen="fluss://127.0.0.1:0",
        kv_snapshot_interval_ms=200,
        default_bucket_count=4,  # as RealFluss has it
        users_file=str(users or ""),
    )
    warehouse = {"type": "hadoop", "warehouse": str(home / "warehouse")}
    datalake = DatalakeConfig("iceberg", warehouse) if lake else DatalakeConfig("none")
    with EmbeddedCluster(config, datalake=datalake) as cluster:
        yield cluster.address


def real(home: Path, see: Callable[[RealFluss], Answers], *, lake: bool = True) -> Answers:
    """The answers of a new cluster, and of another one if that one has missed a table."""
    for attempt in range(TRIES):
        folder = home / f"fluss{attempt}"
        with RealFluss(folder, lake=lake, conf={"kv.snapshot.interval": "1s"}) as fluss:
            try:
                return see(fluss)
            except TableMissed as error:
                missed = error
    raise missed


def different(program: Program, theirs: Answers, ours: Answers) -> list[str]:
    if program.client is CLIENT:
        return wrong(theirs, ours, LISTED, OWN_WORDS)
    return wrong(theirs, ours, LISTED_1_0, OWN_WORDS_1_0)


@BOTH_CLIENTS
@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_java_client_sees_the_same(program: Program, tmp_path: Path) -> None:
    def see(fluss: RealFluss) -> Answers:
        register_lake_snapshots(fluss.bootstrap, fluss.warehouse)
        return tour(program, fluss.bootstrap, tmp_path / "real.log")

    with embedded(tmp_path) as address:
        register_lake_snapshots(address)
        ours = tour(program, address, tmp_path / "embedded.log")
    theirs = real(tmp_path, see)
    assert len(theirs) > 700
    assert different(program, theirs, ours) == []


@BOTH_CLIENTS
@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_java_client_sees_the_same_without_a_lake(program: Program, tmp_path: Path) -> None:
    subjects = ["without_a_lake"]

    def see(fluss: RealFluss) -> Answers:
        return tour(program, fluss.bootstrap, tmp_path / "real.log", subjects)

    with embedded(tmp_path, lake=False) as address:
        ours = tour(program, address, tmp_path / "embedded.log", subjects)
    theirs = real(tmp_path, see, lake=False)
    assert len(theirs) > 50
    assert different(program, theirs, ours) == []


@BOTH_CLIENTS
@pytest.mark.long
def test_a_client_that_logs_in_sees_the_same(program: Program, tmp_path: Path) -> None:
    subjects = ["databases", "lookups", "kv_snapshots"]
    with embedded(tmp_path / "open") as address:
        plain = tour(program, address, tmp_path / "plain.log", subjects)
    users = write_users(tmp_path / "users")
    with embedded(tmp_path / "secured", users=users) as address:
        ria = tour(program, address, tmp_path / "ria.log", subjects, login("ria"))
        ada = tour(program, address, tmp_path / "ada.log", subjects, login("ada"))
    assert ada == plain
    assert ria["databases", "listed"] == "false"
    assert ria["databases", "create"] == "AuthorizationException"
    assert ria["kv_snapshots", "ends early"] == "AuthorizationException"


def login(name: str) -> dict[str, str]:
    prefix = "client.security"
    return {
        f"{prefix}.protocol": "sasl",
        f"{prefix}.sasl.mechanism": "PLAIN",
        f"{prefix}.sasl.username": name,
        f"{prefix}.sasl.password": TOKENS[name][1],
    }


@pytest.mark.slow
def test_a_bucket_without_rows_keeps_no_other_one_from_being_read(
    program: Program, tmp_path: Path
) -> None:
    with embedded(tmp_path) as address:
        seen = tour(program, address, tmp_path / "log", ["protocol", "log_scans"])
    assert protocol_of(seen) == RELEASES[program.client.version]
    busy = seen["log_scans", "the busy bucket"]
    rows = f"{{bucket {busy}=[{', '.join(ROWS)}]}}"
    assert seen["log_scans", "an idle bucket"] == "{}"
    assert seen["log_scans", "an idle and a busy bucket"] == rows


def protocol_of(answers: Answers) -> dict[int, tuple[int, int]]:
    """The calls that the client knows, with its lowest and highest version of each."""
    found = {}
    for (subject, key), versions in answers.items():
        if subject == "protocol":
            lowest, highest = versions.split("-")
            found[int(key)] = int(lowest), int(highest)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("program", [CLIENT_1_0], ids=[CLIENT_1_0.version], indirect=True)
def test_what_the_client_has_since_1_0(program: Program, tmp_path: Path) -> None:
    """No Fluss of 1.0 is to be had, so the answers are those of its source (docs/fluss/README.md).

    The difference to a Fluss 0.9.1, which has few of these calls, is in java_differences.py.
    """
    with embedded(tmp_path) as address:
        seen = tour(program, address, tmp_path / "log", ["protocol", SINCE_1_0, "cluster"])
    found = {
        question: answer for (subject, question), answer in seen.items() if subject == SINCE_1_0
    }
    assert protocol_of(seen) == RELEASES[program.client.version]
    refused = {question for question, answer in found.items() if answer.endswith("Exception")}
    assert refused == REFUSED_SINCE_1_0
    assert {question: found[question] for question in SEEN_SINCE_1_0} == SEEN_SINCE_1_0
    unsupported = {q for (_, q), answer in seen.items() if answer == "UnsupportedVersionException"}
    assert unsupported == NOT_OFFERED
