"""Kernels are compiled once, found again wherever the package lies, and never half there."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import textwrap
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from sluice.formats.kernels import cache as kernel_cache
from sluice.formats.kernels import objects as kernel_objects
from tests.support.harness.parsing import parsed
from tests.support.harness.shared_kernels import without_compiling
from tests.support.programs.no_home import take_home

ROOT = Path(__file__).resolve().parents[4]
FORMATS = ROOT / "sluice/formats/kernels"
USE = """
    import json, sys
    from concurrent.futures import ThreadPoolExecutor
    import pyarrow as pa
    from sluice.formats.rows.arrays import decode_rows, encode_rows
    from sluice.model import types as t

    batch = pa.record_batch([pa.array([1], pa.int32()), ["a"]], ["a", "b"])
    def use(_):
        types = [t.INT, t.STRING]
        row = encode_rows(batch, types, "COMPACTED")
        back = decode_rows(row, types, "COMPACTED")
        return row[0].as_py().hex(), [column[0].as_py() for column in back]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(use, range(4)))
    assert found == [("00010161", [1, "a"])] * 4, found
    import sluice
    print(json.dumps({"compiled": "numba" in sys.modules, "from": sluice.__file__}))
"""


NOTICE = "compiling Sluice's loops for this machine; this takes about 10 s, once\n"


def run(code: str, cache: Path, package: Path = ROOT, *, told: str = "") -> Any:
    """What a process of its own prints as JSON; its kernels are kept in ``cache``.

    :param told: what it must say on standard error.
    """
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": str(package)}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=environment,
        cwd=cache.anchor,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == told
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that one process has filled; four threads of it wanted the kernels at once."""
    cache = tmp_path_factory.mktemp("kernels")
    assert run(USE, cache, told=NOTICE)["compiled"]
    return cache


def kept(cache: Path) -> list[Path]:
    return list((cache / "sluice").iterdir())


@pytest.mark.slow
@pytest.mark.xdist_group("filled")
def test_the_second_process_does_not_compile_and_says_nothing(filled: Path) -> None:
    [file] = kept(filled)
    assert file.name == kernel_cache.file_name()
    assert not run(USE, filled)["compiled"]
    assert kept(filled) == [file]


@pytest.mark.xdist_group("filled")
def test_a_zipped_package_finds_the_same_kernels(filled: Path, tmp_path: Path) -> None:
    package = tmp_path / "sluice.zip"
    with zipfile.ZipFile(package, "w") as archive:
        for path in (ROOT / "sluice").rglob("*.py"):
            archive.write(path, path.relative_to(ROOT))
    found = run(USE, filled, package)
    assert found["from"].startswith(str(package))
    assert not found["compiled"]
    assert len(kept(filled)) == 1


@pytest.mark.xdist_group("filled")
def test_what_is_cut_or_changed_is_not_loaded(filled: Path, tmp_path: Path) -> None:
    content = kept(filled)[0].read_bytes()
    copy = tmp_path / "kernels.bin"
    assert kernel_cache.load(copy) is None
    copy.write_bytes(content)
    loaded = kernel_cache.load(copy)
    assert loaded is not None
    symbols, code = loaded
    assert symbols["decode_rows"][1] == 11
    for broken in (b"", content[:-1], content[:20], content[:-1] + b"x", b"x" + content[1:]):
        copy.write_bytes(broken)
        assert kernel_cache.load(copy) is None
    assert kernel_cache.save(copy, symbols, code)
    assert copy.read_bytes() == content


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert not kernel_cache.save(tmp_path / "file" / "kernels.bin", {}, b"code")
    (tmp_path / "taken.bin").mkdir()
    assert not kernel_cache.save(tmp_path / "taken.bin", {}, b"code")
    assert kernel_cache.load(tmp_path / "file" / "kernels.bin") is None
    assert kernel_cache.load(tmp_path / "taken.bin") is None
    assert {path.name for path in tmp_path.iterdir()} == {"file", "taken.bin"}


def test_the_folder_is_the_users_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "numba"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert kernel_cache.folder() == tmp_path / "numba" / "sluice"
    monkeypatch.delenv("NUMBA_CACHE_DIR")
    assert kernel_cache.folder() == tmp_path / "xdg" / "sluice"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert kernel_cache.folder() == tmp_path / ".cache" / "sluice"
    take_home(monkeypatch)
    assert kernel_cache.folder() is None


def imported(module: str) -> set[str]:
    """Modules of this room, and compilers, that a module of this room imports."""
    names = set()
    for node in ast.walk(parsed(FORMATS / f"{module}.py")):
        if isinstance(node, ast.ImportFrom) and node.module:
            inner = node.module.removeprefix("sluice.formats.kernels").removeprefix(".")
            if node.module == "sluice.formats.kernels":
                names |= {alias.name for alias in node.names}
            else:
                names.add(inner.split(".")[0])
        elif isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
    return names


def test_the_name_of_the_file_depends_on_every_source() -> None:
    """All modules that are compiled, and those whose constants go into them."""
    ours = {path.stem for path in FORMATS.glob("*.py")}
    sources, found = {"build"}, {"build"}
    while found:
        found = {
            name
            for module in found
            if {"numba", "llvmlite"} & imported(module)
            for name in imported(module) & ours - sources
        }
        sources |= found
    # record_kernels only calls what others have decorated
    sources |= imported("record_kernels") & ours
    assert sources == {name.removesuffix(".py") for name in kernel_objects.SOURCES}


def test_a_client_does_not_load_a_compiler(tmp_path: Path) -> None:
    code = """
        import json, sys
        import sluice.client, sluice.formats.rows.arrays, sluice.formats.kv.value_batch
        print(json.dumps(sorted({"numba", "llvmlite"} & set(sys.modules))))
    """
    assert run(code, tmp_path) == []


AT_ONCE = """
    import os, pathlib, time
    from sluice.formats.kernels import cache as kernel_cache

    look, folder = kernel_cache.load, pathlib.Path(os.environ["NUMBA_CACHE_DIR"])
    def look_and_wait(path):
        # nobody compiles before all have looked and found nothing
        found = look(path)
        assert found is None
        (folder / f"looked-{os.getpid()}").touch()
        deadline = time.monotonic() + 200
        while len(list(folder.glob("looked-*"))) < 3:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        return found
    kernel_cache.load = look_and_wait
"""


@pytest.mark.slow
def test_processes_that_compile_at_once_leave_one_file(tmp_path: Path) -> None:
    code = without_compiling() + textwrap.dedent(AT_ONCE + USE)
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda _: run(code, tmp_path, told=NOTICE), range(3)))
    assert all(each["compiled"] for each in found)
    assert [path.name for path in kept(tmp_path)] == [kernel_cache.file_name()]
    assert not run(USE, tmp_path)["compiled"]


@pytest.mark.slow
def test_without_a_folder_each_process_compiles_for_itself(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    told = NOTICE + (
        f"the compiled loops cannot be stored in {tmp_path}/file/sluice, so each process "
        "compiles them: set NUMBA_CACHE_DIR to a writable folder\n"
    )
    code = without_compiling() + textwrap.dedent(USE)
    assert run(code, tmp_path / "file", told=told)["compiled"]
    assert run(code, tmp_path / "file", told=told)["compiled"]
