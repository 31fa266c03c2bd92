"""DAG files of users, as the pages on DAGs, operators and assets show them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from sluice.errors import ConfigurationError
from sluice_airflow.config.arguments import TieringArguments
from sluice_airflow.config.rendered import count_given, flag, properties_given, tables_given
from sluice_airflow.dag import DagArguments
from sluice_airflow.provider_info import OPTIONS
from tests.airflow.place import AirflowProcess, Place
from tests.docs.blocks import ROOT, Page, claimed_blocks

pytestmark = pytest.mark.airflow
SHOP, STOCK, HOT, NIGHTLY, HOOK, ALERT = (
    block.content for block in claimed_blocks("docs/airflow-dags.md", __file__)
)
[OPERATORS] = (block.content for block in claimed_blocks("docs/airflow-operators.md", __file__))
[REPORT] = (block.content for block in claimed_blocks("docs/airflow-assets.md", __file__))


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "dags"
    folder.mkdir()
    return folder


def shapes(airflow: AirflowProcess, files: Path, *contents: str) -> dict[str, Any]:
    """The DAGs of some files, in one Airflow."""
    for number, content in enumerate(contents):
        (files / f"dag_{number}.py").write_text(content)
    found: dict[str, Any] = airflow.ask("shapes", folder=str(files))
    return found


def refused(airflow: AirflowProcess, files: Path, arguments: str) -> str:
    """The import error of a DAG file with these arguments."""
    content = f"from sluice_airflow.dag import lake_tiering_dag\nlake_tiering_dag({arguments})\n"
    with pytest.raises(AssertionError) as error:
        shapes(airflow, files, content)
    return str(error.value)


def test_two_clusters_in_one_airflow(airflow: AirflowProcess, files: Path) -> None:
    for content in (SHOP, STOCK):
        assert len(content.strip().splitlines()) == 5
    found = shapes(airflow, files, SHOP, STOCK)
    assert sorted(found) == ["tier_shop", "tier_stock"]
    schedules = {name: dag["dag"]["schedule"] for name, dag in found.items()}
    assert schedules == {"tier_shop": "* * * * *", "tier_stock": "*/10 * * * *"}
    for name, dag in found.items():
        connections = {t["fluss_conn_id"] for t in dag["tasks"].values()}
        assert connections == {name.replace("tier", "fluss")}
    pools = [found[name]["tasks"]["per_application.tier"]["pool"] for name in sorted(found)]
    assert pools == ["default_pool", "stock"]
    assert "`fluss_stock`" in found["tier_stock"]["dag"]["doc_md"]


def test_hot_and_cold_tables(airflow: AirflowProcess, files: Path) -> None:
    found = shapes(airflow, files, HOT)
    hot, cold = found["tier_hot"], found["tier_cold"]
    assert hot["params"]["tables"]["default"] == ["shop.orders", "shop.payments"]
    assert cold["params"]["tables"]["default"] == ["shop.archive_*"]
    tiers = [dag["tasks"]["per_application.tier"] for dag in (hot, cold)]
    assert [(t["pool"], t["retries"]) for t in tiers] == [("hot", 3), ("cold", 1)]
    assert hot["tasks"]["acquire_lease"]["pool_slots"] == 2


def test_the_page_names_all_arguments() -> None:
    rows = Page(ROOT / "docs/airflow-dags.md").text.split("\n## Arguments\n")[1]
    rows = rows.split("\n## ")[0].splitlines()
    cells = [row.split(" | ")[0] for row in rows if row.startswith("| `")]
    shown = {name.strip("`| ") for cell in cells for name in cell.split(", ")}
    expected = set(TieringArguments.__annotations__) | {"dag_id", "schedule"}
    callbacks = {name for name in DagArguments.__annotations__ if name.endswith("_callback")}
    assert shown == expected | callbacks
    of_tiering = {name for name in OPTIONS if not name.startswith("maintenance_")}
    assert of_tiering - {"connection", "spark_connection", "page"} <= shown


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("tabels=['a.b']", "lake_tiering_dag: no argument 'tabels'; did you mean 'tables'"),
        ("params={'wait': True}", "params: 'wait' is a parameter of its own"),
        ("heartbeat_interval_seconds=0", "expected a whole number, from 1 to 60, found '0'"),
        ("heartbeat_interval_seconds=600", "expected a whole number, from 1 to 60, found '600'"),
        ("tables='a.b'", "tables: expected a list, found 'a.b'; write tables=['a.b']"),
        ("pool_slots='2'", "pool_slots: expected a whole number, 0 or more, found '2'"),
        ("pool_slots=True", "pool_slots: expected a whole number"),
        ("tables_per_application=0", "tables_per_application: expected a whole number, 1 or more"),
        ("pool=7", "pool: expected a text, found 7"),
        ("max_tables=0", "max_tables: expected a whole number above 0, found 0"),
        ("max_tables=20_000", "max_tables: expected at most 10,000, found 20000"),
        ("tables=[]", "tables: expected names or patterns"),
        ("tables=['a.b', 3]", "tables: expected names or patterns"),
        ("datalake='iceberg'", "datalake: expected a dict, found a str; write datalake={"),
        ("spark_conf='spark.a=b'", "spark_conf: expected a dict, found a str; write spark_conf={"),
        ("on_tables_failed='me'", "on_tables_failed: expected a function or a notifier"),
        ("fluss_conn_id=5", "fluss_conn_id: expected the id of a connection, found 5"),
        ("spark_conf={'executor.memory': '2g'}", "spark_conf"),
    ],
)
def test_a_wrong_argument_is_an_import_error(
    airflow: AirflowProcess, files: Path, arguments: str, said: str
) -> None:
    assert said in refused(airflow, files, arguments)


def test_a_misspelt_argument_of_a_group(airflow: AirflowProcess, files: Path) -> None:
    content = NIGHTLY.replace("wait=True", "waits=True")
    with pytest.raises(AssertionError, match="no argument 'waits'; did you mean 'wait'"):
        shapes(airflow, files, content)
    for arguments in ("max_tables='many'", "datalake='iceberg'"):
        with pytest.raises(AssertionError, match="argument of the DAG file: (max|data)"):
            shapes(airflow, files, NIGHTLY.replace("wait=True", arguments))
    outside = "from sluice_airflow.group import lake_tiering_group\nlake_tiering_group()  # dag\n"
    with pytest.raises(AssertionError, match="there is no current DAG"):
        shapes(airflow, files, outside)


def test_the_tasks_of_a_group(airflow: AirflowProcess, files: Path) -> None:
    found = shapes(airflow, files, NIGHTLY)["nightly"]
    tasks = found["tasks"]
    group = "lake_tiering."
    assert tasks[group + "open_job"]["upstream"] == ["close_books"]
    assert tasks["report"]["upstream"] == [group + "check_tables"]
    assert tasks[group + "check_tables"]["upstream"] == [group + "per_application.tier"]
    assert tasks[group + "drop_lease"]["fails_run"]
    assert sorted(tasks[group + "drop_lease"]["upstream"]) == [
        group + name for name in ("acquire_lease", "open_job", "per_application.settle")
    ]
    assert found["dag"]["callback"], "releases what teardowns that Airflow skipped would release"


def test_a_group_tiers_in_a_dag_of_others(place: Place, files: Path) -> None:
    orders, broken = place.table("orders"), place.table("broken")
    place.wait(orders, broken)
    dag = files / "nightly.py"
    dag.write_text(NIGHTLY)
    run = place.run(file=str(dag))
    assert run["state"] == "success", run
    assert run["tasks"]["report"] == "success"
    assert place.client.admin.lake_snapshot(orders) is not None
    assert place.client.admin.lake_snapshot(broken) is None, "it was not asked for"
    place.nothing_is_held()

    again = place.run(file=str(dag))
    assert again["state"] == "success", again
    assert again["tasks"]["lake_tiering.per_application.tier"] == "skipped", "nothing was new"
    assert again["tasks"]["report"] == "success"

    dag.write_text(NIGHTLY.replace('"shop.orders"', '"shop.broken"'))
    failed = place.run(file=str(dag), AIRFLOW__SLUICE__TIER_RETRIES="0")
    assert failed["state"] == "failed"
    assert failed["tasks"]["report"] == "upstream_failed"
    place.nothing_is_held()


def test_a_paused_table_holds_back_what_follows_a_group(place: Place, files: Path) -> None:
    orders = place.table("orders")
    place.wait(orders)
    place.client.statuses.pause(orders)
    dag = files / "nightly.py"
    dag.write_text(NIGHTLY)
    run = place.run(file=str(dag))
    assert run["state"] == "failed"
    assert run["tasks"]["lake_tiering.check_tables"] == "failed"
    assert run["tasks"]["report"] == "upstream_failed"
    assert "shop.orders: paused: `sluice resume shop.orders`" in place.airflow.log.read_text()


@pytest.mark.slow
def test_two_groups_of_a_dag_do_not_share_claims(place: Place, files: Path) -> None:
    """The one that ends first releases nothing of the other one."""
    one, other = place.table("orders"), place.table("payments")
    place.wait(one, other)
    dag = files / "two.py"
    dag.write_text(
        "from airflow.sdk import DAG\n"
        "from sluice_airflow.group import lake_tiering_group\n"
        "with DAG('two', params={'names': ['shop.payments']}):\n"
        "    lake_tiering_group('hot', tables=['shop.orders'], wait='{{ 1 == 1 }}')\n"
        "    lake_tiering_group('cold', tables='{{ params.names }}', wait=True)\n"
    )
    run = place.run(file=str(dag))
    assert run["state"] == "success", run
    leases = [run["xcoms"][f"{group}.open_job"]["return_value"] for group in ("hot", "cold")]
    assert leases[0] != leases[1]
    for path in (one, other):
        assert place.client.admin.lake_snapshot(path) is not None
        assert len(list(place.work.rglob("command-*"))) == 2, "each was tiered once"
    place.nothing_is_held()


def test_a_dag_of_single_operators(place: Place, files: Path) -> None:
    orders, broken = place.table("orders"), place.table("broken")
    place.wait(orders, broken)
    dag = files / "operators.py"
    dag.write_text(OPERATORS)
    run = place.run(file=str(dag), AIRFLOW__SLUICE__TIER_RETRIES="0")
    assert run["state"] == "failed"
    assert run["tasks"] == {
        "open_job": "success",
        "keep_claims": "success",
        "acquire_lease": "success",
        "tell": "success",
        "tier[0]": "failed",
        "settle[0]": "success",
        "drop_lease": "failed",
    }
    [pack] = run["xcoms"]["acquire_lease"]["return_value"]
    told = place.airflow.log.read_text()
    assert " ".join(["claimed:", *(table["table"] for table in pack["tables"])]) in told
    assert "shop.broken: LakeNotWritable: cannot write s3://lake/broken: Access Denied" in told
    assert place.client.admin.lake_snapshot(orders) is not None
    assert place.client.admin.lake_snapshot(broken) is None
    place.nothing_is_held()


@pytest.mark.slow
def test_what_fails_between_single_operators_leaves_no_claim(place: Place, files: Path) -> None:
    orders = place.table("orders")
    place.wait(orders)
    dag = files / "operators.py"
    dag.write_text(OPERATORS.replace("    for pack in packs:", "    for pack in packs[0]['none']:"))
    run = place.run(file=str(dag))
    assert run["state"] == "failed"
    assert run["tasks"]["tell"] == "failed"
    assert run["tasks"]["drop_lease"] == "failed", "it names what was not tiered"
    assert place.client.admin.lake_snapshot(orders) is None
    assert place.status(orders).failures == 0
    place.nothing_is_held()


def test_rendered_texts_are_read_strictly() -> None:
    assert [flag("wait", value) for value in (True, "True", "false", None)] == [
        True,
        True,
        False,
        False,
    ]
    with pytest.raises(ConfigurationError, match="wait: expected true or false, found 'maybe'"):
        flag("wait", "maybe")
    assert tables_given("['a.b', 'c.*']") == ["a.b", "c.*"]
    assert tables_given("a.b") == ["a.b"]
    assert tables_given(("a.b",)) == ["a.b"]
    for value in ("[a.b", [], [7], 7, ""):
        with pytest.raises(ConfigurationError, match="tables: expected names or patterns"):
            tables_given(value)
    assert [count_given("max_tables", value) for value in (7, " 8 ")] == [7, 8]
    for value in (0, -1, "many", True, None, 1.5):
        with pytest.raises(ConfigurationError, match="max_tables: expected a whole number above 0"):
            count_given("max_tables", value)
    given = {"spark.executor.memory": "4g"}
    assert properties_given(given) == properties_given(str(given)) == given
    assert properties_given('{"spark.executor.memory": "4g"}') == given
    assert properties_given('{"spark.speculation": true}') == {"spark.speculation": True}
    assert [properties_given(value) for value in (None, "", "None", "{}")] == [{}] * 4
    for value in ("spark.secret=abc", "{1: ", 7, ["abc"]):
        with pytest.raises(ConfigurationError, match="spark_conf: expected properties") as error:
            properties_given(value)
        assert "abc" not in str(error.value)


def test_lake_options_of_a_dag_file(place: Place, files: Path, tmp_path: Path) -> None:
    table = place.table("orders")
    place.wait(table)
    warehouse = tmp_path / "other lake"
    dag = files / "other.py"
    lake = {"iceberg.warehouse": str(warehouse)}
    dag.write_text(
        "from sluice_airflow.dag import lake_tiering_dag\n"
        f"lake_tiering_dag('other', datalake={lake!r}, tables=['shop.*'])\n"
    )
    run = place.run(file=str(dag))
    assert run["state"] == "success", run
    [command] = place.work.rglob("command-*")
    assert f"spark.sluice.datalake.iceberg.warehouse={warehouse}" in command.read_text()


@pytest.mark.slow
@pytest.mark.skipif(
    version("apache-airflow").startswith("3.1."),
    reason="there, `dag.test()` gives callbacks no exception",
)
def test_a_notifier_posts_the_failed_tables(place: Place, files: Path) -> None:
    place.wait(place.table("broken"), place.table("ok"))
    dag = files / "shop.py"
    dag.write_text(ALERT.replace('"tier_shop"', '"tier_shop", tier_retries=0'))
    with chat() as (url, posted):
        connection = place.connection()
        run = place.run(file=str(dag), AIRFLOW_VAR_CHAT_URL=url, **connection)
    assert run["state"] == "failed"
    [text] = posted
    assert text.startswith(f"tier_shop, run {run['run_id']}:\n1 of 2 tables was not tiered")
    assert "shop.broken: LakeNotWritable: cannot write s3://lake/broken: Access Denied" in text


def test_the_hook_opens_a_client(place: Place, files: Path) -> None:
    broken = place.table("broken")
    place.wait(broken)
    place.run({}, AIRFLOW__SLUICE__TIER_RETRIES="0")
    dag = files / "late.py"
    dag.write_text(
        HOOK + "\n\nfrom airflow.sdk import DAG\n\nwith DAG('late'):\n    late_tables()\n"
    )
    run = place.run(file=str(dag))
    assert run["xcoms"]["late_tables"]["return_value"] == ["shop.broken"]


def test_the_dag_of_the_report_is_scheduled_by_an_asset(
    airflow: AirflowProcess, files: Path
) -> None:
    [dag] = shapes(airflow, files, REPORT).values()
    assert "sluice://fluss_default/shop/orders" in dag["dag"]["schedule"]


@contextmanager
def chat() -> Iterator[tuple[str, list[str]]]:
    """A server that takes what is posted to it."""
    posted: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            size = int(self.headers["Content-Length"])
            posted.append(json.loads(self.rfile.read(size))["text"])
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/", posted
        server.shutdown()
        thread.join(30)
