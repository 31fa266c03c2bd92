"""One request in many encodings: what is checked and written down is what is done."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from sluice.client.leases.ids import lease_id
from sluice.model import TablePath
from sluice.rounds.records.run_names import RunName, write_run_name
from tests.airflow.page.test_page_actions import events
from tests.airflow.page_process import ASKS_ITSELF, DEPLOYMENT, PagePlace, api
from tests.airflow.page_rights import CLERK
from tests.unit.server.kv_support import KvCaller
from tests.unit.server.support import Caller

pytestmark = [pytest.mark.airflow, pytest.mark.xdist_group("page")]

TABLE = TablePath("vault", "held")
OWN = lease_id(DEPLOYMENT, "sales", "manual__encoded")
"""The lease that a clerk may drop: of a run of the DAG `sales`."""
OTHER = "monthly-report"
"""A reader's, which nobody drops who may only edit `sales`."""
JSON = "application/json"


@pytest.fixture(scope="module", autouse=True)
def leased(page: PagePlace) -> None:
    page.shop.client.admin.create_database(TABLE.database)
    caller = Caller(page.shop.address)
    try:
        KvCaller(caller, TABLE, properties={"table.datalake.enabled": "true"}).put((1, "a", 1))
        page.cluster.take_kv_snapshots(TABLE)
    finally:
        caller.transport.close()
    write_run_name(page.shop.work.as_uri(), OWN, RunName("sales", "manual__encoded"))


def plain(lease: str, **more: Any) -> bytes:
    return json.dumps({"lease_id": lease, **more}).encode()


def nested(lease: str) -> bytes:
    return f'{{"lease_id": "{lease}", "y": {"[" * 300}{"]" * 300}}}'.encode()


def escaped(lease: str) -> bytes:
    value = "".join(f"\\u{ord(char):04x}" for char in lease)
    return f'{{"lease\\u005fid": "{value}"}}'.encode()


ENCODINGS: dict[str, tuple[Callable[[str], bytes], str | None]] = {
    "plain": (plain, JSON),
    "with a byte order mark": (lambda lease: b"\xef\xbb\xbf" + plain(lease), JSON),
    "UTF-16": (lambda lease: plain(lease).decode().encode("utf-16"), JSON),
    "UTF-16, big-endian, no mark": (lambda lease: plain(lease).decode().encode("utf-16-be"), JSON),
    "UTF-32": (lambda lease: plain(lease).decode().encode("utf-32"), JSON),
    "half a surrogate elsewhere": (lambda lease: plain(lease, y="\ud800"), JSON),
    "nested 300 deep": (nested, JSON),
    "infinite numbers": (lambda lease: plain(lease, y=[float("nan"), float("inf")]), JSON),
    "a number of 4,000 digits": (lambda lease: plain(lease, y=10**4_000), JSON),
    "escaped": (escaped, JSON),
    "another type of JSON": (plain, "application/vnd.x+json; charset=utf-16"),
    "white space around": (lambda lease: b"\r\n\t " + plain(lease) + b" \n", JSON),
}
"""Bodies that FastAPI reads: a check must read them alike."""
REFUSED: dict[str, tuple[bytes, str | None]] = {
    "a form": (f"lease_id={OTHER}".encode(), "application/x-www-form-urlencoded"),
    "parts of a form": (
        f'--x\r\nContent-Disposition: form-data; name="lease_id"\r\n\r\n{OTHER}\r\n--x--'.encode(),
        "multipart/form-data; boundary=x",
    ),
    "JSON as text": (plain(OTHER), "text/plain"),
    "JSON without a type": (plain(OTHER), None),
    "a list": (b"[" + plain(OTHER) + b"]", JSON),
    "no name": (b"{}", JSON),
    "a number": (b'{"lease_id": 1}', JSON),
    "half a surrogate": (b'{"lease_id": "\\ud800"}', JSON),
    "no JSON": (b"\x1f\x8b\x08\x00", JSON),
}
"""Bodies that name no lease to FastAPI, so that nothing is done."""


def hold(page: PagePlace, *leases: str) -> None:
    for name in leases:
        with page.shop.client.snapshot_lease(name, TABLE, on_exit="keep"):
            pass


def held(page: PagePlace) -> set[str]:
    return {one.lease_id for one in page.shop.client.leases.all()} & {OWN, OTHER}


def drop(caller: httpx.Client, body: bytes, type_: str | None, query: str = "") -> int:
    typed = {} if type_ is None else {"Content-Type": type_}
    path = api(f"leases/drop{query}", "sales")
    return caller.post(path, content=body, headers={**ASKS_ITSELF, **typed}).status_code


@pytest.mark.parametrize(("encode", "type_"), ENCODINGS.values(), ids=ENCODINGS)
def test_whoever_asks_in_whatever_encoding(
    page: PagePlace, encode: Callable[[str], bytes], type_: str | None
) -> None:
    clerk, viewer, user = (page.server.as_(name) for name in (CLERK, "viewer", "user"))
    admin = page.server.program("admin")
    hold(page, OWN, OTHER)
    before = events(admin, "sales")
    assert drop(clerk, encode(OTHER), type_) == 403
    assert drop(viewer, encode(OTHER), type_) == 403
    assert drop(viewer, encode(OWN), type_) == 403
    assert drop(user, encode(OTHER), type_) == 403
    assert drop(admin, encode(OTHER), type_) == 403, "on the page of this DAG nobody may"
    assert held(page) == {OWN, OTHER}
    assert events(admin, "sales") == before, "what was refused is no action"
    assert drop(clerk, encode(OWN), type_) == 200
    hold(page, OWN)
    assert drop(admin, encode(OWN), type_) == 200
    assert held(page) == {OTHER}
    what = {"lease_id": OWN}
    written = [("sluice_drop_lease", "admin", what), ("sluice_drop_lease", CLERK, what)]
    assert events(admin, "sales") == written + before


@pytest.mark.parametrize(("body", "type_"), REFUSED.values(), ids=REFUSED)
def test_a_body_that_names_no_lease(page: PagePlace, body: bytes, type_: str | None) -> None:
    admin = page.server.program("admin")
    hold(page, OTHER)
    before = events(admin, "sales")
    for caller in (page.server.as_(CLERK), page.server.as_("viewer"), admin):
        assert drop(caller, body, type_) in (400, 403, 422)
    assert OTHER in held(page)
    assert events(admin, "sales") == before


def test_the_last_of_two_names_is_checked_and_written_down(page: PagePlace) -> None:
    clerk, admin = page.server.as_(CLERK), page.server.program("admin")
    hold(page, OWN, OTHER)
    both = '{{"lease_id": "{}", "lease_id": "{}"}}'
    assert drop(clerk, both.format(OWN, OTHER).encode(), JSON) == 403
    assert held(page) == {OWN, OTHER}
    for query in (f"?lease_id={OTHER}&lease={OTHER}", "?dag_id=tiering", "?_method=GET"):
        assert drop(clerk, both.format(OTHER, OWN).encode(), JSON, query) == 200
        assert events(admin, "sales")[0] == ("sluice_drop_lease", CLERK, {"lease_id": OWN})
        assert held(page) == {OTHER}
        hold(page, OWN)


TO_OTHERS = (
    "tables/vault/held/pause",
    "tables/%76ault/held/pause",
    "tables/vault/held/pause/",
    "tables//vault/held/pause",
    "tables/sales%2Forders/../../vault/held/pause",
    "tables/sales/..%2F..%2Fvault%2Fheld/pause",
    "tables/sales%2Fx/held/pause",
    "tables/vault%252Fheld/x/pause",
    "tables/vault/held/pause?database=sales&table=orders&dag_id=tiering",
    "tables/vault/held/pause;database=sales",
    "tables/vault%00/held/pause",
)


def test_a_path_in_another_spelling(page: PagePlace) -> None:
    clerk, admin = page.server.as_(CLERK), page.server.program("admin")
    before = events(admin, "sales"), events(admin)
    for path in TO_OTHERS:
        for method in ("POST", "PUT", "HEAD", "OPTIONS", "DELETE"):
            url = f"{page.server.url}{api('', 'sales')}{path}"
            headers = {**ASKS_ITSELF, "X-HTTP-Method-Override": "POST"}
            code = clerk.request(method, url, headers=headers).status_code
            assert 300 <= code < 500, (path, method, code)
    [status] = page.shop.client.statuses.list(TABLE)
    assert not status.paused
    assert (events(admin, "sales"), events(admin)) == before


def test_each_route_that_acts_is_checked_and_written_down(page: PagePlace) -> None:
    """Those of the application inside Airflow's, as it has them itself: also one that is new."""
    clerk, admin = page.server.as_(CLERK), page.server.program("admin")
    acting = [one for one in page.server.routes if not {"GET", "HEAD"}.issuperset(one.methods)]
    assert {"tier_now", "retry", "pause", "resume", "compact", "drop_lease"} <= {
        one.name for one in acting
    }
    for route in acting:
        assert route.methods == ["POST"], route
        url, what = "/sluice" + route.path.format(dag_id=ALL, **NAMES), TO_WHAT[route.name]
        before = events(admin, ALL)
        for caller in (clerk, page.server.as_("viewer"), page.server.as_(None)):
            answer = caller.post(url, headers=ASKS_ITSELF, json={"lease_id": OTHER})
            assert answer.status_code in (401, 403), route
        elsewhere = "/sluice" + route.path.format(dag_id="sales", **NAMES)
        answer = admin.post(elsewhere, json={"lease_id": OTHER})
        assert answer.status_code == 403, f"{route} acts on what is not of its DAG"
        assert events(admin, ALL) == before
        hold(page, OTHER)
        assert admin.post(url, json={"lease_id": OTHER}).status_code == 200, route
        assert events(admin, ALL) == [(f"sluice_{route.name}", "admin", what), *before]


ALL = "tiering.second"
"""A DAG that tiers all tables."""
NAMES = {"database": TABLE.database, "table": TABLE.table}
TO_WHAT = dict.fromkeys(("tier_now", "retry", "pause", "resume", "compact"), NAMES)
TO_WHAT["drop_lease"] = {"lease_id": OTHER}
"""What the audit log has of each action: a new one has to be added."""
