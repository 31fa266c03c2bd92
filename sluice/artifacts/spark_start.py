"""Decides with which Spark properties a driver of Sluice starts.

A Spark application of 1,000 rows is nearly all start. Java's simple compiler, its serial collector
and an archive of classes halve it. Whatever a user configured himself is left alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sluice.artifacts.class_archive import (
    archive_folder,
    archive_key,
    as_class_path,
    find_archive,
    java_program,
    options_to_read,
)
from sluice.artifacts.iceberg import spark_jars
from sluice.artifacts.java import java
from sluice.errors import ConfigurationError

OPTIONS = "spark.driver.extraJavaOptions"
CLASS_PATH = "spark.driver.extraClassPath"
UI = "spark.ui.enabled"
_DEPLOY_MODE = "spark.submit.deployMode"
_OWN_OPTIONS = frozenset({OPTIONS, "spark.driver.defaultJavaOptions"})
_VARIABLES = ("SPARK_SUBMIT_OPTS", "JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS")
"""Variables with options of Java. A second collector among them would keep Java from starting."""
_REMOTE = ("SPARK_REMOTE", "SPARK_CONNECT_MODE")
_IN_SCRIPT = re.compile("|".join((*_VARIABLES, *_REMOTE, "JAVA_HOME", "SPARK_CONF_DIR")))


@dataclass(frozen=True, slots=True)
class Application:
    """A call of spark-submit, as far as it decides how its driver starts."""

    conf: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Its Spark properties."""
    deploy_mode: str = ""
    """Its ``--deploy-mode``. Empty: its properties decide, then Spark's own files."""
    is_small: bool = False
    """Whether it ends so soon that nobody opens Spark's UI."""
    class_path: str = ""
    """Its ``--driver-class-path``."""
    properties_file: str = ""
    """Its ``--properties-file``."""


def start_conf(
    application: Application,
    elsewhere: Collection[str],
    environment: Mapping[str, str],
    jars: tuple[Path, ...] = (),
    archive: Path | None = None,
) -> dict[str, str]:
    """The properties to add to an application, none of which its user has set.

    :param elsewhere: names of the properties that Spark's own files set.
    :param environment: environment variables of spark-submit.
    :param jars: jars of the application, to load from the class path; the archive has their
        classes. Empty: the application gets them in another way.
    :param archive: class-data archive of the driver; it needs the jars on the class path.
    """
    given = {*application.conf, *elsewhere}
    is_remote = "spark.remote" in given or any(environment.get(name) for name in _REMOTE)
    if is_remote or not _is_client(application, elsewhere):
        return {}
    found = {}
    if application.is_small and not any(name.startswith("spark.ui.") for name in given):
        found[UI] = "false"
    if given & _OWN_OPTIONS or any(environment.get(name) for name in _VARIABLES):
        return found
    has_class_path = bool(jars) and CLASS_PATH not in given and not application.class_path
    found[OPTIONS] = options_to_read(archive if has_class_path else None)
    if has_class_path:
        found[CLASS_PATH] = os.pathsep.join(map(str, jars))
    return found


def driver_is_here(
    application: Application, submit: Path | None, environment: Mapping[str, str]
) -> bool:
    """Whether the driver runs on this machine: in deploy mode ``client``."""
    return _is_client(application, names_elsewhere(application, submit, environment))


def names_elsewhere(
    application: Application, submit: Path | None, environment: Mapping[str, str]
) -> frozenset[str]:
    """Names of the properties that this machine's own files add to an application."""
    return _elsewhere(application, _jars_folder(submit), environment)


def _is_client(application: Application, elsewhere: Collection[str]) -> bool:
    if mode := application.deploy_mode or application.conf.get(_DEPLOY_MODE):
        return str(mode) == "client"
    return _DEPLOY_MODE not in elsewhere


def configured_elsewhere(
    environment: Mapping[str, str], spark_home: Path | None, properties_file: str = ""
) -> frozenset[str]:
    """Names of the properties in the files that spark-submit reads by itself.

    A file ``java-opts``, and a ``spark-env.sh`` that sets Java or its options, count as if they set
    those properties.
    """
    conf = _conf_folder(environment, spark_home)
    files = [properties_file] if properties_file else []
    if conf is None:
        return frozenset(_names(files))
    found = _names([*files, str(conf / "spark-defaults.conf")])
    if _text(conf / "java-opts") or _IN_SCRIPT.search(_text(conf / "spark-env.sh")):
        found |= _OWN_OPTIONS
    return frozenset(found)


def spark_conf_folder(submit: Path | None, environment: Mapping[str, str]) -> Path | None:
    """The folder of Spark's own configuration files; None: this machine has no Spark.

    :param submit: the program spark-submit, if it is here.
    """
    jars = _jars_folder(submit)
    return _conf_folder(environment, jars.parent if jars else None)


def _conf_folder(environment: Mapping[str, str], spark_home: Path | None) -> Path | None:
    if named := environment.get("SPARK_CONF_DIR"):
        return Path(named)
    return spark_home / "conf" if spark_home else None


def start_here(
    application: Application, jars: str, submit: Path | None, environment: Mapping[str, str]
) -> dict[str, str]:
    """:func:`start_conf` with what this machine has: its Spark, its Java and its archive.

    :param jars: jar files of the application, separated by commas.
    :param submit: the program spark-submit, if it is here.
    """
    spark = _jars_folder(submit)
    elsewhere = _elsewhere(application, spark, environment)
    here = as_class_path(jars.split(","))
    archive = _archive_here(spark, here) if spark and here else None
    return start_conf(application, elsewhere, environment, here if archive else (), archive)


def _jars_folder(submit: Path | None) -> Path | None:
    try:
        return spark_jars(submit)
    except ConfigurationError:
        return None


def _elsewhere(
    application: Application, spark: Path | None, environment: Mapping[str, str]
) -> frozenset[str]:
    home = spark.parent if spark else None
    return configured_elsewhere(environment, home, application.properties_file)


def _archive_here(spark: Path, jars: tuple[Path, ...]) -> Path | None:
    program, folder = java_program(java()), archive_folder()
    if program is None or folder is None:
        return None
    try:
        return find_archive(folder, archive_key(program, spark, jars))
    except OSError:
        return None


def _names(files: Collection[str]) -> set[str]:
    """The names in property files: NAME VALUE, NAME=VALUE or NAME: VALUE."""
    lines = [line.strip() for file in files for line in _text(Path(file)).splitlines()]
    return {re.split(r"[\s=:]", line, maxsplit=1)[0] for line in lines if line[:1] not in ("", "#")}


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
