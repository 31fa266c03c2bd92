"""The files for spark-submit: the driver's script, and a zip of Sluice's packages for executors."""

from __future__ import annotations

import importlib.util
import uuid
import zipfile
from pathlib import Path

from sluice.errors import ConfigurationError

SCRIPT_PACKAGE = "sluice_spark"
SCRIPT = "tier_tables.py"
MAINTENANCE = "maintain_tables.py"
REHEARSAL = "rehearse_start.py"
_PACKAGES = ("sluice", "sluice_spark", "pyspark_sluice")
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time that a zip can hold
_NOT_SHIPPED = ("__pycache__",)


def driver_script() -> Path:
    """The script that spark-submit runs, in the installed package.

    :raises ConfigurationError: the script is missing.
    """
    return _script(SCRIPT)


def maintenance_script() -> Path:
    """The script that spark-submit runs to maintain tables, in the installed package.

    :raises ConfigurationError: the script is missing.
    """
    return _script(MAINTENANCE)


def rehearsal_script() -> Path:
    """The script of `sluice warm` that starts like the driver and tiers two rows of its own.

    :raises ConfigurationError: the script is missing.
    """
    return _script(REHEARSAL)


def _script(name: str) -> Path:
    script = _folder(SCRIPT_PACKAGE) / name
    if not script.is_file():
        raise ConfigurationError(
            f"{script} is missing, so the installation is damaged: install fluss-sluice again"
        )
    return script


def make_zip(target: Path) -> None:
    """Zips the installed packages for ``spark-submit --py-files``, reproducibly.

    The zip appears under its name once it is complete.

    :raises ConfigurationError: a package is missing. :raises OSError: the zip cannot be written.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f"{target.name}.{uuid.uuid4().hex}.tmp")  # of this call alone
    try:
        _write_zip(temporary)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def _write_zip(target: Path) -> None:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in _PACKAGES:
            root = _folder(package)
            for path in sorted(root.rglob("*")):
                inside = path.relative_to(root.parent)
                if path.is_dir() or path.suffix in (".pyc", ".tmp"):
                    continue
                if any(part in _NOT_SHIPPED for part in inside.parts):
                    continue
                entry = zipfile.ZipInfo(inside.as_posix(), _EPOCH)
                entry.compress_type = zipfile.ZIP_DEFLATED
                entry.external_attr = 0o644 << 16
                archive.writestr(entry, path.read_bytes())


def has_compiled_loops(archive: Path) -> bool:
    """Whether a zip has the compiled loops, which wheels have and source trees do not."""
    with zipfile.ZipFile(archive) as opened:
        return any(name.endswith(".so") for name in opened.namelist())


def _folder(package: str) -> Path:
    """The folder of an installed package, found without importing it."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise ConfigurationError(
            f"the Python package {package} is missing: install fluss-sluice again"
        )
    return Path(spec.origin).parent
