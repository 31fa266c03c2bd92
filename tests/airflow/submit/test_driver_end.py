"""Why a driver ended: recorded outputs of real starts that failed, and outputs of other ends."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest

from sluice_airflow.submit.driver_end import TEXT_MAX, DriverEnd, ended_by
from sluice_airflow.submit.oom_kills import OomKills
from tests.airflow.failing_starts import FOLDER, STARTS, neutral, run

REASONS = tomllib.loads((FOLDER / "reasons.toml").read_text())
WITHOUT_TIME = re.compile(r"\A[\d:.TZ-]+ ")
SETTINGS = "SparkSettingsWrong"


def end_of(text: str) -> DriverEnd:
    ending = DriverEnd()
    for line in text.splitlines():
        ending.add(line)
    return ending


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
    "java.lang.RuntimeException: [unresolved dependency: org.example#nothing;1.0: not found]"
)
MAIN = 'Exception in thread "main" '
TRACE = "\tat org.apache.spark.util.MavenUtils$.resolveMavenCoordinates(MavenUtils.scala:539)\n"


def told(text: str) -> str:
    return str(end_of(text))


def test_output_of_ivy_is_no_reason() -> None:
    assert told(IVY) == ""
    assert told(f"{IVY}{MAIN}{UNRESOLVED}\n{TRACE}") == UNRESOLVED
    assert end_of(f"{IVY}{MAIN}{UNRESOLVED}\n").is_setting, "every repository has answered"


def test_the_deepest_cause_of_a_trace() -> None:
    text = (
        'Exception in thread "main" org.apache.spark.SparkException: it failed\n'
        + TRACE
        + "Caused by: java.net.ConnectException: Connection refused\n"
        + TRACE
        + "\t... 12 more\n"
        + "26/11/25 20:28:52 INFO ShutdownHookManager: Deleting directory /tmp/spark\n"
    )
    words = "org.apache.spark.SparkException: it failed"
    assert told(text) == f"{words}; caused by java.net.ConnectException: Connection refused"


def test_the_error_of_a_python_driver() -> None:
    text = (
        'Traceback (most recent call last):\n  File "/x.py", line 1, in <module>\nValueError: 7\n'
    )
    assert told(text) == "ValueError: 7"
    assert told("2026-11-25 20:07:33,822 ERROR sluice.driver.spark.round it broke\n") == "it broke"


def test_the_last_words_without_an_error() -> None:
    assert told("hello\nthe last words\n\n" + IVY) == "the last words"
    assert told("") == ""


def kind_of(ending: DriverEnd) -> str:
    return SETTINGS if ending.is_setting else "DriverLost"


def test_each_start_has_a_recording_and_a_reason() -> None:
    recorded = {file.stem for file in FOLDER.glob("*.txt")}
    assert recorded == STARTS.keys() == REASONS.keys()
    assert len(recorded) >= 20


@pytest.mark.parametrize("name", sorted(STARTS))
def test_the_reason_of_a_recorded_start(name: str) -> None:
    code, _, text = (FOLDER / f"{name}.txt").read_text().partition("\n")
    ending = end_of(text)
    assert str(ending) == REASONS[name]["reason"]
    assert kind_of(ending) == REASONS[name]["kind"]
    assert code != "exit code 0" or not ending.is_setting


@pytest.mark.airflow
@pytest.mark.spark
@pytest.mark.long
@pytest.mark.parametrize("name", sorted(STARTS))
def test_the_reason_of_a_start(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same, with the Spark that is installed."""
    monkeypatch.setenv("AIRFLOW_CONN_FAILING", "{}")  # which the start sets, and the test unsets
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)  # whose path some reasons name
    code, output = run(STARTS[name], tmp_path)
    text = neutral(output, tmp_path)
    ending = end_of(text)
    assert kind_of(ending) == REASONS[name]["kind"], text
    begin = WITHOUT_TIME.sub("", REASONS[name]["reason"].partition(";")[0][:80])
    assert WITHOUT_TIME.sub("", str(ending)).startswith(begin), text
    assert code != 0 or not ending.is_setting


def test_what_is_printed_after_the_end_explains_nothing() -> None:
    full = "Terminating due to java.lang.OutOfMemoryError: Java heap space"
    after = (
        "26/11/25 20:28:52 ERROR Utils: Uncaught exception in thread stop-spark-context\n"
        "Traceback (most recent call last):\n"
        "py4j.protocol.Py4JNetworkError: Answer from Java side is empty\n"
        "Traceback (most recent call last):\n"
        "ConnectionRefusedError: [Errno 111] Connection refused\n"
    )
    hooks = "java.lang.IllegalStateException: Shutdown hooks cannot be modified during shutdown.\n"
    assert told(f"26/11/25 20:28:51 ERROR Inbox: it broke\n{hooks}") == "Inbox: it broke"
    assert told(f"{full}\n{after}") == full
    assert told(f"26/11/25 20:28:51 ERROR Inbox: it broke\n{after}") == "Inbox: it broke"
    assert told(after) == "ConnectionRefusedError: [Errno 111] Connection refused"


def test_each_error_counts_by_itself() -> None:
    """Also the second of two that no log record precedes."""
    first, last = "java.io.IOException: it broke", "java.lang.IllegalStateException: so did this"
    assert told(f"{first}\n{last}\n") == last
    record = "26/11/25 20:28:51 ERROR Executor: Exception in task 1.0"
    assert told(f"{record}\n{first}\n{TRACE}{last}\n") == last
    assert told(f"{record}\n{first}\n") == f"Executor: Exception in task 1.0; caused by {first}"


def test_who_has_killed_a_container() -> None:
    yarn = (
        "\t diagnostics: Application application_1_2 failed 1 times due to AM Container exited\n"
        "Container [pid=7] is running 1B beyond the 'PHYSICAL' memory limit. Killing container.\n"
        'Exception in thread "main" org.apache.spark.SparkException: Application failed\n'
    )
    assert "beyond the 'PHYSICAL' memory limit" in told(yarn)
    user = "\t diagnostics: Application application_1_2 was killed by user ann at 10.0.0.1\n"
    assert "was killed by user ann" in told(user)


UNCAUGHT = "Traceback (most recent call last):\n"


@pytest.mark.parametrize(
    "text",
    [
        MAIN + "java.net.ConnectException: Cannot assign requested address\n",
        "26/11/25 20:28:51 WARN Utils: java.io.IOException: No space left on device\n"
        "26/11/25 20:28:51 ERROR DiskBlockManager: Failed to create any local dir.\n",
        MAIN
        + "java.lang.NoClassDefFoundError: Could not initialize class org.xerial.snappy.Snappy\n"
        "Caused by: java.io.IOException: No space left on device\n",
        UNCAUGHT + "ImportError: libarrow.so: failed to map segment: Cannot allocate memory\n",
        UNCAUGHT + "ImportError: _lib.so: cannot open shared object file: Too many open files\n",
        MAIN + 'java.io.IOException: Cannot run program "python3": error=11, Resource temporarily'
        " unavailable\n",
        "26/11/25 20:28:51 ERROR SparkContext: Error initializing SparkContext.\n"
        "java.lang.IllegalArgumentException: requirement failed: Can only call getServletHandlers"
        " on a running MetricsSystem\n",
    ],
)
def test_what_is_short_for_now_is_no_setting(text: str) -> None:
    assert told(text)
    assert not end_of(text).is_setting


def test_the_same_errors_without_a_shortage_are_settings() -> None:
    bind = "java.net.BindException: Cannot assign requested address: Service 'sparkDriver' failed"
    for error in (
        bind,
        "java.lang.NoClassDefFoundError: org/apache/iceberg/Table",
        "java.lang.IllegalArgumentException: requirement failed: spark.executor.cores is 0",
    ):
        assert end_of(MAIN + error + "\n").is_setting, error


@pytest.mark.parametrize(
    "lost",
    [
        "26/11/25 20:28:51 ERROR TaskSchedulerImpl: Lost executor 2 on 10.0.0.5: \n"
        "The executor with id 2 exited with exit code 137(SIGKILL, possible container OOM).\n"
        "\t container state: terminated\n\t exit code: 137\n\t termination reason: OOMKilled\n",
        "26/11/25 20:28:51 ERROR YarnScheduler: Lost executor 1 on n1: Container killed by YARN for"
        " exceeding physical memory limits. 1.5 GB of 1.5 GB physical memory used.\n",
        "26/11/25 20:28:51 WARN YarnAllocator: Container killed by YARN for exceeding memory\n",
        "26/11/25 20:28:51 WARN TaskSetManager: Lost task 0.0 in stage 0.0 (TID 0) (n1 executor 1):"
        " ExecutorLostFailure (executor 1 exited caused by one of the running tasks) Reason:"
        " Container killed by YARN for exceeding memory limits.\n",
    ],
)
def test_a_lost_executor_does_not_end_the_driver(lost: str) -> None:
    later = "Traceback (most recent call last):\nValueError: 7\n"
    assert told(lost + later) == "ValueError: 7"
    end = "26/11/25 20:28:59 ERROR ApplicationMaster: Container killed by the NodeManager\n"
    assert told(lost + end + later).startswith("ApplicationMaster: Container killed")


@pytest.mark.slow
def test_endless_output_needs_no_memory() -> None:
    ending = DriverEnd()
    for number in range(20_000):
        ending.add(f"java.lang.IllegalStateException: {number} " + "x" * 20_000)
    assert len(str(ending)) == TEXT_MAX
    assert str(ending).startswith("java.lang.IllegalStateException: 19999 ")


@pytest.mark.parametrize(
    ("code", "name"),
    [(-9, "SIGKILL"), (137, "SIGKILL"), (143, "SIGTERM"), (-15, "SIGTERM"),
     (0, ""), (1, ""), (None, ""), (128, ""), (-200, ""), (255, "")],
)  # fmt: skip
def test_the_signal_of_an_exit_code(code: int | None, name: str) -> None:
    assert ended_by(code) == name


def test_the_kernels_counters(tmp_path: Path) -> None:
    """A control group of version 2 in a container, then the machine's own counter."""
    files = {
        "proc/self/cgroup": "0::/machine/path\n",
        "sys/fs/cgroup/memory.events": "low 0\noom 1\noom_kill 3\n",
        "proc/vmstat": "nr_free_pages 1\noom_kill 3\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    kills = OomKills(tmp_path)
    assert kills.full() == ""
    (tmp_path / "proc/vmstat").write_text("oom_kill 4\n")
    assert kills.full() == "the memory of the machine"
    (tmp_path / "sys/fs/cgroup/memory.events").write_text("oom_kill 4\n")
    assert kills.full() == "the memory limit of its control group"
    assert OomKills(tmp_path / "nowhere").full() is None
