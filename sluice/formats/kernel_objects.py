"""The kernels as shared objects in the package: compiled and linked when its wheel was built.

There is one for each kind of CPU. A file's name holds a digest of the sources that it was compiled
from. One of other sources, such as an old build in a source tree, is therefore never loaded.
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
"""Symbol of a text: JSON with the count of arguments by kernel, and what compiled them."""
SOURCES = (
    "array_kernels.py",
    "kernel_build.py",
    "memory_access.py",
    "record_kernels.py",
    "row_kernels.py",
    "row_words.py",
    "row_writers.py",
    "sst_kernels.py",
    "sst_words.py",
)
"""All that the machine code depends on, but for the compiler."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A kind of CPU that a shared object is built for."""

    name: str
    platform: str
    """As ``sysconfig.get_platform`` says it."""
    cpu: str
    """LLVM's name for it."""
    features: str = ""
    """What it has besides, in LLVM's words."""
    flags: frozenset[str] = frozenset()
    """What Linux must list for a CPU that runs this."""


VARIANTS = (
    # tried too: BMI2 makes encoders 10 % slower, AVX-512 makes nothing faster
    Variant("x86-64-avx2", "linux-x86_64", "x86-64", "+avx2", frozenset({"avx2"})),
    Variant("x86-64", "linux-x86_64", "x86-64"),
    # built on such a machine only, where nobody has tried it yet
    Variant("aarch64", "linux-aarch64", "generic"),
)
"""Of those that a CPU can run, the first is taken; ``bench/kernel_variants.py`` compares them."""


class Origin(Enum):
    """Where a process has its kernels from."""

    PACKAGE = "package"
    CACHE = "cache"
    COMPILED = "compiled"


@dataclass(frozen=True, slots=True)
class LoadedKernels:
    """Machine code of the kernels in this process."""

    owner: object
    """Keeps the machine code where it is."""
    kernels: dict[str, tuple[int, int]]
    """Address and count of arguments by name."""
    origin: Origin
    file: str | None
    """Where it lies, None if it could not be kept; a name only if the package is a zip file."""
    compiler: str


def load(cpuinfo: Path = Path("/proc/cpuinfo")) -> LoadedKernels | None:
    """The first kind that this CPU can run; None if the package has none for it.

    :param cpuinfo: where Linux describes the CPU.
    :raises ConfigurationError: there is one, but the system refuses to load it.
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
        # in a zip file, the system gets a copy that may go once it is loaded
        with resources.as_file(found) as path:
            library = ctypes.CDLL(str(path))
    except OSError as error:
        raise ConfigurationError(
            f"Sluice's compiled loops cannot be loaded: {error}. "
            "TMPDIR must name a folder from which code may run if the package is a zip file"
        ) from error
    return described(library, str(found) if isinstance(found, Path) else found.name)


def described(library: ctypes.CDLL, file: str) -> LoadedKernels:
    """The kernels of a shared object, as it describes them itself."""
    text = ctypes.c_char.in_dll(library, DESCRIPTION)
    description = json.loads(ctypes.string_at(ctypes.addressof(text)))
    kernels = {
        name: (ctypes.cast(library[symbol_of(name)], ctypes.c_void_p).value or 0, count)
        for name, count in description["kernels"].items()
    }
    return LoadedKernels(library, kernels, Origin.PACKAGE, file, description["compiler"])


def purpose() -> str:
    """What a compiler is needed for, where ``load`` finds nothing."""
    platform = sysconfig.get_platform()
    return f"compiling Sluice's loops (this installation has none that fit {platform})"


def fitting(platform: str, flags: frozenset[str]) -> list[Variant]:
    """What a CPU with these flags can run, the preferred first."""
    return [each for each in VARIANTS if each.platform == platform and each.flags <= flags]


def cpu_flags(cpuinfo: Path) -> frozenset[str]:
    """What Linux lists for the first CPU; none where it lists nothing or cannot be read."""
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
    """Of the sources that lie in this package."""
    package = resources.files("sluice.formats")
    digest = hashlib.sha256()
    for name in SOURCES:
        content = package.joinpath(name).read_bytes()
        digest.update(len(content).to_bytes(8, "little") + content)
    return digest.hexdigest()


def file_name(variant: Variant, digest: str) -> str:
    """Of the shared object for a kind of CPU, from the sources of that digest."""
    return f"kernels-{variant.name}-{digest[:24]}.so"


def symbol_of(kernel: str) -> str:
    """A kernel's symbol in a shared object."""
    return f"sluice_{kernel}"
