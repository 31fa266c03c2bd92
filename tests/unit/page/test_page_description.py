"""The description of the JSON API, and whether a running page keeps it (schemathesis)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.page.local_page import OWN_PAGE, LocalPage, local_page
from tests.support.page.page_cluster import CALM, FAILING, KEYED, LEASE, page_cluster
from tests.support.programs.processes import wait_for

SCHEMATHESIS = str(Path(sys.executable).with_name("schemathesis"))
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "unsupported_method",
)
TIMEOUT_S = 600


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalPage]:
    data_dir = tmp_path_factory.mktemp("page") / "data"
    with page_cluster(data_dir) as cluster, local_page(cluster.address) as served:
        browser = served.logged_in()
        wait_for(
            "the tables of the cluster",
            lambda: browser.get("/api/v1/tables").json()["total"] == 3,
        )
        yield served


def described(page: LocalPage) -> dict[str, Any]:
    answer = page.logged_in().get("/api/v1/openapi.json")
    assert answer.status_code == 200
    return dict(answer.json())


def test_each_operation_is_described(page: LocalPage) -> None:
    """With a short summary, a clear name for clients, and every form of refusal."""
    found = described(page)
    names = []
    for path, operations in found["paths"].items():
        for method, operation in operations.items():
            where = f"{method} {path}"
            names.append(operation["operationId"])
            assert operation["operationId"].isidentifier(), where
            assert not operation["operationId"].startswith(("get_", "post_")), where
            assert operation["summary"].count(" ") >= 2, where
            assert len(operation["tags"]) == 1, where
            for status in ("400", "401", "403", "404", "409", "422", "500", "502", "504"):
                schema = operation["responses"][status]["content"]["application/json"]["schema"]
                assert schema == {"$ref": "#/components/schemas/Problem"}, f"{where} {status}"
    assert len(names) == len({*names})
    assert {"overview", "tables", "table", "table_rounds", "pause", "drop_lease"} <= {*names}
    assert "HTTPValidationError" not in found["components"]["schemas"], "no answer has that form"


def with_real_names(description: dict[str, Any]) -> dict[str, Any]:
    """The description with names of the cluster among all others that may be tried."""
    real = {
        "database": ["shop"],
        "table": [FAILING.table, KEYED.table, CALM.table],
    }
    for operations in description["paths"].values():
        for operation in operations.values():
            for parameter in operation.get("parameters", ()):
                if parameter["in"] == "path":
                    known = {"enum": real[parameter["name"]]}
                    parameter["schema"] = {"anyOf": [known, {"type": "string", "minLength": 1}]}
    lease = description["components"]["schemas"]["LeaseToDrop"]["properties"]["lease_id"]
    lease["examples"] = [LEASE]
    return description


@pytest.mark.slow
@pytest.mark.parametrize(
    "examples", [pytest.param(6, id="few"), pytest.param(300, id="many", marks=pytest.mark.long)]
)
def test_the_running_page_keeps_its_description(
    page: LocalPage, tmp_path: Path, examples: int
) -> None:
    done = checked(page, described(page), tmp_path, examples)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "No issues found" in done.stdout


@pytest.mark.slow
def test_a_wrong_description_is_noticed(page: LocalPage, tmp_path: Path) -> None:
    wrong = described(page)
    wrong["components"]["schemas"]["Overview"]["properties"]["total"] = {"type": "string"}
    wrong["paths"] = {"/api/v1/overview": wrong["paths"]["/api/v1/overview"]}
    done = checked(page, wrong, tmp_path, 1)
    assert done.returncode == 1
    assert "Response violates schema" in done.stdout


def checked(
    page: LocalPage, description: dict[str, Any], folder: Path, examples: int
) -> subprocess.CompletedProcess[str]:
    """What schemathesis says of all operations, with the same examples in each run."""
    target = folder / "openapi.json"
    target.write_text(json.dumps(with_real_names(description)))
    browser: httpx.Client = page.logged_in()
    headers = OWN_PAGE | {"Cookie": f"{page.access.cookie}={browser.cookies[page.access.cookie]}"}
    command = [SCHEMATHESIS, "run", str(target), "--url", page.url, "--no-color"]
    command += ["--checks", ",".join(CHECKS), "--phases", "examples,coverage,fuzzing"]
    command += ["--max-examples", str(examples), "--seed", "1", "--warnings", "off"]
    for name, value in headers.items():
        command += ["--header", f"{name}: {value}"]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
