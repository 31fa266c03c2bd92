"""Puts the compiled loops into a wheel; all else about the package stands in pyproject.toml."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from pathlib import Path

import build_kernels  # of scripts/, which pyproject.toml puts on the path
import setuptools
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

# the same sources, the same bytes: otherwise a wheel holds the times of its files
os.environ.setdefault("SOURCE_DATE_EPOCH", "1704067200")
OLDEST_GLIBC = (2, 17)
"""What installers and Python itself know at least; the loops ask for less."""


class Distribution(setuptools.Distribution):
    """One with machine code, if this is a wheel for a platform that has compiled loops."""

    def has_ext_modules(self) -> bool:
        return "bdist_wheel" in self.commands and bool(build_kernels.variants())


class BuildPy(build_py):
    """Modules and compiled loops into folders that hold nothing of an earlier build."""

    def run(self) -> None:
        if not self.editable_mode:
            for package in {name.partition(".")[0] for name in self.packages}:
                shutil.rmtree(Path(self.build_lib, package), ignore_errors=True)
        super().run()
        if self.distribution.has_ext_modules():
            variants = build_kernels.variants()
            self.announce(f"compiling the loops for {', '.join(v.name for v in variants)}", 2)
            build_kernels.build(Path(self.build_lib, build_kernels.PLACE), variants)


class BdistWheel(bdist_wheel):
    """Any Python, but only the platform that the compiled loops need."""

    def get_tag(self) -> tuple[str, str, str]:
        if not self.distribution.has_ext_modules():
            return super().get_tag()
        built = Path(self.get_finalized_command("build_py").build_lib, build_kernels.PLACE)
        need = build_kernels.glibc_need(list(built.iterdir()))
        platform = sysconfig.get_platform()  # of this machine alone, where there is no glibc
        if need is not None:
            major, minor = max(need, OLDEST_GLIBC)
            platform = platform.replace("linux-", f"manylinux_{major}_{minor}_")
        return "py3", "none", platform.replace("-", "_")


try:
    setuptools.setup(
        distclass=Distribution, cmdclass={"build_py": BuildPy, "bdist_wheel": BdistWheel}
    )
except build_kernels.CannotBuild as error:
    sys.exit(f"setup.py: {error}")
