"""Wheels: with or without compiled loops, tagged by what they need, the same bytes each time."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

from sluice.formats.kernels.objects import VARIANTS
from tests.docs.blocks import claimed
from tests.support.harness.shared_kernels import ROOT, SCRIPT, shared_objects

IS_BUILT_HERE = any(each.platform == sysconfig.get_platform() for each in VARIANTS)
built_here = pytest.mark.skipif(not IS_BUILT_HERE, reason="no loops are built on this platform")
PARTS = ("sluice", "plugins", "spark_jobs", "scripts")
FILES = ("setup.py", "pyproject.toml", "docs/package-index.md", "LICENSE")


@pytest.fixture
def build_kernels(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    import build_kernels

    return build_kernels


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """What a wheel is built from, elsewhere."""
    target = tmp_path / "tree"
    for name in PARTS:
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(ROOT / name, target / name, ignore=ignored)
    for name in FILES:
        (target / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, target / name)
    return target


def build(tree: Path, hook: str, *, first: str = "", **environment: str) -> Path:
    """The wheel that a hook of the build backend makes, with what is installed here.

    :param first: code that the process begins with.
    """
    code = (
        f"import sys; sys.path.insert(0, 'scripts'); import build_backend\n{first}\n"
        f"print(build_backend.{hook}(sys.argv[1]))"
    )
    out = tree.parent / "out"
    out.mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-c", code, str(out)],
        cwd=tree,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return out / done.stdout.splitlines()[-1]


def build_as_the_page_says(tree: Path, **environment: str) -> Path:
    """The wheel of the page's command, with the build requirements that are installed here."""
    [command] = claimed("docs/compiled-loops.md", __file__)
    assert command.text == "pip wheel --no-deps ."
    done = subprocess.run(
        [sys.executable, "-m", *shlex.split(command.text)],
        cwd=tree,
        env={**os.environ, "PIP_NO_BUILD_ISOLATION": "0", **environment},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    [wheel] = tree.glob("*.whl")
    return wheel


def objects_in(wheel: Path) -> set[str]:
    return {Path(name).name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".so")}


@pytest.mark.parametrize(
    ("platform", "chosen", "names"),
    [
        ("linux-x86_64", "", ["x86-64-avx2", "x86-64"]),
        ("linux-x86_64", "1", ["x86-64-avx2", "x86-64"]),
        ("linux-x86_64", "0", []),
        ("linux-aarch64", "", ["aarch64"]),
        ("win-amd64", "", []),
        ("win-amd64", "0", []),
    ],
)
def test_platform_and_switch_choose_what_is_built(
    build_kernels: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    platform: str,
    chosen: str,
    names: list[str],
) -> None:
    monkeypatch.setattr(sysconfig, "get_platform", lambda: platform)
    monkeypatch.setenv(build_kernels.SWITCH, chosen)
    assert [variant.name for variant in build_kernels.variants()] == names


def test_what_cannot_be_chosen_is_refused(
    build_kernels: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sysconfig, "get_platform", lambda: "win-amd64")
    monkeypatch.setenv(build_kernels.SWITCH, "1")
    with pytest.raises(build_kernels.CannotBuild, match="only for linux-aarch64, linux-x86_64$"):
        build_kernels.variants()
    monkeypatch.setenv(build_kernels.SWITCH, "yes")
    with pytest.raises(build_kernels.CannotBuild, match="SLUICE_BUILD_KERNELS=yes: use 0"):
        build_kernels.variants()


def test_a_switch_that_is_refused_ends_the_build_with_one_line(tree: Path) -> None:
    code = "import sys; sys.path.insert(0, 'scripts'); import build_backend\n"
    done = subprocess.run(
        [sys.executable, "-c", code + "build_backend.get_requires_for_build_wheel()"],
        cwd=tree,
        env={**os.environ, "SLUICE_BUILD_KERNELS": "yes"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    refused = "SLUICE_BUILD_KERNELS=yes: use 0 (never build) or 1 (build or fail), or do not set it"
    assert (done.returncode, done.stderr) == (1, f"build_backend: {refused}\n")


def test_nothing_to_compile_is_one_line(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(tmp_path / "out")],
        env={**os.environ, "SLUICE_BUILD_KERNELS": "0"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("build_kernels: nothing to build: no loops exist for ")
    assert not (tmp_path / "out").exists()


@built_here
def test_without_a_c_compiler_the_build_says_so(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), str(tmp_path / "out")]
    environment = {**os.environ, "CC": "no-such-cc -pipe"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr == (
        "build_kernels: the C compiler 'no-such-cc -pipe', which links the loops, was not found. "
        "Install one with `apt-get install gcc`, or name it in CC. Or set SLUICE_BUILD_KERNELS=0: "
        "the package then compiles on first use, with fluss-sluice[compile].\n"
    )
    assert not (tmp_path / "out").exists()


def test_wheels_are_built_with_the_compilers_that_tests_run_with(
    build_kernels: ModuleType,
) -> None:
    locked = re.findall(r"^\S+==\S+", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    assert set(build_kernels.COMPILERS) <= set(locked)


def test_a_wheel_is_built_with_compilers_and_nothing_else_is(tree: Path) -> None:
    code = (
        "import sys; sys.path.insert(0, 'scripts'); import build_backend as b, build_kernels\n"
        "print([b.get_requires_for_build_wheel(), b.get_requires_for_build_editable(),"
        " b.get_requires_for_build_sdist()] == [list(build_kernels.COMPILERS) if"
        " build_kernels.variants() else [], [], []])"
    )
    for chosen in ("", "0"):
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=tree,
            env={**os.environ, "SLUICE_BUILD_KERNELS": chosen},
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        assert done.stdout.splitlines()[-1] == "True"


@built_here
@pytest.mark.xdist_group("shared_kernels")
def test_the_need_of_glibc_is_what_the_loader_will_ask_for(build_kernels: ModuleType) -> None:
    table = subprocess.run(
        ["objdump", "-T", *map(str, shared_objects())], capture_output=True, text=True, check=True
    ).stdout
    versions = re.findall(r"\(GLIBC_(\d+)\.(\d+)(?:\.\d+)?\)", table)
    need = max((int(major), int(minor)) for major, minor in versions)
    assert build_kernels.glibc_need(shared_objects()) == need
    assert build_kernels.glibc_need([]) is None


@pytest.mark.slow
def test_a_wheel_without_loops_is_for_any_platform(tree: Path) -> None:
    wheel = build_as_the_page_says(tree, SLUICE_BUILD_KERNELS="0")
    assert wheel.name.endswith("-py3-none-any.whl")
    assert objects_in(wheel) == set()


def test_an_editable_install_builds_no_loops(tree: Path) -> None:
    wheel = build(tree, "build_editable", CC="no-such-cc")
    assert wheel.name.endswith("-py3-none-any.whl")
    assert list(tree.rglob("*.so")) == []


@built_here
@pytest.mark.slow
def test_a_wheel_has_the_loops_of_its_sources_and_the_same_bytes_each_time(
    build_kernels: ModuleType, tree: Path
) -> None:
    """The objects are compiled twice, as `shared_objects` and for the first wheel."""
    first = build_as_the_page_says(tree, PYTHONHASHSEED="1")
    machine = sysconfig.get_platform().partition("-")[2]
    major, minor = max((2, 17), build_kernels.glibc_need(shared_objects()))
    assert first.name.endswith(f"-py3-none-manylinux_{major}_{minor}_{machine}.whl")
    assert objects_in(first) == {path.name for path in shared_objects()}
    held = zipfile.ZipFile(first)
    for path in shared_objects():
        [name] = [name for name in held.namelist() if name.endswith(path.name)]
        assert held.read(name) == path.read_bytes()
        assert held.getinfo(name).external_attr >> 16 & 0o777 == 0o755

    content = first.read_bytes()
    [left] = (tree / "build").glob("lib*/sluice/formats/_kernels")
    (left / "kernels-x86-64-of-other-sources.so").write_bytes(b"stale")
    compiled = (
        "import build_kernels as b, pathlib, shutil\n"
        f"shared = {str(shared_objects()[0].parent)!r}\n"
        "b._build = lambda folder, variant, _: pathlib.Path("
        "shutil.copy(pathlib.Path(shared, b.file_name(variant, b.source_digest())), folder))"
    )
    again = build(tree, "build_wheel", first=compiled, PYTHONHASHSEED="2")
    assert again.read_bytes() == content
