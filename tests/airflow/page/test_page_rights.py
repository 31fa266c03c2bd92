"""Two DAGs of one cluster, and people who may use only one of them."""

from __future__ import annotations

import httpx
import pytest

from sluice.client.leases.ids import lease_id
from sluice.errors import InvalidTable
from sluice.model import TablePath
from sluice.rounds.records.run_names import RunName, write_run_name
from sluice.rounds.values.reasons import reason_of
from tests.airflow.page.test_page import problem
from tests.airflow.page.test_page_actions import events, runs
from tests.airflow.page_process import ASKS_ITSELF, DEPLOYMENT, PagePlace, api
from tests.airflow.page_rights import CLERK, EDITOR
from tests.airflow.place import wait_until
from tests.unit.server.kv_support import KvCaller
from tests.unit.server.support import Caller

pytestmark = [pytest.mark.airflow, pytest.mark.xdist_group("page")]

SALES, STAFF = TablePath("sales", "orders"), TablePath("staff", "wages")
ACTIONS = ("tier", "retry", "pause", "resume", "compact")
OF_SALES = lease_id(DEPLOYMENT, "sales", "manual__1")
OF_STAFF = lease_id(DEPLOYMENT, "tiering", "manual__2")
OF_OTHERS = lease_id("east", "sales", "manual__3")
"""Of a DAG with the same name in another Airflow."""
OF_READER = "nightly-report"


@pytest.fixture(scope="module", autouse=True)
def leased(page: PagePlace) -> None:
    """A table of each DAG, with a KV snapshot, and leases on it."""
    caller = Caller(page.shop.address)
    for path in (SALES, STAFF):
        page.shop.client.admin.create_database(path.database)
        table = KvCaller(caller, path, properties={"table.datalake.enabled": "true"})
        table.put((1, "a", 1))
        page.cluster.take_kv_snapshots(path)
    for name, path in (
        *((OF_SALES, SALES), (OF_STAFF, STAFF), (OF_OTHERS, SALES), (OF_READER, SALES)),
    ):
        with page.shop.client.snapshot_lease(name, path, on_exit="keep"):
            pass
    caller.transport.close()
    for lease, dag, run in (
        (OF_SALES, "sales", "manual__1"),
        (OF_STAFF, "tiering", "manual__2"),
        (OF_OTHERS, "sales", "manual__3"),
    ):
        write_run_name(page.shop.work.as_uri(), lease, RunName(dag, run))


def post(caller: httpx.Client, path: TablePath, action: str, dag: str = "sales") -> httpx.Response:
    call = f"tables/{path.database}/{path.table}/{action}"
    return caller.post(api(call, dag), headers=ASKS_ITSELF)


def drop(caller: httpx.Client, lease: str, dag: str = "sales") -> httpx.Response:
    return caller.post(api("leases/drop", dag), headers=ASKS_ITSELF, json={"lease_id": lease})


def paused(page: PagePlace, path: TablePath) -> bool:
    [status] = page.shop.client.statuses.list(path)
    return bool(status.paused)


def test_a_user_acts_on_the_tables_of_their_dag_only(page: PagePlace) -> None:
    clerk, admin = page.server.as_(CLERK), page.server.program("admin")
    assert post(clerk, SALES, "pause").status_code == 200
    assert paused(page, SALES)
    assert post(clerk, SALES, "resume").status_code == 200
    before = events(admin, "sales")
    for action in ACTIONS:
        assert problem(post(clerk, STAFF, action)) == (
            *(403, "Forbidden"),
            "DAG sales does not tier table staff.wages, but sales.*: act on the page of a DAG that"
            " tiers it",
        ), action
    assert not paused(page, STAFF)
    assert events(admin, "sales") == before, "what was refused is no action"
    assert post(clerk, STAFF, "pause", "tiering").status_code == 403
    assert runs(admin, "sales") == []


def test_each_table_says_why_it_is_not_acted_on_here(page: PagePlace) -> None:
    def told(caller: httpx.Client, dag: str = "sales") -> dict[str, str | None]:
        found = caller.get(api("tables", dag)).json()["tables"]
        return {one["path"]: one["why_not_act"] for one in found}

    clerk, editor = page.server.as_(CLERK), page.server.as_(EDITOR)
    both = {str(SALES), str(STAFF)}
    wait_until(lambda: both <= told(clerk).keys(), 60, "the tables to be read")
    of_staff = problem(post(clerk, STAFF, "pause"))[2]
    assert (told(clerk)[str(SALES)], told(clerk)[str(STAFF)]) == (None, of_staff)
    one = clerk.get(api("tables/staff/wages", "sales")).json()["table"]
    assert one["why_not_act"] == of_staff
    kept = clerk.get(api("maintenance?search=staff.wages", "sales")).json()["tables"]
    assert [each["why_not_act"] for each in kept] == [of_staff]
    template = problem(post(clerk, SALES, "pause", "rendered"))[2]
    assert set(told(clerk, "rendered").values()) == {template}
    role = "your role may read DAG tiering, but not edit it"
    assert set(told(editor, "tiering").values()) == {role}


def test_a_dag_whose_tables_come_from_a_template_acts_on_none(page: PagePlace) -> None:
    answer = post(page.server.as_(CLERK), SALES, "pause", "rendered")
    assert problem(answer) == (
        *(403, "Forbidden"),
        "only a run of DAG rendered knows which tables it tiers, so its page acts on none: its"
        " argument `tables` is a template",
    )


def test_the_lease_of_a_run_is_dropped_by_who_may_edit_its_dag(page: PagePlace) -> None:
    clerk, admin = page.server.as_(CLERK), page.server.program("admin")
    for lease in (OF_STAFF, OF_OTHERS, OF_READER, "no-such"):
        status, error, message = problem(drop(clerk, lease))
        assert (status, error) == (403, "Forbidden"), lease
        assert message == (
            f"lease {lease} is of no run of a DAG that you may edit: only the page of a DAG that"
            " tiers all tables drops it"
        )
    left = {one.lease_id for one in page.shop.client.leases.all()}
    assert {OF_SALES, OF_STAFF, OF_OTHERS, OF_READER} <= left
    assert drop(clerk, OF_SALES).status_code == 200
    assert events(admin, "sales")[0][:2] == ("sluice_drop_lease", CLERK)
    assert drop(admin, OF_STAFF, "sales").status_code == 200, "who may edit both"
    assert drop(admin, OF_READER, "tiering").status_code == 200, "a DAG of all tables"


def test_names_of_dags_that_a_user_may_not_read_are_hidden(page: PagePlace) -> None:
    def held(caller: httpx.Client) -> dict[str, dict[str, object]]:
        found = caller.get(api("leases", "sales")).json()["leases"]
        return {one["lease_id"]: one for one in found}

    with page.shop.client.snapshot_lease(OF_STAFF, STAFF, on_exit="keep"):
        pass
    admin, clerk = page.server.program("admin"), page.server.as_(CLERK)
    wait_until(lambda: bool(held(admin)[OF_STAFF]["dag_id"]), 60, "the name of the run to be read")
    assert held(admin)[OF_STAFF]["run_id"] == "manual__2"
    run = {"name": "Run", "url": "/dags/tiering/runs/manual__2"}
    assert held(admin)[OF_STAFF]["links"] == [run]
    hidden = held(clerk)[OF_STAFF]
    assert hidden["links"] == []
    assert (hidden["dag_id"], hidden["run_id"]) == (None, None)
    assert hidden["holder"] == "a run of the Airflow west"
    assert [one["name"] for one in clerk.get(api("overview", "sales")).json()["pages"]] == [
        *("rendered", "sales"),
    ]


def test_the_run_that_tiers_a_table_is_named_to_who_may_read_its_dag(page: PagePlace) -> None:
    claim = page.shop.client.tiering.claim([STAFF], OF_STAFF)
    assert claim

    def tiered_by(caller: httpx.Client) -> list[dict[str, object] | None]:
        listed = caller.get(api("tables", "sales"), params={"search": str(STAFF)}).json()["tables"]
        alone = caller.get(api(f"tables/{STAFF.database}/{STAFF.table}", "sales")).json()["table"]
        return [one["tiered_by"] for one in (*listed, alone)]

    admin, clerk = page.server.program("admin"), page.server.as_(CLERK)
    run = {"name": "Run", "url": "/dags/tiering/runs/manual__2"}
    name = "the run manual__2 of DAG tiering, Airflow west"
    named = {"name": name, "is_run": True, "links": [run]}
    hidden = {"name": f"a run of the Airflow west, lease {OF_STAFF}", "is_run": True, "links": []}
    wait_until(lambda: tiered_by(admin) == [named, named], 60, "the name of the run to be read")
    assert tiered_by(clerk) == [hidden, hidden]
    page.shop.client.tiering.release(claim, reason_of(InvalidTable("as a test")))


def test_who_may_not_trigger_a_dag_is_told_so_before(page: PagePlace) -> None:
    editor, admin = page.server.as_(EDITOR), page.server.program("admin")
    why = "your role may not trigger runs of DAG sales"
    seen = editor.get(api("overview", "sales")).json()
    assert (seen["may_act"], seen["may_tier_now"], seen["why_not_tier_now"]) == (True, False, why)
    before = events(admin, "sales")
    assert problem(post(editor, SALES, "tier")) == (403, "Forbidden", why)
    assert events(admin, "sales") == before
    assert runs(admin, "sales") == []
    seen = page.server.as_(CLERK).get(api("overview", "sales")).json()
    assert (seen["may_tier_now"], seen["why_not_tier_now"]) == (True, None)
    seen = editor.get(api("overview")).json()
    assert (seen["may_act"], seen["may_tier_now"]) == (False, False)
    assert seen["why_not_tier_now"] == seen["why_not"]
