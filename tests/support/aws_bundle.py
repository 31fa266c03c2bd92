"""Iceberg's S3FileIO for our JVM: a folder with the runtime and the AWS bundle, fetched once."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import time
from pathlib import Path

from sluice.driver.jvm import ICEBERG_VERSION, iceberg_jar, java, pyspark_jars

ROOT = Path(__file__).resolve().parents[2]
BUNDLE = f"iceberg-aws-bundle-{ICEBERG_VERSION}.jar"  # 69 MB
_FETCH_TIMEOUT_S = 300
_PAUSES_S = (5.0, 20.0)
"""Before a fetch is tried again: a network may fail for a moment."""


def jars_with_s3() -> Path:
    """The folder; for ``tiering.jars``."""
    folder = ROOT / ".cache" / "jars-s3"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:  # several test runs may begin at once
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / BUNDLE).is_file():
            _fetch(folder)
        runtime = iceberg_jar(os.environ.get("SLUICE_TIERING_JARS", ""), pyspark_jars())
        if not (folder / runtime.name).is_file():
            new = folder / f"{runtime.name}.new"
            shutil.copy(runtime, new)
            new.replace(folder / runtime.name)  # whole, or not there
    return folder


def _fetch(folder: Path) -> None:
    ivy = next(pyspark_jars().glob("ivy-*.jar"))
    command = [
        java(), "-jar", str(ivy), "-cache", str(folder / "ivy"), "-confs", "default",
        "-dependency", "org.apache.iceberg", "iceberg-aws-bundle", ICEBERG_VERSION,
        "-retrieve", f"{folder}/fetched/[artifact]-[revision].[ext]",
    ]  # fmt: skip
    found = folder / "fetched" / BUNDLE
    for pause_s in (*_PAUSES_S, None):
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_FETCH_TIMEOUT_S, check=False
        )
        if found.is_file():
            break
        assert pause_s is not None, f"{BUNDLE} was not fetched: {done.stdout[-600:]}"
        time.sleep(pause_s)
    found.replace(folder / BUNDLE)
    for name in ("ivy", "fetched"):
        shutil.rmtree(folder / name, ignore_errors=True)
