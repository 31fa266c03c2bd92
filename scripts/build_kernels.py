"""Compiles the kernels with numba and links them into the shared objects that a wheel holds.

`python scripts/build_kernels.py FOLDER` writes one for each kind of CPU of this platform. Each is
compiled in its own process, because numba reads the kind of CPU from the environment.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from sluice.formats.kernels.objects import (  # noqa: E402  # of this tree, installed or not
    DESCRIPTION,
    FOLDER,
    VARIANTS,
    Variant,
    file_name,
    source_digest,
    symbol_of,
)

SWITCH = "SLUICE_BUILD_KERNELS"
COMPILERS = ("numba==0.68.1", "llvmlite==0.50.0")
"""Requirements of a wheel build: exact versions, so that equal sources give equal bytes."""
WITHOUT = f"Or set {SWITCH}=0: the package then compiles on first use, with fluss-sluice[compile]."
PLACE = Path("sluice", "formats", FOLDER)
"""Folder of the shared objects in a package."""
_TIMEOUT_S = 600
_LINK = (
    "-shared",
    "-nostdlib",
    # stripped, only libc's symbols undefined, no build id
    "-Wl,-s,-z,defs,-z,relro,-z,now,-z,noexecstack,--build-id=none",
)


class CannotBuild(Exception):
    """The shared objects cannot be built here. The message names what is missing."""


def variants() -> tuple[Variant, ...]:
    """Returns the variants for this platform: none for another platform or SLUICE_BUILD_KERNELS=0.

    :raises CannotBuild: SLUICE_BUILD_KERNELS is 1, and this platform has no variants.
    """
    chosen = os.environ.get(SWITCH, "")
    if chosen not in ("", "0", "1"):
        raise CannotBuild(
            f"{SWITCH}={chosen}: use 0 (never build) or 1 (build or fail), or do not set it"
        )
    platform = sysconfig.get_platform()
    found = tuple(variant for variant in VARIANTS if variant.platform == platform)
    if chosen == "1" and not found:
        known = ", ".join(sorted({variant.platform for variant in VARIANTS}))
        raise CannotBuild(f"{SWITCH}=1, but compiled loops exist only for {known}")
    return () if chosen == "0" else found


def build(folder: Path, chosen: tuple[Variant, ...]) -> list[Path]:
    """Writes the shared object of each variant into the folder, in parallel and by rename.

    :raises CannotBuild: a compiler is missing or fails, or there is no variant.
    """
    if not chosen:
        raise CannotBuild(
            f"nothing to build: no loops exist for {sysconfig.get_platform()}, or {SWITCH}=0"
        )
    linker = _linker()
    _check_compilers()
    folder.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(len(chosen)) as pool:
        return list(pool.map(lambda variant: _build(folder, variant, linker), chosen))


def glibc_need(files: list[Path]) -> tuple[int, int] | None:
    """Returns the newest glibc version that the objects need, or None without glibc."""
    found = [
        (int(major), int(minor))
        for file in files
        for major, minor in re.findall(rb"\0GLIBC_(\d+)\.(\d+)", file.read_bytes())
    ]
    return max(found, default=None)


def _linker() -> list[str]:
    command = shlex.split(os.environ.get("CC") or "cc")
    if not command or shutil.which(command[0]) is None:
        raise CannotBuild(
            f"the C compiler {' '.join(command)!r}, which links the loops, was not found. "
            f"Install one with `apt-get install gcc`, or name it in CC. {WITHOUT}"
        )
    return command


def _check_compilers() -> None:
    missing = []
    for need in COMPILERS:
        try:
            metadata.version(need.partition("==")[0])
        except metadata.PackageNotFoundError:
            missing.append(need)
    if missing:
        raise CannotBuild(
            f"compiling the loops needs {' and '.join(missing)}: "
            f"run `pip install {' '.join(missing)}`. {WITHOUT}"
        )


def _build(folder: Path, variant: Variant, linker: list[str]) -> Path:
    target = folder / file_name(variant, source_digest())
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        code, linked = Path(scratch, "kernels.o"), Path(scratch, "kernels.so")
        environment = {name: os.environ[name] for name in os.environ if name[:6] != "NUMBA_"}
        # without the second, numba adds all features of this machine
        environment |= {"NUMBA_CPU_NAME": variant.cpu, "NUMBA_CPU_FEATURES": variant.features}
        _run([sys.executable, __file__, "--object", str(code)], environment)
        _run([*linker, *_LINK, "-o", str(linked), str(code), "-lc"], dict(os.environ))
        linked.chmod(0o755)
        linked.replace(target)
    return target


def _run(command: list[str], environment: dict[str, str]) -> None:
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
    )
    if done.returncode:
        lines = (done.stderr or done.stdout).strip()[-4000:]
        raise CannotBuild(
            f"`{shlex.join(command)}` failed with exit code {done.returncode}: {lines}. {WITHOUT}"
        )


def emit_object(target: Path) -> None:
    """Writes a position-independent object file for the CPU of ``NUMBA_CPU_NAME``."""
    from llvmlite import binding

    from sluice.formats.kernels import cache as kernel_cache
    from sluice.formats.kernels.build import compile_kernels

    module, symbols, _ = compile_kernels()
    for name, (symbol, _) in symbols.items():
        module.get_function(symbol).name = symbol_of(name)
    for value in (*module.functions, *module.global_variables):
        if not value.is_declaration and not value.name.startswith(symbol_of("")):
            value.linkage = "internal"
    counts = {name: count for name, (_, count) in symbols.items()}
    text = json.dumps({"compiler": kernel_cache.compiler(), "kernels": counts}).encode() + b"\0"
    escaped = "".join(f"\\{byte:02x}" for byte in text)
    constant = f'@{DESCRIPTION} = constant [{len(text)} x i8] c"{escaped}"\n'
    module.link_in(binding.parse_assembly(constant))
    machine = binding.Target.from_triple(module.triple).create_target_machine(
        cpu=os.environ["NUMBA_CPU_NAME"],
        features=os.environ["NUMBA_CPU_FEATURES"],
        opt=3,
        reloc="pic",
        codemodel="default",
    )
    target.write_bytes(machine.emit_object(module))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="output folder")
    parser.add_argument("--object", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.object:
        emit_object(arguments.folder)
        return
    try:
        for path in build(arguments.folder, variants()):
            print(path)
    except CannotBuild as error:
        sys.exit(f"build_kernels: {error}")


if __name__ == "__main__":
    main()
