"""The output of spark-submit: the levels of its lines."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from sluice_airflow.submit.output import LeveledLog, leveled


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
