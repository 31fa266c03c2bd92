"""Marks of tests that cannot run on every Python that Sluice runs on."""

from __future__ import annotations

import sys

import pytest

needs_pyfluss = pytest.mark.skipif(
    sys.version_info >= (3, 13), reason="pyfluss 1.0.0 has no wheel for Python 3.13"
)
