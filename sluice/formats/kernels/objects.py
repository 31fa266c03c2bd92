"""Loads the kernels from shared objects in the package, which are compiled with its wheel.

The package has one for each kind of CPU. A file's name contains a digest of its sources, so an
object of other sources, such as an old build in a source tree, is never loaded.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import sysconfig
from dataclasses import dataclass
from enum import Enum
from importlib import resources
from pathlib import Path

from sluice.errors import ConfigurationError

FOLDER = "_kernels"
DESCRIPTION = "sluice_kernels"
"""Symbol of a JSON text: the argument count of each kernel, and the compiler."""
SOURCES = (
    "array_kernels.py",
    "build.py",
    "memory_access.py",
    "record_kernels.py",
    "row_kernels.py",
    "row_layout.py",
    "row_writers.py",
    "sst_kernels.py",
    "sst_layout.py",
    "xxh3_kernels.py",
)
"""The sources that determine the machine code, apart from the compiler."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A kind of CPU that a shared object is built for."""

    name: str
    platform: str
    """The platform as ``sysconfig.get_platform`` names it."""
    cpu: str
    """LLVM's name of the CPU."""
    features: str = ""
    """Additional CPU features, by LLVM's names."""
    flags: frozenset[str] = frozenset()
    """The CPU flags that Linux must list to run this object."""


VARIANTS = (
    # tried too: BMI2 makes encoders 10 % slower, AVX-512 makes nothing faster
    Variant("x86-64-avx2", "linux-x86_64", "x86-64", "+avx2", frozenset({"avx2"})),
    Variant("x86-64", "linux-x86_64", "x86-64"),
    # built on such a machine only; not tried yet
    Variant("aarch64", "linux-aarch64", "generic"),
)
"""The first variant that a CPU can run is used; ``bench/kernels/kernel_variants.py``
compares them."""


class Origin(Enum):
    """The place from which a process loaded its kernels."""

    PACKAGE = "package"
    CACHE = "cache"
    COMPILED = "compiled"


@dataclass(frozen=True, slots=True)
class LoadedKernels:
    """The machine code of the kernels in this process."""

    owner: object
    """Keeps the machine code in memory."""
    kernels: dict[str, tuple[int, int]]
    """Address and count of arguments by name."""
    origin: Origin
    file: str | None
    """The file; None if it could not be stored; only a name if the package is a zip file."""
    compiler: str


def load(cpuinfo: Path = Path("/proc/cpuinfo")) -> LoadedKernels | None:
    """Loads the first variant that this CPU can run; None if the package has none.

    :param cpuinfo: the file in which Linux describes the CPU.
    :raises ConfigurationError: the system refuses to load the shared object.
    """
    folder = resources.files("sluice.formats").joinpath(FOLDER)
    if not folder.is_dir():
        return None
    digest = source_digest()
    names = [
        file_name(variant, digest)
        for variant in fitting(sysconfig.get_platform(), cpu_flags(cpuinfo))
    ]
    found = next((file for name in names if (file := folder.joinpath(name)).is_file()), None)
    if found is None:
        return None
    try:
        # from a zip file, a copy is loaded, which may be deleted afterwards
        with resources.as_file(found) as path:
            library = ctypes.CDLL(str(path))
    except OSError as error:
        raise ConfigurationError(
            f"Sluice's compiled loops cannot be loaded: {error}. If the package is a zip file,"
            " set TMPDIR to a folder from which code may run"
        ) from error
    return described(library, str(found) if isinstance(found, Path) else found.name)


def described(library: ctypes.CDLL, file: str) -> LoadedKernels:
    """Returns the kernels of a shared object, by its own description."""
    text = ctypes.c_char.in_dll(library, DESCRIPTION)
    description = json.loads(ctypes.string_at(ctypes.addressof(text)))
    kernels = {
        name: (ctypes.cast(library[symbol_of(name)], ctypes.c_void_p).value or 0, count)
        for name, count in description["kernels"].items()
    }
    return LoadedKernels(library, kernels, Origin.PACKAGE, file, description["compiler"])


def purpose() -> str:
    """Returns the reason for needing a compiler, for error messages."""
    platform = sysconfig.get_platform()
    return f"compiling Sluice's loops (this installation has none for {platform})"


def fitting(platform: str, flags: frozenset[str]) -> list[Variant]:
    """Returns the variants that a CPU with these flags can run, the preferred first."""
    return [each for each in VARIANTS if each.platform == platform and each.flags <= flags]


def cpu_flags(cpuinfo: Path) -> frozenset[str]:
    """Returns the flags that Linux lists for the first CPU; empty if they cannot be read."""
    try:
        with cpuinfo.open() as lines:
            # the kernel makes the text as it is read: a look at each of many CPUs takes long
            for line in lines:
                name, _, value = line.partition(":")
                if name.strip() == "flags":
                    return frozenset(value.split())
    except OSError:
        pass
    return frozenset()


def source_digest() -> str:
    """Returns the digest of the kernel sources in this package."""
    package = resources.files("sluice.formats.kernels")
    digest = hashlib.sha256()
    for name in SOURCES:
        content = package.joinpath(name).read_bytes()
        digest.update(len(content).to_bytes(8, "little") + content)
    return digest.hexdigest()


def file_name(variant: Variant, digest: str) -> str:
    """Returns the file name of the shared object for a variant and source digest."""
    return f"kernels-{variant.name}-{digest[:24]}.so"


def symbol_of(kernel: str) -> str:
    """Returns the symbol of a kernel in a shared object."""
    return f"sluice_{kernel}"
