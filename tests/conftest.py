"""Fixtures that several rooms share: one Spark session, the lake read through it, a real Fluss."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from sluice import failpoints
from sluice.masking import forget_all
from tests.support.clusters.spark_session import start_session
from tests.support.harness import quick_java

settings.register_profile("default", max_examples=100, deadline=None)
settings.register_profile(
    "ci",
    max_examples=100,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("nightly", max_examples=500, stateful_step_count=100, deadline=None)
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "default")
settings.load_profile(PROFILE)
if PROFILE == "ci":
    # Hypothesis draws numbers and texts of the project's own modules too, of those that are loaded:
    # a test would get other examples with other tests before it in its process.
    vars(providers)["_get_local_constants"] = lambda: providers._local_constants

pytest_plugins = [
    "tests.support.harness.parsing",
    "tests.support.harness.rerun_alone",
    "tests.support.harness.crashed_workers",
    "tests.support.harness.grouped_tests",
]

PROGRAMS_TIMEOUT_S = 900
LONGEST = (
    "test_live_packs.py",  # waits for ten minutes, and leaves the machine to the next
    "test_quick_tests.py",
    "test_run_failures.py",
    "test_demo_real.py",
    "test_airflow_killed.py",
    "test_live.py",
    "test_airflow_failpoints.py",
)
"""Files whose tests take longest, longest first."""


def pytest_configure() -> None:
    """Programs that tests interrupt hear of it, also where a shell has begun all in the background:
    that has them, and whatever they start, pass Ctrl-C over.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    quick_java.use()
    _log_to_stderr()


def _log_to_stderr() -> None:
    """A server in this process logs at any moment, also while a test reads a command's output."""
    structlog.reset_defaults()
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.__stderr__))


@pytest.fixture(autouse=True)
def _signals() -> None:
    """Each test begins with Python's own handlers.

    A `sluice serve` or a SparkContext of an earlier test in this process leaves its handlers.
    """
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _secrets() -> None:
    """The secrets of one test may be ordinary words in the next one of this process."""
    forget_all()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With several workers, tests that share something slow to start go to the same one.

    The slow and the long tests take so much longer than the start of Spark or Fluss that each may
    go where there is room, or each file whose tests share more. What takes longest begins first, so
    that all workers end together. Whatever starts other programs has a time-out of its own: a busy
    machine takes minutes for it.
    """
    first = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: first.get(item.path.name, len(first)))
    for item in items:
        shared = {"spark", "real_fluss"} & set(getattr(item, "fixturenames", ()))
        marks = ("slow", "long", "spark", "real_fluss", "airflow")
        starts_programs = shared or any(item.get_closest_marker(mark) for mark in marks)
        if starts_programs and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(PROGRAMS_TIMEOUT_S))
        if item.get_closest_marker("slow") or item.get_closest_marker("long"):
            if _shares_with_its_file(item):
                item.add_marker(pytest.mark.xdist_group(item.path.name))
        elif shared or item.get_closest_marker("spark") or item.get_closest_marker("real_fluss"):
            item.add_marker(pytest.mark.xdist_group("jvm"))
        elif item.get_closest_marker("airflow"):
            item.add_marker(pytest.mark.xdist_group("airflow"))


def _shares_with_its_file(item: pytest.Item) -> bool:
    known = getattr(item, "_fixtureinfo").name2fixturedefs.values()  # noqa: B009
    return any(made.scope in ("package", "module", "class") for each in known for made in each)


@pytest.fixture(autouse=True)
def _logs() -> None:
    """Importing Airflow, and commands such as ``sluice serve``, configure the logs of a process.

    Airflow's handlers also print the local variables of every frame of a traceback. A test in
    which py4j logged that a JVM had died took minutes with them.
    """
    _log_to_stderr()
    root = logging.getLogger()
    for handler in list(root.handlers):
        if isinstance(handler.formatter, structlog.stdlib.ProcessorFormatter):
            root.removeHandler(handler)


@pytest.fixture(scope="session", autouse=True)
def _state_home(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What commands of the tests note down is no business of the user's own commands."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One Spark session for all tests: the independent reader of the lake."""
    session = start_session(tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()


@pytest.fixture(scope="session")
def lake_sql(spark: Any) -> Callable[[Path, str], list[Any]]:
    """``lake_sql(warehouse, "SELECT ... FROM lake.db.t")``: rows of a Hadoop catalog, read anew."""
    known: dict[Path, str] = {}

    def query(warehouse: Path, sql: str) -> list[Any]:
        if warehouse not in known:
            known[warehouse] = name = f"lake{len(known)}"
            spark.conf.set(f"spark.sql.catalog.{name}", "org.apache.iceberg.spark.SparkCatalog")
            spark.conf.set(f"spark.sql.catalog.{name}.type", "hadoop")
            spark.conf.set(f"spark.sql.catalog.{name}.warehouse", str(warehouse))
            spark.conf.set(f"spark.sql.catalog.{name}.cache-enabled", "false")
        rows: list[Any] = spark.sql(sql.replace("lake.", f"{known[warehouse]}.")).collect()
        return rows

    return query


@pytest.fixture(scope="session")
def real_fluss(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One real Fluss for all tests (a ``RealFluss``); each test takes a database of its own."""
    from sluice.errors import ConfigurationError
    from tests.support.fluss.fluss_jars import fetch_jars
    from tests.support.fluss.real_fluss import RealFluss

    try:
        jars = fetch_jars()
    except ConfigurationError as error:
        if os.environ.get("SLUICE_NO_REAL_FLUSS"):
            pytest.skip(f"no real Fluss here: {error}")
        pytest.fail(f"no real Fluss here (SLUICE_NO_REAL_FLUSS=1 skips these tests): {error}")
    home = tmp_path_factory.mktemp("real_fluss")
    with RealFluss(home, jars, conf={"kv.snapshot.interval": "2s"}) as fluss:
        yield fluss


@pytest.fixture
def arm(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Arms failpoints for the rest of the test: ``arm("round.plan.before=raise@2")``."""

    def apply(text: str) -> None:
        monkeypatch.setattr(failpoints, "_armed", failpoints.parse(text))
        monkeypatch.setattr(failpoints, "_passages", {})

    return apply
