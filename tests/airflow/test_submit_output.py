"""The output of spark-submit: levels of its lines, and the one that explains its end."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from sluice_airflow.submit_output import LeveledLog, TellingLine, leveled

IVY = """\
WARNING: Using incubator modules: jdk.incubator.vector
Using Spark's default log4j profile: org/apache/spark/log4j2-defaults.properties
26/11/25 20:28:52 WARN Utils: Your hostname, vm, resolves to a loopback address: 127.0.0.1
:: loading settings :: url = jar:file:/opt/ivy-2.5.3.jar!/org/apache/ivy/ivysettings.xml
Ivy Default Cache set to: /root/.ivy2.5.2/cache
The jars for the packages stored in: /root/.ivy2.5.2/jars
org.example#nothing added as a dependency
:: resolving dependencies :: org.apache.spark#spark-submit-parent-72210c01;1.0
\tconfs: [default]
:: resolution report :: resolve 2335ms :: artifacts dl 0ms
\t:: modules in use:
\t---------------------------------------------------------------------
\t|                  |            modules            ||   artifacts   |
\t|      default     |   1   |   0   |   0   |   0   ||   0   |   0   |
\t---------------------------------------------------------------------
:: problems summary ::
:::: WARNINGS
\t\tmodule not found: org.example#nothing;1.0
\t==== central: tried
\t  https://repo.example/org/example/nothing/1.0/nothing-1.0.pom
\t  -- artifact org.example#nothing;1.0!nothing.jar:
\t  https://repo.example/org/example/nothing/1.0/nothing-1.0.jar
:: USE VERBOSE OR DEBUG MESSAGE LEVEL FOR MORE DETAILS
"""
UNRESOLVED = (
    'Exception in thread "main" java.lang.RuntimeException: [unresolved dependency:'
    " org.example#nothing;1.0: not found]"
)
TRACE = "\tat org.apache.spark.util.MavenUtils$.resolveMavenCoordinates(MavenUtils.scala:539)\n"


def told(text: str) -> str:
    line = TellingLine()
    for one in text.splitlines():
        line.add(one)
    return str(line)


def test_output_of_ivy_is_no_reason() -> None:
    assert told(IVY) == ""
    assert told(IVY + UNRESOLVED + "\n" + TRACE) == UNRESOLVED


def test_the_deepest_cause_of_a_trace() -> None:
    text = (
        'Exception in thread "main" org.apache.spark.SparkException: it failed\n'
        + TRACE
        + "Caused by: java.net.ConnectException: Connection refused\n"
        + TRACE
        + "\t... 12 more\n"
        + "26/11/25 20:28:52 INFO ShutdownHookManager: Deleting directory /tmp/spark\n"
    )
    assert told(text) == "Caused by: java.net.ConnectException: Connection refused"


def test_the_error_of_a_python_driver() -> None:
    text = (
        'Traceback (most recent call last):\n  File "/x.py", line 1, in <module>\nValueError: 7\n'
    )
    assert told(text) == "ValueError: 7"
    assert told("2026-11-25 20:07:33,822 ERROR sluice.driver.spark it broke\n") == "it broke"


def test_the_last_words_without_an_error() -> None:
    assert told("hello\nthe last words\n\n" + IVY) == "the last words"
    assert told("") == ""


@pytest.mark.parametrize(
    ("line", "level", "text"),
    [
        ("2026-11-25 20:07:33,822 INFO sluice.driver a.b: 1 row", logging.INFO, "a.b: 1 row"),
        ("2026-11-25 20:07:33,822 WARNING x slow", logging.WARNING, "slow"),
        ("26/11/25 20:07:24 WARN Utils: slow: so", logging.WARNING, "Spark: Utils: slow: so"),
        ("26/11/25 20:07:24 ERROR Inbox: it broke", logging.ERROR, "Spark: Inbox: it broke"),
        ("26/11/25 20:07:24 WARN NativeCodeLoader: Unable to load native-hadoop library for", 10,
         "26/11/25 20:07:24 WARN NativeCodeLoader: Unable to load native-hadoop library for"),
        ("anything else", logging.INFO, "anything else"),
    ],
)  # fmt: skip
def test_each_line_has_its_level(line: str, level: int, text: str) -> None:
    assert leveled(line) == (level, text)


def test_the_log_of_the_provider(caplog: pytest.LogCaptureFixture) -> None:
    log: Any = LeveledLog(logging.getLogger("spark"))
    caplog.set_level(logging.INFO, "spark")
    log.info("2026-11-25 20:07:33,822 ERROR sluice.driver 100 % broken")
    log.info("WARNING: Using incubator modules: jdk.incubator.vector")
    log.info("Identified spark application id: %s", "app-1")
    log.warning("as it is")
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        ("ERROR", "100 % broken"),
        ("INFO", "Identified spark application id: app-1"),
        ("WARNING", "as it is"),
    ]
