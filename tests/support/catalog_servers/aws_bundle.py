"""Iceberg's FileIOs for our JVM: folders with the runtime and a store's bundle, fetched once."""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path

from sluice.artifacts.iceberg import RUNTIMES
from sluice.artifacts.jars import Jar, fetch
from sluice.driver.lakes.jvm import iceberg_jar

ROOT = Path(__file__).resolve().parents[3]
_ICEBERG = RUNTIMES["4.1"]
BUNDLE = Jar(
    _ICEBERG.group,
    "iceberg-aws-bundle",
    _ICEBERG.version,
    "dd7e49ffa4ac9b215bed846581991259e3aec9bb2fa08d6cec029c46cd66d957",
    69,
)


def jars_with_s3() -> Path:
    """The folder; for ``tiering.jars``."""
    return jars_with_bundles("jars-s3", BUNDLE)


def jars_with_bundles(name: str, *bundles: Jar) -> Path:
    """A folder of the cache with these and the runtime; for ``tiering.jars``."""
    folder = ROOT / ".cache" / name
    for bundle in bundles:
        fetch(bundle, folder)
    runtime = iceberg_jar(os.environ.get("SLUICE_TIERING_JARS", ""))
    with (folder / ".lock").open("w") as lock:  # several test runs may begin at once
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / runtime.name).is_file():
            new = folder / f"{runtime.name}.new"
            shutil.copy(runtime, new)
            new.replace(folder / runtime.name)  # whole, or not there
    return folder
