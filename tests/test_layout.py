"""The tree tests itself: what a linter cannot see."""

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.structure import ROOM_FILES_MAX, Structure
from tests.support.harness.parsing import parsed

ROOT = Path(__file__).resolve().parent.parent


def files_of_the_tree() -> list[str]:
    """What git tracks or would; all of it where the tree is an unpacked sdist."""
    if not (ROOT / ".git").exists():
        made = (".venv", ".cache", "build", "dist")
        paths = [path.relative_to(ROOT) for path in ROOT.rglob("*.py")]
        return [str(path) for path in paths if path.parts[0] not in made]
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return listed.stdout.splitlines()


TRACKED = files_of_the_tree()
SOURCES = sorted(
    ROOT / name
    for name in TRACKED
    if name.endswith(".py") and "_pb2" not in name and (ROOT / name).is_file()
)
CODE = [p for p in SOURCES if p.relative_to(ROOT).parts[0] in ("sluice", "plugins", "spark_jobs")]


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_no_file_is_longer_than_600_lines() -> None:
    lines = {path: len(path.read_text().splitlines()) for path in SOURCES}
    assert lines
    long = [f"{name(path)} has {count} lines" for path, count in lines.items() if count > 600]
    assert not long, "\n".join(long)


def test_no_file_of_the_front_end_is_longer_than_600_lines() -> None:
    ours = [
        ROOT / name
        for name in TRACKED
        if name.startswith("frontend/src/") and not name.endswith("schema.d.ts")
    ]
    long = [
        name(path) for path in ours if path.is_file() and len(path.read_text().splitlines()) > 600
    ]
    assert not long, "\n".join(long)


Walked = list[tuple[Path, ast.FunctionDef | ast.AsyncFunctionDef | ast.ImportFrom]]


@pytest.fixture(scope="module")
def walked() -> Walked:
    """The functions and the imports of names of all code, found in one walk."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ImportFrom
    return [(path, n) for path in CODE for n in ast.walk(parsed(path)) if isinstance(n, kinds)]


def test_no_function_is_longer_than_70_lines(walked: Walked) -> None:
    long = [
        f"{name(path)}: {node.name} has {node.end_lineno - node.lineno + 1} lines"
        for path, node in walked
        if not isinstance(node, ast.ImportFrom)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno >= 70
    ]
    assert not long, "\n".join(long)


@pytest.fixture(scope="module")
def structure() -> Structure:
    found = Structure(ROOT)
    assert len(found.rooms) == len({path.parent for path in CODE})  # it leaves out no room
    return found


def test_no_room_has_more_than_15_files(structure: Structure) -> None:
    assert ROOM_FILES_MAX == 15
    full = [
        f"{room} has {len(modules)}"
        for room, modules in structure.rooms.items()
        if len(modules) > ROOM_FILES_MAX
    ]
    assert not full, "\n".join(full)


def test_no_two_files_of_a_room_are_told_apart_by_a_suffix(structure: Structure) -> None:
    assert not structure.same_beginnings, "\n".join(structure.same_beginnings)


def is_in(room: Path, module: str) -> bool:
    return (room / module).is_dir() or (room / f"{module}.py").exists()


def test_a_room_says_on_less_than_a_screen_what_it_knows() -> None:
    """It names only files that it has, or what is in them."""
    wrong = []
    for room in sorted({path.parent for path in CODE}):
        text = ast.get_docstring(parsed(room / "__init__.py")) or ""
        if not text or text.count("\n") >= 30:
            wrong.append(f"{name(room)}: {text.count(chr(10)) + 1} lines")
        named = re.findall(r"[Bb]egin with ``(\w+)", text)
        wrong += [f"{name(room)}: there is no {one}" for one in named if not is_in(room, one)]
    assert not wrong, "\n".join(wrong)


def test_every_module_says_what_it_is() -> None:
    silent = [name(path) for path in CODE if not ast.get_docstring(parsed(path))]
    assert not silent, "\n".join(silent)


def test_the_core_imports_no_engine_even_through_its_packages() -> None:
    """The import contract does not see what ``sluice/__init__.py`` pulls in for its children."""
    code = (
        "import sys\n"
        "for name in ('airflow', 'pyspark', 'sluice_airflow', 'sluice_spark', 'pyspark_sluice'):\n"
        "    sys.modules[name] = None\n"
        "import sluice.client, sluice.rounds.round.round, sluice.driver.local, sluice.cli.main\n"
        "import sluice.server.cluster, sluice.lake, sluice.driver.spark.sql\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_the_product_imports_no_test(walked: Walked) -> None:
    """Nor a benchmark, a script or the demo: the wheel has none of them."""
    outside = {"tests", "bench", "demo", "scripts"}
    found = [
        f"{name(path)}: {node.module}"
        for path, node in walked
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in outside
    ]
    assert not found, "\n".join(found)


def test_importing_sluice_is_light() -> None:
    code = "import sys, sluice\nassert not {'grpc', 'pyarrow', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_spark_jobs_are_thin() -> None:
    for path in (ROOT / "spark_jobs/sluice_spark").glob("*.py"):
        assert len(path.read_text().splitlines()) <= 150, path


def test_airflow_does_not_run_the_package_as_loose_files() -> None:
    """By a name without a slash: behind one, Airflow 3.1 finds no folder."""
    assert "sluice_airflow" in (ROOT / "plugins/.airflowignore").read_text().split()


def test_dag_files_carry_our_prefix() -> None:
    """``dags/`` is on the path of every task: a bare name there could shadow a library."""
    assert [p.name for p in (ROOT / "dags").glob("*.py") if not p.name.startswith("sluice_")] == []


def test_lock_file_has_hashes_and_no_addresses() -> None:
    text = (ROOT / "requirements.lock").read_text()
    assert "://" not in text
    assert "--index-url" not in text
    for block in text.replace("\\\n", " ").splitlines():
        if block and not block.startswith("#"):
            assert "--hash=sha256:" in block, block


def test_pyspark_and_its_client_have_the_same_version() -> None:
    pins = dict(
        line.split(" ")[0].split("==")
        for line in (ROOT / "requirements.lock").read_text().splitlines()
        if "==" in line
    )
    assert pins["pyspark"] == pins["pyspark-client"]
    assert pins["pyspark"].startswith("4.1.")


def test_one_module_knows_what_moved_between_airflows(walked: Walked) -> None:
    moved = ("airflow.configuration", "airflow.exceptions")
    moved += tuple(name.replace("airflow.", "airflow.sdk.") for name in moved)
    importers = {
        path.name
        for path, node in walked
        if isinstance(node, ast.ImportFrom) and node.module in moved
    }
    assert importers == {"airflow_names.py"}


def test_lint_sees_a_breach_of_the_import_contract(tmp_path: Path) -> None:
    """The contract on a copy of the tree: clean, then with an engine in the core, and a circle."""
    for name in ("sluice", "plugins/sluice_airflow", "spark_jobs"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    folders = [str(tmp_path), *(str(tmp_path / name) for name in ("plugins", "spark_jobs"))]
    environment = {**os.environ, "PYTHONPATH": ":".join(folders)}

    def broken() -> list[str]:
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert "KEPT" in done.stdout, done
        found = [line for line in done.stdout.splitlines() if line.endswith(" BROKEN")]
        assert bool(found) == bool(done.returncode), done.stdout
        return [line.removesuffix(" BROKEN") for line in found]

    assert broken() == []
    with (tmp_path / "sluice/rounds/values/offsets.py").open("a") as file:
        file.write("\n\ndef breach() -> None:\n    import pyspark\n")
    with (tmp_path / "sluice/client/admin/admin.py").open("a") as file:
        file.write("\nif TYPE_CHECKING:\n    from sluice.client.statuses import recorded\n")
    assert broken() == [
        "Rooms of client, highest first",
        "No modules or packages import each other in a circle",
        "The core knows no orchestrator and no engine",
    ]
    assert "pipefail" in (ROOT / "Makefile").read_text(), "or make would not see it"


def test_no_file_holds_a_merge_conflict() -> None:
    marks = (b"<" * 7 + b" ", b">" * 7 + b" ")
    texts = [ROOT / name for name in TRACKED if (ROOT / name).is_file()]
    found = [
        str(path.relative_to(ROOT))
        for path in texts
        if any(line.startswith(marks) for line in path.read_bytes().splitlines())
    ]
    assert found == []
