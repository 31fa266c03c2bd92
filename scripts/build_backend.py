"""Extends setuptools' build backend: it requires numba only for a wheel with compiled loops.

An editable install, an sdist, and a wheel for another platform need no compiler.
"""

from __future__ import annotations

import sys
from typing import Any

import build_kernels
from setuptools import build_meta
from setuptools.build_meta import (
    build_editable,
    build_sdist,
    build_wheel,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]


def get_requires_for_build_wheel(config_settings: dict[str, Any] | None = None) -> list[str]:
    """Returns setuptools' requirements and numba. Exits with one line if the setting is wrong."""
    try:
        compilers = build_kernels.COMPILERS if build_kernels.variants() else ()
    except build_kernels.CannotBuild as error:
        sys.exit(f"build_backend: {error}")
    return [*build_meta.get_requires_for_build_wheel(config_settings), *compilers]
