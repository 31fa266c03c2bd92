"""The tables and examples of docs/fluss agree with the code."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from sluice.errors import BY_CODE
from sluice.formats.offsets_file import offsets_from_json
from sluice.formats.types.descriptors import data_type_from_json, schema_from_json
from sluice.server.coordinator.catalog.options import KNOWN
from sluice.wire.apis import APIS, BOTH, COORDINATOR, TABLET

PAGES = Path(__file__).resolve().parents[3] / "docs" / "fluss"
OWN_CALLS, OWN_CODES = 2001, 1001


def section(page: str, heading: str) -> str:
    """The text of a heading, up to the next one of its level."""
    text = (PAGES / page).read_text()
    return text.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]


def numbered(page: str, heading: str) -> dict[int, str]:
    """The cells of a table of numbers and names, whatever the number of columns."""
    cells = re.findall(r"\| (-?\d+) \| ([A-Z][^|]*?) (?=\|)", section(page, heading))
    found = {int(number): name for number, name in cells}
    assert len(found) == len(cells), "a number comes twice"
    return found


def examples(page: str, heading: str) -> list[str]:
    return re.findall(r"^```json\n(.*?)^```", section(page, heading), re.MULTILINE | re.DOTALL)


def plain(name: str) -> str:
    return name.partition(" ")[0].replace("_", "").lower()


def test_every_error_code_is_listed_with_its_retries() -> None:
    listed = numbered("rpc.md", "Error codes")
    fluss = {code: error for code, error in BY_CODE.items() if code < OWN_CODES}
    assert set(listed) == {0, *fluss}
    retried = {code for code, name in listed.items() if name.endswith("**R**")}
    assert retried == {code for code, error in fluss.items() if error.retryable}


def test_every_api_key_is_listed_with_its_name_and_versions() -> None:
    listed = numbered("rpc.md", "Api keys")
    for api in APIS:
        if api.key < OWN_CALLS:
            versions = f" (0-{api.max_version})" if api.max_version else ""
            name = listed[api.key]
            assert (plain(name), name[len(name.partition(" ")[0]) :]) == (
                api.name.lower(),
                versions,
            )


def test_every_call_is_listed_under_its_servers() -> None:
    rows = dict(
        re.findall(
            r"^\| ([a-z ]+) \| ([A-Z].*) \|$", section("rpc.md", "Servers of each call"), re.M
        )
    )
    servers = {
        plain(name): roles
        for label, roles in (
            ("both", BOTH),
            ("coordinator", COORDINATOR),
            ("tablet server", TABLET),
        )
        for name in rows[label].split(", ")
    }
    assert len(servers) == sum(row.count(",") + 1 for row in rows.values())
    assert set(servers) == {plain(name) for name in numbered("rpc.md", "Api keys").values()}
    for api in APIS:
        if api.key < OWN_CALLS:
            assert servers[api.name.lower()] == api.roles, api.name


def test_every_table_option_is_listed() -> None:
    listed = set(
        re.findall(r"`(table\.[\w.-]+)`", section("types-and-options.md", "Table options"))
    )
    stamped = {"table.kv.standby-replica.enabled"}  # set by CREATE_TABLE, not by users
    assert listed == KNOWN - stamped


def test_examples_can_be_read() -> None:
    """As the code reads types, schemas and offsets; as JSON anywhere."""
    for example in examples("types-and-options.md", "Data types"):
        data_type_from_json(json.loads(example))
    [schema] = examples("types-and-options.md", "Schemas")
    assert schema_from_json(schema.encode()).primary_key == ("a", "c")
    for example in examples("lake-snapshots.md", "Offsets file"):
        offsets_from_json(example.encode())


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.md")), ids=lambda page: page.name)
def test_blocks_of_json_are_json(page: Path) -> None:
    for block in re.findall(r"^```json\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
        json.loads(block)
