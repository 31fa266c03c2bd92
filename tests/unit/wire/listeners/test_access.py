"""Each call has a line in the table of roles, and the lines are the ones that are meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import TABLET, Api
from sluice.wire.listeners.access import NEEDS, OWNED, Access, required_access


def test_each_call_says_what_it_needs() -> None:
    missing = {api.name for api in apis.APIS} - {api.name for api in NEEDS}
    assert not missing, "give them a line in sluice/wire/listeners/access.py"
    assert set(NEEDS) == set(apis.APIS)


def test_a_call_without_a_line_is_for_admins() -> None:
    new = Api(4711, "DropAll", pb.DropTableRequest, pb.DropTableResponse, TABLET, idempotent=False)
    assert required_access(new) is Access.ADMIN


@pytest.mark.parametrize(
    ("api", "access"),
    [
        (apis.FETCH_LOG, Access.READ),
        (apis.LOOKUP, Access.READ),
        (apis.SCAN_KV, Access.READ),
        (apis.ACQUIRE_KV_SNAPSHOT_LEASE, Access.READ),
        (apis.LIST_TIERING_STATUSES, Access.READ),
        (apis.PRODUCE_LOG, Access.WRITE),
        (apis.PUT_KV, Access.WRITE),
        (apis.LAKE_TIERING_HEARTBEAT, Access.WRITE),
        (apis.COMMIT_LAKE_TABLE_SNAPSHOT, Access.WRITE),
        (apis.CREATE_TABLE, Access.ADMIN),
        (apis.DROP_DATABASE, Access.ADMIN),
        (apis.ALTER_TABLE, Access.ADMIN),
        (apis.CONTROL_TIERING, Access.ADMIN),
        (apis.SKIP_DAMAGE, Access.ADMIN),
    ],
)
def test_what_calls_need(api: Api, access: Access) -> None:
    assert required_access(api) is access


def test_nothing_that_changes_a_table_is_for_readers() -> None:
    readers = {api.name for api, access in NEEDS.items() if access is Access.READ}
    changing = ("Create", "Drop", "Alter", "Put", "Produce", "Commit", "Prepare", "Notify", "Stop")
    assert {name for name in readers if name.startswith(changing)} == {"DropKvSnapshotLease"}


def test_each_role_may_what_those_before_it_may() -> None:
    assert list(Access) == sorted(Access) == [Access.READ, Access.WRITE, Access.ADMIN]


def test_the_page_shows_each_call_its_roles_and_whose_it_is() -> None:
    page = (Path(__file__).parents[4] / "docs" / "security.md").read_text()
    _, _, section = page.partition("## Calls and roles\n")
    lines = [line for line in section.partition("\n## ")[0].splitlines() if line.startswith("|")]
    shown = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert shown[0] == ["call", *(access.role for access in Access), "of others"]
    assert shown[2:] == [
        [api.name, *("yes" if role >= need else "" for role in Access), OWNED.get(api, "")]
        for api, need in NEEDS.items()
    ]


def test_what_belongs_to_a_user_is_for_readers() -> None:
    """A call that only writers may make is not in the table: they trust each other."""
    assert {NEEDS[api] for api in OWNED} == {Access.READ}
