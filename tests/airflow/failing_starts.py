"""Starts of Spark that fail, for real: what spark-submit prints then, and how it ends.

To record them again, after an upgrade of Spark:

    python -m tests.airflow.failing_starts [NAME...]

It writes tests/airflow/failed_starts/NAME.txt: the exit code, then the output. Paths of this
machine are replaced, and of the frames of a Java trace the first two are kept. The reasons that
belong to them are in reasons.toml.
"""

from __future__ import annotations

import functools
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sluice.artifacts.java import pyspark_jars
from sluice.driver.lakes.jvm import iceberg_jar
from tests.support.harness.versions import interpreter
from tests.support.programs.installed import JARS

FOLDER = Path(__file__).with_name("failed_starts")
ROOT = Path(__file__).parents[2]
TIMEOUT_S = 180.0
FRAMES_KEPT = 2
SESSION = "from pyspark.sql import SparkSession\nspark = SparkSession.builder.getOrCreate()\n"
JOB = SESSION + "spark.sparkContext.parallelize(range(4), 2).map(lambda x: x + 1).collect()\n"
FILL = SESSION + (
    "jvm = spark.sparkContext._jvm\nheld = []\n"
    "while True:\n    held.append(jvm.java.nio.ByteBuffer.allocate(32 << 20))\n"
)
KILLS = "import os, signal, time\n" + SESSION + "os.kill(os.getppid(), signal.%s)\ntime.sleep(30)\n"
SPILL = SESSION + (
    "rows = spark.range(2_000_000).selectExpr('id', 'uuid() AS text')\n"
    "rows.repartition(2).sort('text').write.format('noop').mode('overwrite').save()\n"
)
CATALOG = "spark.sql.catalog.lake"
LAKE = SESSION + "spark.sql('SHOW NAMESPACES IN lake').show()\n"


@dataclass(frozen=True, slots=True)
class Start:
    """One call of spark-submit. ``{here}`` in a value is a folder.

    The value ``{jar}`` is Iceberg's jar, and ``{python}`` another Python.
    """

    text: str = JOB
    """The application. Empty: there is none."""
    conf: Mapping[str, str] = field(default_factory=dict)
    words: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the hook."""
    variables: Mapping[str, str | None] = field(default_factory=dict)
    """Environment variables. None: not set."""
    host: str = "local[2]"
    within: Callable[[Path], Any] | None = None
    """What is prepared in the folder; a context manager."""


@contextmanager
def port_taken(here: Path) -> Iterator[None]:
    with socket.create_server(("127.0.0.1", 47199)):
        yield


@contextmanager
def small_disk(here: Path) -> Iterator[None]:
    """Needs root."""
    (here / "small").mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", here / "small"], check=True, timeout=30
    )
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", here / "small"], check=True, timeout=30)


@contextmanager
def a_file(here: Path) -> Iterator[None]:
    (here / "file").write_text("no folder\n")
    yield


@functools.cache
def other_python() -> str:
    """A Python of another version than this one; fails without one."""
    return interpreter("3.12" if sys.version_info[:2] != (3, 12) else "3.11")


STARTS: dict[str, Start] = {
    "application_missing": Start(text=""),
    "py_files_missing": Start(words={"py_files": "/nowhere/none.zip"}),
    "jar_missing": Start(
        words={"jars": "/nowhere/none.jar"},
        conf={CATALOG: "org.apache.iceberg.spark.SparkCatalog"},
        text=LAKE,
    ),
    "files_missing": Start(words={"files": "/nowhere/none.txt"}),
    "master_unknown": Start(host="sparkle://127.0.0.1"),
    "master_threads": Start(host="local[two]"),
    "memory_not_a_size": Start(words={"driver_memory": "2gigs"}),
    "memory_below_minimum": Start(words={"driver_memory": "100m"}),
    "executor_memory_below_minimum": Start(conf={"spark.executor.memory": "100m"}),
    "heap_too_big": Start(words={"driver_memory": "900000g"}),
    "heap_not_free": Start(
        words={"driver_memory": "800g"},
        conf={"spark.driver.extraJavaOptions": "-XX:+AlwaysPreTouch -Xms800g"},
    ),
    "java_options_conflict": Start(
        conf={"spark.driver.extraJavaOptions": "-XX:+UseG1GC -XX:+UseSerialGC"}
    ),
    "heap_in_java_options": Start(conf={"spark.driver.extraJavaOptions": "-Xmx2g"}),
    "cores_not_a_number": Start(conf={"spark.executor.cores": "two"}),
    "task_cpus": Start(conf={"spark.task.cpus": "4", "spark.executor.cores": "2"}),
    "time_not_a_time": Start(conf={"spark.network.timeout": "soon"}),
    "heartbeat_above_timeout": Start(conf={"spark.executor.heartbeatInterval": "200s"}),
    "boolean_not_one": Start(conf={"spark.ui.enabled": "perhaps"}),
    "memory_fraction": Start(conf={"spark.memory.fraction": "7"}),
    "deploy_mode_unknown": Start(words={"deploy_mode": "clutser"}),
    "package_unknown": Start(
        words={"packages": "org.example:nothing:1.0"}, conf={"spark.jars.ivy": "{here}/ivy"}
    ),
    "package_not_coordinates": Start(words={"packages": "iceberg"}),
    "listener_missing": Start(conf={"spark.extraListeners": "org.example.Missing"}),
    "serializer_missing": Start(conf={"spark.serializer": "org.example.Missing"}),
    "codec_unknown": Start(conf={"spark.io.compression.codec": "middling"}, text=SPILL),
    "scheduler_mode": Start(conf={"spark.scheduler.mode": "RANDOM"}),
    "scheduler_file": Start(
        conf={
            "spark.scheduler.mode": "FAIR",
            "spark.scheduler.allocation.file": "/nowhere/pools.xml",
        }
    ),
    "log_level": Start(conf={"spark.log.level": "LOUD"}),
    "log4j_missing": Start(
        conf={"spark.driver.extraJavaOptions": "-Dlog4j2.configurationFile=/nowhere/log4j2.xml"},
        text=SESSION + "raise SystemExit(3)\n",
    ),
    "event_log_missing": Start(
        conf={"spark.eventLog.enabled": "true", "spark.eventLog.dir": "file:///nowhere/events"}
    ),
    "local_dir": Start(conf={"spark.local.dir": "{here}/file/tmp"}, within=a_file),
    "disk_full": Start(conf={"spark.local.dir": "{here}/small"}, text=SPILL, within=small_disk),
    "python_missing": Start(conf={"spark.pyspark.driver.python": "/nowhere/python"}),
    "python_of_workers_missing": Start(
        conf={
            "spark.pyspark.python": "/nowhere/python",
            "spark.pyspark.driver.python": sys.executable,
        }
    ),
    "python_mismatch": Start(
        conf={"spark.pyspark.python": "{python}", "spark.pyspark.driver.python": sys.executable}
    ),
    "bind_address": Start(conf={"spark.driver.bindAddress": "203.0.113.7"}),
    "driver_port_taken": Start(
        conf={"spark.driver.port": "47199", "spark.port.maxRetries": "0"}, within=port_taken
    ),
    "ui_port_taken": Start(
        conf={"spark.ui.port": "47199", "spark.port.maxRetries": "0"}, within=port_taken
    ),
    "java_missing": Start(variables={"JAVA_HOME": "/nowhere/java"}),
    "master_away": Start(host="spark://127.0.0.1:47198"),
    "yarn_without_hadoop": Start(
        host="yarn", variables={"HADOOP_CONF_DIR": None, "YARN_CONF_DIR": None}
    ),
    "standalone_cluster_mode": Start(
        host="spark://127.0.0.1:47198", words={"deploy_mode": "cluster"}
    ),
    "keytab_missing": Start(
        host="yarn",
        variables={"HADOOP_CONF_DIR": "{here}"},
        words={"keytab": "/nowhere/key.tab", "principal": "sluice"},
    ),
    "syntax_error": Start(text="def broken(:\n    pass\n"),
    "import_error": Start(text="import no_such_module_here\n"),
    "exit_3": Start(text=SESSION + "raise SystemExit(3)\n"),
    "two_contexts": Start(
        text=SESSION + "from pyspark import SparkContext\nSparkContext('local[1]', 'second')\n"
    ),
    "catalog_class_missing": Start(
        conf={CATALOG: "org.apache.iceberg.spark.SparkCatalog"}, text=LAKE
    ),
    "catalog_type_unknown": Start(
        conf={CATALOG: "org.apache.iceberg.spark.SparkCatalog", f"{CATALOG}.type": "shelf"},
        words={"jars": "{jar}"},
        text=LAKE,
    ),
    "metastore_away": Start(
        conf={
            CATALOG: "org.apache.iceberg.spark.SparkCatalog",
            f"{CATALOG}.type": "rest",
            f"{CATALOG}.uri": "http://127.0.0.1:47198",
        },
        words={"jars": "{jar}"},
        text=LAKE,
    ),
    "jvm_out_of_memory": Start(words={"driver_memory": "512m"}, text=FILL),
    "jvm_out_of_memory_exits": Start(
        words={"driver_memory": "512m"},
        text=FILL,
        conf={"spark.driver.extraJavaOptions": "-XX:+ExitOnOutOfMemoryError"},
    ),
    "jvm_killed": Start(text=KILLS % "SIGKILL"),
    "jvm_terminated": Start(text=KILLS % "SIGTERM"),
}


def command_of(start: Start, here: Path) -> tuple[list[str], dict[str, str]]:
    """The command line as the tier task has it, and the environment."""
    from sluice_airflow.submit.process_group import GroupSubmitHook

    def filled(values: Mapping[str, Any]) -> dict[str, Any]:
        found = {k: v.replace("{here}", str(here)) if v else v for k, v in values.items()}
        # Not before a start needs them: the sdist's own tests load this file without the jar.
        of = {"{jar}": lambda: str(iceberg_jar(JARS)), "{python}": other_python}
        return {k: of[v]() if v in of else v for k, v in found.items()}

    application = here / "tier_tables.py"
    if start.text:
        application.write_text(start.text)
    connection = {"conn_type": "spark", "host": start.host}
    os.environ["AIRFLOW_CONN_FAILING"] = json.dumps(connection)
    hook = GroupSubmitHook(conn_id="failing", conf=filled(start.conf), **filled(start.words))
    hook.is_small = "spark.ui.port" not in start.conf
    command = hook._build_spark_submit_command(str(application))
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", **(hook._env or {})}
    for name, value in filled(start.variables).items():
        if value is None:
            environment.pop(name, None)
        else:
            environment[name] = value
    return command, environment


def run(start: Start, here: Path) -> tuple[int, bytes]:
    """Calls spark-submit. Returns its exit code, as subprocess has it, and its output."""
    with ExitStack() as stack:
        if start.within is not None:
            stack.enter_context(start.within(here))
        command, environment = command_of(start, here)
        ended = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=TIMEOUT_S,
            check=False,
            start_new_session=True,
            cwd=here,
        )
    return ended.returncode, ended.stdout


def neutral(output: bytes, here: Path) -> str:
    """The output without what only this machine has."""
    text = output.decode(errors="replace")
    java = Path(os.environ.get("JAVA_HOME") or Path("/usr/bin/java").resolve().parents[1])
    places = {
        str(here): "/tmp/start",
        str(pyspark_jars().parent): "/opt/spark",
        str(Path(sys.prefix)): "/opt/sluice",
        str(Path(sys.executable).resolve().parents[1]): "/opt/python3.11",
        str(ROOT): "/opt/sluice",
        str(java): "/opt/java",
        str(Path.home()): "/home/sluice",
        socket.gethostname(): "machine",
    }
    if other_python.cache_info().currsize:
        places[str(Path(other_python()).parents[1])] = "/opt/python3.12"
    for place, name in sorted(places.items(), key=lambda one: -len(one[0])):
        text = text.replace(place, name)
    text = re.sub(r"https://[^/\s]+/(?:maven2/)?(?=org/)", "https://repo.example/", text)
    text = re.sub(r"Host \S+ not found", "Host packages.example not found", text)
    kept: list[str] = []
    frames = 0
    for line in text.splitlines():
        frames = frames + 1 if re.match(r"\s+at \S", line) else 0
        if frames <= FRAMES_KEPT:
            kept.append(line)
    return "\n".join(kept) + "\n"


def record(name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        code, output = run(STARTS[name], Path(folder))
        text = neutral(output, Path(folder))
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.txt").write_text(f"exit code {code}\n{text}")
    print(f"{name}: exit code {code}, {len(text)} characters", flush=True)


if __name__ == "__main__":
    for wanted in sys.argv[1:] or STARTS:
        record(wanted)
