"""`sluice sql` as a process: what it prints, and that nothing of it stays, whatever ends it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sluice.client import connect
from sluice.config import ServerConfig
from sluice.model import Column, Schema, TableDescriptor, TablePath
from sluice.model import types as t
from sluice.server.cluster import EmbeddedCluster
from sluice.wire import apis
from tests.support.harness.contents import contents
from tests.support.harness.findings import finding
from tests.support.network.proxy import hang
from tests.support.network.sasl_listener import SaslListener
from tests.support.programs.living import Living, living
from tests.support.programs.processes import SLUICE, environment, sluice, wait_for

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
QUERY = "SELECT * FROM sys.lake_tiering_status"
PASSWORD = "planted-4711"
_MARK = "SQL_COMMAND_OF"


class Commands:
    """Runs `sluice sql` in a folder and with a folder for temporary files of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.temporary = folder / "here", folder / "tmp"
        self.folder.mkdir()
        self.temporary.mkdir()

    def start(self, *arguments: str, **env: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [SLUICE, "sql", *arguments],
            cwd=self.folder,
            env=environment({"TMPDIR": str(self.temporary), _MARK: str(self.folder), **env}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, **env: str) -> tuple[int, str, str]:
        """Exit code, standard output and standard error."""
        with self.start(*arguments, **env) as process:
            output, errors = process.communicate(timeout=500)
        self.nothing_is_left()
        return process.returncode, output, errors

    def processes(self) -> list[Living]:
        """The command and all that it started, as far as they live: they have its variables."""
        return living(lambda told: told.get(_MARK) == str(self.folder))

    @finding()
    def nothing_is_left(self) -> None:
        assert self.processes() == []
        assert list(self.temporary.iterdir()) == []
        assert list(self.folder.iterdir()) == []


@pytest.fixture
def commands(tmp_path: Path) -> Commands:
    return Commands(tmp_path)


@contextmanager
def cluster_at(tmp_path: Path, scheme: str = "grpc") -> Iterator[EmbeddedCluster]:
    """With two lake tables that were never tiered."""
    config = ServerConfig(data_dir=str(tmp_path / "data"), listen=f"{scheme}://127.0.0.1:0")
    with EmbeddedCluster(config) as cluster, connect(cluster.address) as client:
        client.admin.create_database("shop")
        schema = Schema((Column("id", t.BIGINT, 0),), highest_field_id=0)
        descriptor = TableDescriptor(schema, properties={"table.datalake.enabled": "true"})
        for name in ("orders", "stock"):
            client.admin.create_table(TablePath("shop", name), descriptor)
        yield cluster


@pytest.mark.slow
def test_a_query_is_answered_and_nothing_is_left(commands: Commands, tmp_path: Path) -> None:
    with cluster_at(tmp_path) as cluster:
        query = f"{QUERY} WHERE database_name = 'shop' AND status = 'Pending'"
        code, output, errors = commands.run(
            f"{query} ORDER BY table_name DESC", "--limit", "1",
            "--bootstrap", cluster.address, "--format", "json",
        )  # fmt: skip
    assert (code, errors) == (0, "only the first 1 row: --limit shows more\n")
    [row] = json.loads(output)
    assert (row["database_name"], row["table_name"], row["status"]) == ("shop", "stock", "Pending")
    assert (row["tiering_epoch"], row["last_tiered_time"], row["last_error"]) == (1, None, None)


@pytest.mark.slow
def test_the_lake_is_a_catalog_and_its_keys_are_on_no_command_line(
    commands: Commands, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text("id\n1\n2\n")
    warehouse = str(tmp_path / "lake")
    with cluster_at(tmp_path) as cluster:
        for command in (
            ("append", "shop.orders", str(tmp_path / "a.csv")),
            ("tier", "shop.orders", "--warehouse", warehouse),
        ):
            done = sluice(*command, timeout_s=300, SLUICE_CLIENT_BOOTSTRAP=cluster.address)
            assert done.returncode == 0, done.stderr
        lake: dict[str, Any] = {
            "SLUICE_CLIENT_BOOTSTRAP": cluster.address,
            "SLUICE_DATALAKE_ICEBERG_TYPE": "hadoop",
            "SLUICE_DATALAKE_ICEBERG_WAREHOUSE": warehouse,
            "SLUICE_DATALAKE_ICEBERG_S3__SECRET_ACCESS_KEY": PASSWORD,
        }
        both = (
            "SELECT s.table_name, count(l.id) AS n FROM sys.lake_tiering_status AS s"
            " LEFT JOIN lake.shop.orders AS l ON s.table_name = 'orders' GROUP BY 1 ORDER BY 1"
        )
        seen: set[str] = set()
        with commands.start(both, "--format", "csv", **lake) as process:
            while process.poll() is None:
                seen |= {" ".join(found.command) for found in commands.processes()}
                time.sleep(0.2)
            output, errors = process.communicate()
    assert (errors, output) == ("", "table_name,n\norders,2\nstock,0\n")
    assert any("iceberg-spark-runtime" in command for command in seen), "Java was seen"
    with finding():
        assert not [command for command in seen if PASSWORD in command]


@pytest.mark.long
def test_tables_for_people_and_a_limit(commands: Commands, tmp_path: Path) -> None:
    """In CI the test above has a limit, and docs/system-tables.md shows a table for people."""
    with cluster_at(tmp_path) as cluster:
        code, output, errors = commands.run(
            f"{QUERY} ORDER BY table_name", "--bootstrap", cluster.address, "--limit", "1"
        )
    assert (code, errors) == (0, "only the first 1 row: --limit shows more\n")
    heading, _, row = output.splitlines()
    assert heading.split()[:4] == ["database_name", "table_name", "status", "tiering_epoch"]
    assert row.split()[:4] == ["shop", "orders", "Pending", "1"]


@pytest.mark.long
def test_what_spark_and_the_cluster_refuse_is_one_line(commands: Commands) -> None:
    nowhere = ("--bootstrap", "grpc://127.0.0.1:1")
    code, output, errors = commands.run("SELECT * FROM sys.nothing", *nowhere)
    assert (code, output, errors.count("\n")) == (1, "", 1)
    assert "no table sys.nothing: the system tables are sys.lake_tiering_status and " in errors
    code, output, errors = commands.run(QUERY, *nowhere)
    assert (code, output, errors.count("\n")) == (1, "", 1)
    assert errors.startswith("sluice: NetworkError: ")
    assert "127.0.0.1:1" in errors
    assert "start a server with `sluice serve`" in errors
    insert = "WITH a AS (SELECT 1 AS n) INSERT INTO sys.nothing SELECT n FROM a"
    code, output, errors = commands.run(insert, *nowhere)
    assert (code, output, errors.count("\n")) == (1, "", 1)
    assert "sluice sql only reads" in errors
    code, output, errors = commands.run("SELECT * FROM lake.shop.orders", *nowhere)
    assert (code, output, errors.count("\n")) == (1, "", 1)
    assert "no lake is configured: give --warehouse PATH" in errors


@pytest.mark.slow
def test_a_query_that_takes_too_long_is_ended(commands: Commands) -> None:
    code, output, errors = commands.run(QUERY, "--timeout", "1s")
    assert (code, output) == (1, "")
    assert errors.startswith("sluice: QueryFailed: no answer in 1 s: ")


@pytest.mark.slow
def test_an_answer_counts_however_long_java_takes_to_end(tmp_path: Path) -> None:
    request = {"query": "SELECT 7 AS n", "limit": 1, "class_path": ""}
    impatient = "query._END_TIMEOUT_S = 0.001; query.main()"
    with subprocess.Popen(
        [sys.executable, "-c", f"from pyspark_sluice import query; {impatient}", str(tmp_path)],
        env=environment({"SPARK_LOCAL_IP": "127.0.0.1"}),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        answers = [json.loads(line) for line in process.stdout]
    assert answers == [{"phase": "query"}, {"done": {"cut": False}}]


@contextmanager
def a_query_that_hangs(commands: Commands, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Logged in to a cluster that never answers it."""
    with cluster_at(tmp_path, "fluss") as cluster:
        port = int(cluster.address.rsplit(":", 1)[1])
        with SaslListener([port], "ann", PASSWORD) as listener:
            listener.plan(apis.LIST_TIERING_STATUSES, hang)
            settings: dict[str, Any] = {"SLUICE_CLIENT_PASSWORD": PASSWORD}
            process = commands.start(
                QUERY,
                "--bootstrap",
                f"fluss://127.0.0.1:{listener.ports[port]}",
                SLUICE_CLIENT_USERNAME="ann",
                SLUICE_CLIENT_REQUEST_TIMEOUT_MS="500000",
                **settings,
            )
            try:
                wait_for(
                    "the query", lambda: listener.planned == 0 or process.poll() is not None, 400
                )
                assert process.poll() is None, process.communicate()
                yield process
            finally:
                process.kill()
                process.communicate()


@pytest.mark.slow
def test_an_interrupt_ends_all_of_it_and_the_password_is_nowhere(
    commands: Commands, tmp_path: Path
) -> None:
    with a_query_that_hangs(commands, tmp_path) as process:
        running = commands.processes()
        assert len(running) >= 4  # the command, Spark's Python, Java, a worker
        for found in running:
            assert PASSWORD not in " ".join(found.command)
        for file, held in contents(commands.temporary):
            assert PASSWORD.encode() not in held, file
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=120)
        assert (process.returncode, output) == (130, "")
        assert errors.strip() == "sluice: stopped by Ctrl-C"
        commands.nothing_is_left()


@pytest.mark.long
def test_an_interrupt_while_spark_starts_ends_all_of_it(commands: Commands) -> None:
    with commands.start(QUERY) as process:
        wait_for("Java", lambda: any(p.name == "java" for p in commands.processes()), 120)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=120)
    assert process.returncode == 130
    commands.nothing_is_left()


@pytest.mark.slow
def test_a_command_that_is_killed_leaves_no_process(commands: Commands, tmp_path: Path) -> None:
    with a_query_that_hangs(commands, tmp_path) as process:
        process.kill()
        process.communicate(timeout=60)
        wait_for("their end", lambda: not commands.processes(), 120)
