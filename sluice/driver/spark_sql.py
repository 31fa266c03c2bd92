"""One SQL query in a Spark of its own, which is gone when the answer is there.

Spark runs in processes of its own (``python -m pyspark_sluice.query``), because this room knows no
engine: Python, the Java that it starts, and Java's Python workers. They are one session of the
operating system, ended whole whatever happens; if this process is killed, each sees the end of its
input and leaves.
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
from sluice.config import ENVIRONMENT_PREFIX, SETTINGS_VARIABLE, Config
from sluice.driver.jvm import iceberg_class_path
from sluice.errors import ConfigurationError, DriverRefused, QueryFailed, SluiceError
from sluice.extras import install_command

_MODULE = "pyspark_sluice.query"
_OF_OTHERS = ("SPARK_REMOTE", "PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS")
"""Variables by which another Spark would be meant."""
_PASSED_ON = (f"{ENVIRONMENT_PREFIX}CLIENT_", f"{ENVIRONMENT_PREFIX}DATALAKE_")
"""Variables that the configuration has read already."""
_END_TIMEOUT_S = 20.0
"""How long the processes may take to end when told to; after it they are killed."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The rows of a query; ``cut``: there are more than were asked for."""

    rows: pa.Table
    cut: bool


def query(
    config: Config,
    text: str,
    limit: int,
    timeout_s: float,
    phase: Callable[[str], None] = lambda _: None,
) -> Answer:
    """Runs one SQL statement. ``sys`` holds the system tables of the cluster, and the catalog
    ``lake`` the lake's tables where ``config.datalake.iceberg`` says how to reach it.

    :param limit: most rows that are answered.
    :param timeout_s: for all of it, Spark's start (some 10 s) included.
    :param phase: is told ``start`` and ``query``, as they begin.
    :raises ConfigurationError: Spark, Java or Iceberg's runtime is missing.
    :raises DriverRefused: Spark does not start.
    :raises QueryFailed: Spark refused or failed the query, or the time was up.
    :raises FlussError: the cluster did.
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
                with contextlib.suppress(BrokenPipeError):  # it ended at once: it says why below
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
            return Answer(reader.read_all(), bool(last["done"]["cut"]))


def _check_installed() -> None:
    """:raises ConfigurationError: a package or Java is missing, or Java is too old."""
    for package in ("pyspark", _MODULE.partition(".")[0]):
        if importlib.util.find_spec(package) is None:
            raise ConfigurationError(
                f"the Python package {package} is not installed: {install_command('spark')}"
            )
    java_version()


def _environment(config: Config, folder: Path) -> dict[str, str]:
    """Settings of client and lake, passwords too: off every command line and out of every file."""
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
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "TMPDIR": str(folder),  # what they leave when they are ended goes with the folder
    }


@contextmanager
def _processes(
    folder: Path, environment: dict[str, str], words: IO[bytes]
) -> Iterator[subprocess.Popen[bytes]]:
    """Python with its Java, in a session of their own, which is empty when the block ends."""
    process = subprocess.Popen(
        [sys.executable, "-m", _MODULE, str(folder)],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=words,
        start_new_session=True,  # Ctrl-C is ours to handle
    )
    try:
        yield process
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends whoever of the session has not ended by itself, and waits for them."""
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
    """Ids of all processes of its session: Java's Python workers make process groups of their own,
    so that no group holds them all.
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
    """Ends Python and Java after so long, so that reading ends too; the event says that it did.

    Only while the process is not reaped: its number cannot be another's then.
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
    """What is said last; phases are passed on as they come."""
    last: dict[str, Any] = {}
    for line in answers:
        last = json.loads(line)
        if "phase" in last:
            phase(last["phase"])
    return last


def _error(kind: str, reason: str, words: Path) -> SluiceError:
    """An error of ours as what it was, any other as a failed query."""
    if kind == DriverRefused.__name__:
        return DriverRefused(f"Spark does not start: {reason} Its last output: {_tail(words)}")
    ours = getattr(sluice.errors, kind, None)
    if isinstance(ours, type) and issubclass(ours, SluiceError):
        return ours(reason)
    return QueryFailed(reason or kind)


def _tail(words: Path) -> str:
    said = words.read_bytes()[-4000:].decode(errors="replace").split()
    return " ".join(said[-60:]) or "none"
