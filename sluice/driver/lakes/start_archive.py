"""Makes the class-data archive with which Spark's driver starts in half the time.

It runs a rehearsal of a round by spark-submit, once for a Java and a set of jars. Java writes the
archive when the rehearsal ends.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from sluice.artifacts.class_archive import (
    archive_folder,
    archive_key,
    as_class_path,
    find_archive,
    java_program,
    keep_archive,
    options_to_write,
)
from sluice.artifacts.iceberg import spark_jars
from sluice.artifacts.java import java, java_version
from sluice.artifacts.spark_files import rehearsal_script
from sluice.artifacts.spark_start import CLASS_PATH, OPTIONS, UI
from sluice.artifacts.spark_submit import NAME, spark_submit
from sluice.driver.lakes.jvm import iceberg_jar
from sluice.errors import ConfigurationError
from sluice.masking import TEXT_CHARS_MAX, mask

TIMEOUT_S = 300
_SAID_MAX = 600


def make_start_archive(jars: str = "") -> tuple[Path, bool]:
    """Makes the archive of this Java, this Spark and these jars, unless it is there.

    :param jars: jar files, separated by commas, as in Airflow's section [sluice]; empty: the
        runtime of Iceberg that ``packages = auto`` means, which is fetched if it is missing.
    :returns: the archive, and whether it was made now.
    :raises ConfigurationError: Java, Spark or a jar is missing, or no archive can be written.
    """
    submit = spark_submit()
    if submit is None:
        raise ConfigurationError(f"{NAME} is not on the PATH")
    java_version()
    spark = spark_jars(submit)
    program, folder = java_program(java()), archive_folder()
    class_path = as_class_path((jars or str(iceberg_jar("", submit).absolute())).split(","))
    if not class_path:
        raise ConfigurationError(
            f"jars {jars}: no such file on this machine; give absolute paths, separated by commas"
        )
    if spark is None or program is None:
        raise ConfigurationError(f"{submit} does not show which Spark it starts: set SPARK_HOME")
    if folder is None:
        raise ConfigurationError("this user has no home directory: set XDG_CACHE_HOME")
    try:
        key = archive_key(program, spark, class_path)
        if found := find_archive(folder, key):
            return found, False
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as work:
            made = Path(work) / "made.jsa"
            said = _rehearse(submit, class_path, Path(work), made)
            if not made.is_file():
                raise ConfigurationError(f"Java wrote no archive of classes: {said}")
            return keep_archive(made, folder, key), True
    except OSError as error:
        raise ConfigurationError(f"an archive of classes in {folder}: {error}") from error


def _rehearse(submit: Path, class_path: tuple[Path, ...], work: Path, made: Path) -> str:
    """Runs the rehearsal; returns the end of its output."""
    properties = {
        OPTIONS: options_to_write(made),
        CLASS_PATH: os.pathsep.join(map(str, class_path)),
        UI: "false",
        "spark.sluice.datalake.iceberg.type": "hadoop",
        "spark.sluice.datalake.iceberg.warehouse": str(work / "lake"),
    }
    words = [f"--conf={name}={value}" for name, value in properties.items()]
    environment = {
        "SPARK_LOCAL_IP": "127.0.0.1",  # the name of a machine without network has no address
        "PYSPARK_PYTHON": sys.executable,
        **os.environ,
    }
    log = work / "log"
    with log.open("wb") as output:  # a file: a process that hangs would keep a pipe open
        try:
            subprocess.run(
                [str(submit), "--master", "local[1]", *words, str(rehearsal_script())],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
                cwd=work,
                timeout=TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"it did not end within {TIMEOUT_S} s"
    said = mask(log.read_text(errors="replace")[-TEXT_CHARS_MAX:])
    return " | ".join(said.splitlines()[-5:])[-_SAID_MAX:]
