"""The engines other than Spark that read the lake here: their versions, and kept environments.

The lock file does not have them: nothing of Sluice needs them.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.support.programs.built_wheel import (
    ROOT,
    Environment,
    locked_versions,
    new_environment,
    run,
)

PYTHON = ("pyiceberg[pyarrow]==0.12.0", "polars==2.1.0", "polars-iceberg==0.1.0")
DUCKDB = (
    "duckdb==1.5.5",
    "duckdb-extensions==1.5.5",  # packages of the files that INSTALL downloads
    "duckdb-extension-avro==1.5.5",
    "duckdb-extension-iceberg==1.5.5",
)
CATALOGS = (
    "pyiceberg[pyarrow,glue,hive,sql-sqlite]==0.12.0",
    "psycopg2-binary",
    *DUCKDB,
    "duckdb-extension-httpfs==1.5.5",
)
INSTALL_EXTENSIONS = (
    "from duckdb_extensions import import_extension as get; get('avro'); get('iceberg')"
)
"""Puts DuckDB's extensions, which come from packages, into the user's home."""
_INSTALL_HTTPFS = f"{INSTALL_EXTENSIONS}; get('httpfs')"
_FOLDER = ROOT / ".cache" / "engines"
_EXTENSIONS_TIMEOUT_S = 120
_READY = "ready"


@dataclass(frozen=True)
class KeptEnvironment(Environment):
    """An environment with a home of its own, where DuckDB looks for its extensions."""

    @property
    def variables(self) -> dict[str, str]:
        return {**super().variables, "HOME": str(self.home / "user")}


def python_engines() -> KeptEnvironment:
    """PyIceberg and polars, installed once in .cache."""
    return _kept("python", PYTHON)


def duckdb() -> KeptEnvironment:
    """DuckDB with its extensions, installed once in .cache."""
    return _kept("duckdb", (*DUCKDB, "pyarrow"), INSTALL_EXTENSIONS)


def catalog_engines() -> KeptEnvironment:
    """PyIceberg and DuckDB with what they need to open catalogs, installed once in .cache."""
    return _kept("catalogs", CATALOGS, _INSTALL_HTTPFS)


def pyarrow_pin(folder: Path) -> Path:
    """A file of constraints with the lock file's pyarrow alone: the engines choose the rest."""
    target = folder / "constraints.txt"
    target.write_text(_pyarrow() + "\n")
    return target


def _pyarrow() -> str:
    [pin] = [p for p in locked_versions().read_text().splitlines() if p.startswith("pyarrow==")]
    return pin


def _kept(name: str, packages: tuple[str, ...], code: str = "") -> KeptEnvironment:
    """Installs an environment once for these packages and this Python.

    :param code: Python that completes it.
    """
    wanted = "\n".join((sys.version, sys.executable, _pyarrow(), *packages, code))
    digest = hashlib.sha256(wanted.encode()).hexdigest()[:12]
    found = KeptEnvironment(_FOLDER / f"{name}-{digest}")
    _FOLDER.mkdir(parents=True, exist_ok=True)
    with (_FOLDER / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (found.home / _READY).exists():
            return found
        shutil.rmtree(found.home, ignore_errors=True)  # an installation was stopped
        new_environment(found.home)
        (found.home / "user").mkdir()
        found.install(*packages, options=["--constraints", str(pyarrow_pin(found.home))])
        if code:
            run([found.python, "-c", code], _EXTENSIONS_TIMEOUT_S, found.variables)
        (found.home / _READY).touch()
    return found
