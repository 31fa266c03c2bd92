"""Shared objects of a wheel: the best for the CPU is loaded, never a stale one, and no compiler."""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import textwrap
import zipfile
from pathlib import Path
from typing import Any

import pytest

from sluice.formats.kernels import objects as kernel_objects
from sluice.formats.kernels.objects import FOLDER, VARIANTS, Variant
from tests.support.harness.shared_kernels import ROOT, package_with, shared_objects

HERE = [each for each in VARIANTS if each.platform == sysconfig.get_platform()]
FITTING = kernel_objects.fitting(
    sysconfig.get_platform(), kernel_objects.cpu_flags(Path("/proc/cpuinfo"))
)
pytestmark = [
    pytest.mark.skipif(not HERE, reason="no shared objects are built on this platform"),
    pytest.mark.xdist_group("shared_kernels"),
    pytest.mark.slow,
]
USE = """
    import json, sys
    import pyarrow as pa
    from sluice.formats.rows.arrays import decode_rows, encode_rows
    from sluice.model import types as t

    batch = pa.record_batch([pa.array([1], pa.int32()), ["a"]], ["a", "b"])
    rows = encode_rows(batch, [t.INT, t.STRING], "COMPACTED")
    assert rows[0].as_py().hex() == "00010161"
    back = decode_rows(rows, [t.INT, t.STRING], "COMPACTED")
    assert [column[0].as_py() for column in back] == [1, "a"]
    from sluice.formats.kernels.compiled import LOADED
    assert not {"numba", "llvmlite"} & set(sys.modules)
    print(json.dumps([LOADED.origin.value, LOADED.file, LOADED.compiler]))
"""
KERNEL_TESTS = (
    "unit/formats/rows/test_row_arrays.py",
    "unit/formats/kv/test_value_batch.py",
    "unit/formats/kv/test_kv_batch.py",
    "unit/formats/kv/test_sst_table.py",
    "golden/test_kv_snapshot.py",
)


def run(
    code: str, package: Path, *arguments: str, cache: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """A process of its own that knows this package first, then what is installed."""
    environment = {**os.environ, "PYTHONPATH": f"{package}{os.pathsep}{ROOT}"}
    environment["NUMBA_CACHE_DIR"] = str(cache or package / "cache")
    command = [sys.executable, "-c", textwrap.dedent(code), *arguments]
    return subprocess.run(
        command,
        env=environment,
        cwd="/",
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def answer(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def objects() -> dict[str, Path]:
    """By name of the variant."""
    digest = kernel_objects.source_digest()
    found = {path.name: path for path in shared_objects()}
    return {each.name: found[kernel_objects.file_name(each, digest)] for each in HERE}


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory, objects: dict[str, Path]) -> Path:
    return package_with(tmp_path_factory.mktemp("package"), list(objects.values()))


def test_without_numba_the_best_for_this_cpu_is_loaded(
    package: Path, objects: dict[str, Path]
) -> None:
    origin, file, compiler = answer(run(USE, package))
    assert origin == "package"
    assert Path(file) == package / "sluice/formats" / FOLDER / objects[FITTING[0].name].name
    assert re.fullmatch(r"numba \d+\.\d+\.\d+, llvmlite \d+\.\d+\.\d+", compiler)
    assert not (package / "cache").exists()


def test_a_zipped_package_has_its_shared_objects_with_it(package: Path, tmp_path: Path) -> None:
    target = tmp_path / "sluice.zip"
    with zipfile.ZipFile(target, "w") as archive:
        for path in (package / "sluice").rglob("*"):
            if path.suffix != ".pyc":
                archive.write(path, path.relative_to(package))
    for name in ("numba", "llvmlite"):
        shutil.copy(package / f"{name}.py", tmp_path)
    code = f"import sys; sys.path.insert(0, {str(target)!r})\n" + textwrap.dedent(USE)
    origin, file, _ = answer(run(code, tmp_path))
    assert (origin, file.startswith("kernels-")) == ("package", True)


@pytest.mark.parametrize(
    ("platform", "flags", "names"),
    [
        ("linux-x86_64", "fpu sse2 avx avx2 bmi2", ["x86-64-avx2", "x86-64"]),
        ("linux-x86_64", "fpu sse2 avx", ["x86-64"]),
        ("linux-x86_64", "", ["x86-64"]),
        ("linux-aarch64", "", ["aarch64"]),
        ("linux-riscv64", "avx2", []),
        ("macosx-14.0-arm64", "", []),
        ("win-amd64", "avx2", []),
    ],
)
def test_the_choice_follows_platform_and_flags(platform: str, flags: str, names: list[str]) -> None:
    found = kernel_objects.fitting(platform, frozenset(flags.split()))
    assert [variant.name for variant in found] == names


def test_flags_are_those_of_the_first_cpu(tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text(
        "processor\t: 0\nvmx flags\t: vnmi\nflags\t\t: fpu sse2 avx2\n\n"
        "processor\t: 1\nflags\t\t: fpu\n"
    )
    assert kernel_objects.cpu_flags(file) == {"fpu", "sse2", "avx2"}
    file.write_text("processor\t: 0\nFeatures\t: fp asimd\n")
    assert kernel_objects.cpu_flags(file) == frozenset()
    assert kernel_objects.cpu_flags(tmp_path / "none") == frozenset()


LOAD = """
    import json, sys
    from pathlib import Path
    from sluice.formats.kernels import objects as kernel_objects
    found = kernel_objects.load(Path(sys.argv[1]))
    print(json.dumps(found and Path(found.file).name))
"""


@pytest.mark.skipif(len(HERE) < 2, reason="there is nothing to choose from on this platform")
def test_a_cpu_without_the_flags_gets_the_plain_one(
    package: Path, objects: dict[str, Path], tmp_path: Path
) -> None:
    (tmp_path / "cpuinfo").write_text("flags\t\t: fpu sse2\n")
    found = answer(run(LOAD, package, str(tmp_path / "cpuinfo")))
    assert found == objects[HERE[-1].name].name
    alone = package_with(tmp_path / "package", [objects[HERE[0].name]])
    assert answer(run(LOAD, alone, str(tmp_path / "cpuinfo"))) is None


def test_one_of_other_sources_is_not_loaded(objects: dict[str, Path], tmp_path: Path) -> None:
    stale = package_with(tmp_path, list(objects.values()))
    assert answer(run(LOAD, stale, "/proc/cpuinfo")) is not None
    with (stale / "sluice/formats/kernels/row_layout.py").open("a") as source:
        source.write("\n# changed\n")
    assert answer(run(LOAD, stale, "/proc/cpuinfo")) is None
    done = run(USE, stale)
    assert done.stderr.splitlines()[-1] == (
        "sluice.errors.base.MissingExtra: compiling Sluice's loops "
        f"(this installation has none for {sysconfig.get_platform()}) "
        "needs llvmlite, which is not installed: "
        "run `pip install 'fluss-sluice[compile]'`, then `sluice warm`"
    )


def test_one_that_the_system_refuses_is_named(objects: dict[str, Path], tmp_path: Path) -> None:
    broken = package_with(tmp_path, list(objects.values()))
    for path in (broken / "sluice/formats" / FOLDER).iterdir():
        path.write_bytes(b"no machine code")
    last = run(USE, broken).stderr.splitlines()[-1]
    assert "ConfigurationError: Sluice's compiled loops cannot be loaded: " in last
    assert f"/{FOLDER}/kernels-" in last


@pytest.mark.parametrize("variant", HERE, ids=lambda variant: variant.name)
def test_it_exports_the_kernels_and_needs_libc_alone(
    objects: dict[str, Path], variant: Variant
) -> None:
    library = ctypes.CDLL(str(objects[variant.name]))
    text = ctypes.c_char.in_dll(library, kernel_objects.DESCRIPTION)
    described = json.loads(ctypes.string_at(ctypes.addressof(text)))["kernels"]
    from sluice.formats.kernels.build import KERNELS

    assert described == {each.__name__: each.__code__.co_argcount for each in KERNELS}
    command = ["objdump", "-pT", str(objects[variant.name])]
    table = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert re.findall(r"NEEDED +(\S+)", table) == ["libc.so.6"]
    undefined = set(re.findall(r"\*UND\*.* (\w+)$", table, re.MULTILINE))
    assert undefined <= {"memcpy", "memmove", "memset"}
    exported = set(re.findall(r" g +D.* (\w+)$", table, re.MULTILINE))
    expected = {kernel_objects.symbol_of(name) for name in described}
    assert exported == expected | {kernel_objects.DESCRIPTION}


@pytest.mark.slow
@pytest.mark.parametrize("variant", HERE, ids=lambda variant: variant.name)
def test_each_variant_passes_the_tests_of_the_kernels(
    variant: Variant, objects: dict[str, Path], tmp_path: Path
) -> None:
    """The same that hold for what is compiled here, beside rows that plain Python reads."""
    if variant not in FITTING:
        pytest.skip(f"this CPU does not run {variant.name}")
    package = package_with(tmp_path, [objects[variant.name]])
    (package / "rocksdict.py").unlink()  # tests write stores with it
    (package / "tell_kernels.py").write_text(
        "def pytest_terminal_summary():\n"
        "    from sluice.formats.kernels.compiled import LOADED\n"
        "    print('kernels of', LOADED.file)\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider"]
    command += ["-p", "tell_kernels", "-m", "not slow", "-o", f"pythonpath={package} {ROOT}"]
    command += ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT)]
    command += [str(ROOT / "tests" / name) for name in KERNEL_TESTS]
    environment = {**os.environ, "PYTHONPATH": f"{package}{os.pathsep}{ROOT}"}
    done = subprocess.run(
        command, cwd=package, env=environment, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert (
        f"kernels of {package}/sluice/formats/{FOLDER}/{objects[variant.name].name}" in done.stdout
    )
    guarded = [sys.executable, "-m", "tests.support.tables.guarded_rows", "1", "2000"]
    done = subprocess.run(
        guarded, cwd=package, env=environment, capture_output=True, text=True, timeout=240
    )
    assert re.fullmatch(r"read \d+, refused \d+\n", done.stdout), done.stderr
