"""The DAG on every catalog: a connection with its settings, real spark-submit, and executors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from sluice.catalog_options import CATALOG_NAME
from sluice.cli.main import cli
from sluice.driver.lakes.jvm import Jvm
from sluice.model import TablePath
from sluice.rounds.records.result import RoundFailure, RoundResult
from tests.support.catalog_servers.catalog import Catalog
from tests.support.catalog_servers.iam_s3 import IamS3
from tests.support.catalog_servers.keys import Keys
from tests.support.catalogs.dag_runs import DagRuns, dag_runs, keyed_table, log_table
from tests.support.catalogs.iceberg_client import opened
from tests.support.catalogs.jdbc import sqlite
from tests.support.catalogs.servers import COLUMNS, VENDED
from tests.support.harness.contents import contents
from tests.support.harness.findings import finding
from tests.support.harness.leaks import leaks
from tests.support.programs.command_lines import command_lines

pytestmark = [pytest.mark.long, pytest.mark.airflow, pytest.mark.spark, pytest.mark.timeout(600)]

ELSEWHERE = {
    "catalog-impl": "jdbc-sqlite is the same catalog; its class is an option like others",
    "hadoop-on-s3": "test_matrix.py shows that it is refused where the catalog is opened",
    "nessie-api": "nessie is the same server; test_matrix.py runs rounds on its other API",
}
"""Columns without a run of the DAG, and why. Each that is left has a secret or jars of its own."""
SECRET = re.compile(r"(secret-access-key|session-token|credential|token|password)$")
"""Of names of options whose values nobody may see."""
WRONG = Keys("stranger", "wrong-secret-of-a-stranger")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DagRuns]:
    with dag_runs(tmp_path_factory.mktemp("dag")) as running:
        yield running


@pytest.mark.parametrize("column", [name for name in COLUMNS if name not in ELSEWHERE])
def test_a_run_on_a_catalog(
    runs: DagRuns, store: IamS3, column: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = re.sub(r"\W", "_", column)
    earlier = {*store.session_secrets()}
    with COLUMNS[column](store) as catalog:
        runs.add(name, catalog)
        log, keyed = TablePath(name, "clicks"), TablePath(name, "stock")
        rows, kept = log_table(runs.client, log), keyed_table(runs.client, keyed)
        with command_lines() as commands:
            run_id = runs.run(log, keyed)
        account = runs.live.account(run_id)
        assert account == {str(log): "tiered", str(keyed): "tiered"}
        assert runs.live.state(run_id) == "success"
        assert len(runs.live.tiers(run_id)) == 1, "they share an application"
        for path in (log, keyed):
            result = runs.outcome(path)
            assert isinstance(result, RoundResult)
            assert (result.outcome, result.copied_by) == ("committed", "executors")
        runs.live.place.nothing_is_held()
        for variable, value in catalog.env.items():
            monkeypatch.setenv(variable, value)
        with (
            Jvm(str(catalog.jars)) as jvm,
            opened(jvm, catalog.options, CATALOG_NAME) as reader,
            finding(),
        ):
            assert reader.rows(str(log), "id", "item") == rows
            assert reader.rows(str(keyed), "day", "id", "item", "n") == kept
        vended = {*store.session_secrets()} - earlier
        assert bool(vended) == (column in VENDED)
        tells_no_secret(runs, [*secrets_of(catalog), *vended, store.owner.secret_key], commands)


def tells_no_secret(runs: DagRuns, secrets: list[str], commands: set[str]) -> None:
    """Neither files of Airflow, of Spark and of the cluster, nor the command lines of a run."""
    assert any("tier_tables.py" in line and str(runs.live.place.work) in line for line in commands)
    lines = {line: line for line in commands}
    texts = written(runs)
    assert any("task_id=per_application.tier" in name for name in texts)
    with finding():
        assert leaks(lines | texts, secrets) == []
    proof = runs.live.place.work / "proof"
    proof.write_text(f"as it would be seen: {secrets[0]}")
    assert leaks(written(runs), secrets[:1]) == [(str(proof), secrets[0])]
    proof.unlink()


def written(runs: DagRuns) -> dict[str, str]:
    """All files of Airflow, its tasks' logs and database included, and the work folder."""
    folder: Path = runs.live.place.work.parent
    return {str(path): held.decode("utf-8", "replace") for path, held in contents(folder)}


def secrets_of(catalog: Catalog) -> list[str]:
    """Those of the options and the environment; of an id with a secret, also the secret alone."""
    given = [value for name, value in catalog.options.items() if SECRET.search(name)]
    given += [value.partition(":")[2] for value in given if ":" in value]
    return given + [value for name, value in catalog.env.items() if "SECRET" in name]


def test_columns_that_are_run_elsewhere_exist() -> None:
    assert set(ELSEWHERE) < set(COLUMNS)


def test_keys_that_the_store_does_not_know(runs: DagRuns, store: IamS3) -> None:
    """They are wrong on every machine, so nothing is claimed and no application is started."""
    name = "unknown_keys"
    with sqlite(store) as right:
        runs.add(name, Catalog({**right.options, **WRONG.options()}, right.jars))
        path = TablePath(name, "clicks")
        log_table(runs.client, path)
        run_id = runs.run(path)
    assert runs.live.state(run_id) == "failed"
    assert runs.live.tiers(run_id) == ["upstream_failed"]
    assert "AWS Error INVALID_ACCESS_KEY_ID" in runs.live.logs("acquire_lease")
    runs.live.place.nothing_is_held()
    assert leaks(written(runs), [WRONG.secret_key]) == []


def test_a_store_that_refuses_to_write(runs: DagRuns, store: IamS3) -> None:
    """The reason says what was refused, and where, in the task, the account and the status.

    The last test on this store: it stays so.
    """
    name = "refused"
    store.forbid("s3:PutObject")
    with sqlite(store) as catalog:
        runs.add(name, catalog)
        path = TablePath(name, "clicks")
        log_table(runs.client, path)
        run_id = runs.run(path)
        assert runs.live.state(run_id) == "failed"
        assert runs.live.tiers(run_id) == ["failed"]
        assert runs.live.account(run_id) == {str(path): "failed"}
        runs.live.place.nothing_is_held()
        failure = runs.outcome(path)
    assert isinstance(failure, RoundFailure)
    assert failure.reason.kind == "LakeNotWritable"
    status = CliRunner().invoke(cli, ["status", "--bootstrap", runs.live.place.address])
    told = {
        "task": runs.live.logs("per_application.tier"),
        "account": runs.live.logs("drop_lease"),
        "status": status.output,
        "coordinator": str(runs.live.place.status(path).last_error),
    }
    what = "LakeNotWritable: write s3://lake/sqlite/refused/clicks/data/"
    why = "AWS Error ACCESS_DENIED"
    page = f"/sluice/dags/{name}/api/v1/tables/{path.database}/{path.table}"
    runs.live.wait(lambda: why in str(runs.live.airflow._get(page)), "the page to say it")
    told["page"] = str(runs.live.airflow._get(page))
    for where, text in told.items():
        assert what in text, where
        assert why in text, where
    assert leaks(written(runs), [store.owner.secret_key]) == []
