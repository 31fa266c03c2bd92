"""Runs one SQL query in a Spark of its own, which ends with the query.

This package does not import PySpark, so Spark runs in separate processes: Python (``python -m
pyspark_sluice.query``), its JVM, and the JVM's Python workers. They form one session of the
operating system, which is always ended as a unit. If this process is killed, each of them reads the
end of its input and exits.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

import sluice.errors
from sluice.artifacts.java import java_version
from sluice.client.connection.reachability import OF_COMMAND
from sluice.config import ENVIRONMENT_PREFIX, SETTINGS_VARIABLE, Config
from sluice.driver.lakes.jvm import iceberg_class_path
from sluice.errors import ConfigurationError, DriverRefused, QueryFailed, SluiceError
from sluice.extras import install_command
from sluice.masking import TEXT_CHARS_MAX, mask

_MODULE = "pyspark_sluice.query"
_OF_OTHERS = ("SPARK_REMOTE", "PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS")
"""Environment variables that would select another Spark."""
_PASSED_ON = (f"{ENVIRONMENT_PREFIX}CLIENT_", f"{ENVIRONMENT_PREFIX}DATALAKE_")
"""Prefixes of variables that the configuration has already read."""
_END_TIMEOUT_S = 20.0
"""Seconds between SIGTERM and SIGKILL for the processes."""


@dataclass(frozen=True, slots=True)
class QueryResult:
    """The rows of a query; ``truncated``: there are more rows than the limit."""

    rows: pa.Table
    truncated: bool


def query(
    config: Config,
    text: str,
    limit: int,
    timeout_s: float,
    phase: Callable[[str], None] = lambda _: None,
) -> QueryResult:
    """Runs one SQL statement on the cluster's system tables (``sys``) and the lake (``lake``).

    The catalog ``lake`` exists if ``config.datalake.iceberg`` is set.

    :param limit: maximum number of rows to return.
    :param timeout_s: seconds for the query and Spark's start (about 10 s).
    :param phase: called with ``start`` and ``query`` when these phases start.
    :raises ConfigurationError: Spark, Java or Iceberg's runtime is missing.
    :raises DriverRefused: Spark does not start.
    :raises QueryFailed: the query failed or timed out.
    :raises FlussError: the cluster refused a request.
    """
    _check_installed()
    class_path = iceberg_class_path(config.tiering.jars) if config.datalake.iceberg else ""
    request = {"query": text, "limit": limit, "class_path": class_path}
    phase("start")
    with tempfile.TemporaryDirectory(prefix="sluice-sql-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        words = folder / "words.txt"
        with (
            words.open("wb") as log,
            _processes(folder, _environment(config, folder), log) as process,
        ):
            assert process.stdin is not None
            assert process.stdout is not None
            with _deadline(process, timeout_s) as late:
                with contextlib.suppress(BrokenPipeError):  # it exited at once; see below
                    process.stdin.write(json.dumps(request).encode() + b"\n")
                    process.stdin.flush()
                last = _last_answer(process.stdout, phase)
        if late.is_set():
            raise QueryFailed(f"no answer in {timeout_s:g} s: give a longer --timeout")
        if "failed" in last:
            raise _error(**last["failed"], words=words)
        if "done" not in last:
            raise DriverRefused(f"Spark ended without an answer; its last output: {_tail(words)}")
        with pa.OSFile(str(folder / "result.arrow")) as file, pa.ipc.open_stream(file) as reader:
            return QueryResult(reader.read_all(), bool(last["done"]["cut"]))


def _check_installed() -> None:
    """Checks that PySpark is installed.

    :raises ConfigurationError: it is not; names the command that installs it.
    """
    for package in ("pyspark", _MODULE.partition(".")[0]):
        if importlib.util.find_spec(package) is None:
            raise ConfigurationError(
                f"the Python package {package} is not installed: {install_command('spark')}"
            )
    java_version()


def _environment(config: Config, folder: Path) -> dict[str, str]:
    """The environment of the processes; it has the settings of client and lake, with passwords."""
    settings: dict[str, Any] = {
        f"datalake.iceberg.{name}": value for name, value in config.datalake.iceberg.items()
    }
    for field in fields(config.client):
        value = getattr(config.client, field.name)
        if isinstance(value, str | int):
            settings[f"client.{field.name}"] = value
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in _OF_OTHERS and not name.startswith(_PASSED_ON)
    }
    return {
        **kept,
        SETTINGS_VARIABLE: json.dumps(settings),
        OF_COMMAND: "1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "TMPDIR": str(folder),  # temporary files are deleted with the folder
    }


@contextmanager
def _processes(
    folder: Path, environment: dict[str, str], words: IO[bytes]
) -> Iterator[subprocess.Popen[bytes]]:
    """Starts Python and its JVM in a new session; ends all its processes with the block."""
    process = subprocess.Popen(
        [sys.executable, "-m", _MODULE, str(folder)],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=words,
        start_new_session=True,  # this process handles Ctrl-C
    )
    try:
        yield process
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends all processes of the session that still run, and waits for them."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        for member in _members(process):
            with contextlib.suppress(ProcessLookupError):
                os.kill(member, how)
        deadline = time.monotonic() + _END_TIMEOUT_S
        while (left := _members(process)) and time.monotonic() < deadline:
            time.sleep(0.02)
        if not left:
            break
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        with contextlib.suppress(OSError):
            pipe.close()


def _members(process: subprocess.Popen[bytes]) -> list[int]:
    """The ids of all processes of the session.

    A process group would not do, because Spark's Python workers make their own groups.
    """
    process.poll()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(ProcessLookupError):
            if os.getsid(int(entry.name)) == process.pid:
                found.append(int(entry.name))
    return found


@contextmanager
def _deadline(process: subprocess.Popen[bytes], timeout_s: float) -> Iterator[threading.Event]:
    """Ends Python and Java after a timeout, so that reading their output ends; then sets the event.

    This happens only while the process is not reaped, so its id cannot be reused.
    """
    late = threading.Event()

    def end() -> None:
        late.set()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)

    timer = threading.Timer(timeout_s, end)
    timer.start()
    try:
        yield late
    finally:
        timer.cancel()
        timer.join()


def _last_answer(answers: IO[bytes], phase: Callable[[str], None]) -> dict[str, Any]:
    """The last line of the output; passes phases on as they arrive."""
    last: dict[str, Any] = {}
    for line in answers:
        last = json.loads(line)
        if "phase" in last:
            phase(last["phase"])
    return last


def _error(kind: str, reason: str, words: Path) -> SluiceError:
    """Restores an error of Sluice by its class name; makes others QueryFailed."""
    if kind == DriverRefused.__name__:
        return DriverRefused(f"Spark does not start: {reason} Its last output: {_tail(words)}")
    ours = getattr(sluice.errors, kind, None)
    if isinstance(ours, type) and issubclass(ours, SluiceError):
        return ours(reason)
    return QueryFailed(reason or kind)


def _tail(words: Path) -> str:
    said = mask(words.read_bytes()[-TEXT_CHARS_MAX:].decode(errors="replace"))
    return " ".join(said[-4000:].split()[-60:]) or "none"
