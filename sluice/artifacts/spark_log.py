"""Decides whether a driver of Sluice sets Spark's log level, and what Spark hides."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sluice.artifacts.spark_start import (
    Application,
    driver_is_here,
    names_elsewhere,
    spark_conf_folder,
)

LOG_LEVEL = "spark.log.level"
WARN = "WARN"
REDACTION = "spark.redaction.regex"
REDACTED = (
    r"(?i)secret|password|passwd|passphrase|token|credential|access[.-]?key|account[.-]?key"
    r"|[.]header[.]|SLUICE_SETTINGS$"
)
"""Properties whose values Spark's UI and its log do not show: Spark's own, and those of a lake."""
_ENDINGS = (".properties", ".xml", ".yaml", ".yml", ".json", ".jsn")
"""Of the files that log4j reads, and not of Spark's templates of them."""
_VARIABLES = ("SPARK_SUBMIT_OPTS", "JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS")


def log_conf(
    application: Application, submit: Path | None, environment: Mapping[str, str]
) -> dict[str, str]:
    """The property that makes Spark log warnings only, unless its user has configured its log.

    Spark's hundreds of lines would hide the few that tell what became of a table. A driver on the
    cluster logs there, and is left alone.

    :param submit: the program spark-submit, if it is here.
    :param environment: environment variables of spark-submit.
    """
    if LOG_LEVEL in application.conf or not driver_is_here(application, submit, environment):
        return {}
    values = [*map(str, application.conf.values()), *(environment.get(v, "") for v in _VARIABLES)]
    if any("log4j" in value for value in values):
        return {}
    folder = spark_conf_folder(submit, environment)
    files = [application.properties_file] if application.properties_file else []
    if folder is not None:
        if any(found.suffix in _ENDINGS for found in folder.glob("log4j*")):
            return {}
        files += [str(folder / name) for name in ("spark-defaults.conf", "java-opts")]
    if any(_configures_log(file) for file in files):
        return {}
    return {LOG_LEVEL: WARN}


def redaction_conf(
    application: Application, submit: Path | None, environment: Mapping[str, str]
) -> dict[str, str]:
    """The property that hides secrets of a lake in Spark's UI, unless its user has set it."""
    others = names_elsewhere(application, submit, environment)
    return {} if REDACTION in {*application.conf, *others} else {REDACTION: REDACTED}


def _configures_log(file: str) -> bool:
    try:
        text = Path(file).expanduser().read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("#"))
    return any(LOG_LEVEL in line or "log4j" in line for line in lines)
