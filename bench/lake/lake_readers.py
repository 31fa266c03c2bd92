"""Asks engines about lake tables: each engine in a process of its own, and within a time limit.

What an answer costs is the CPU time of all its processes from the question to the answer, without
the start of the engine.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from sluice.driver.lakes.jvm import iceberg_jar

PROGRAM = Path(__file__).with_name("lake_reader.py")
SPARK = "spark"
ENGINES = (SPARK, "pyiceberg", "polars", "duckdb")
START_LIMIT_S = 120.0
_ENDED_CHARS = 2000


@dataclass(frozen=True)
class Scan:
    """What an engine answered, and what that cost."""

    cpu_s: float
    wall_s: float
    answer: list[Any] | None = None
    why: str = ""
    """Why there is no answer: ``refused: ERROR`` or ``over LIMIT s``."""

    @property
    def is_refused(self) -> bool:
        return self.why.startswith("refused")


class Reader:
    """A running engine; a context manager. It ends when an answer took too long."""

    def __init__(self, command: Sequence[str], variables: Mapping[str, str], log: Path) -> None:
        """Starts the engine and waits until it is loaded.

        :param log: a file for what it prints.
        :raises SystemExit: it does not start; says what it printed.
        """
        self._command, self._log = command, log
        with log.open("w") as said:
            self._process = subprocess.Popen(
                command,
                env=dict(variables),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                start_new_session=True,  # a limit ends all processes of the engine
            )
        try:
            if self._next_line(START_LIMIT_S) is None:
                raise self._failure(f"was not loaded within {START_LIMIT_S:g} s")
        except BaseException:
            self.close()
            raise

    def ask(self, limit_s: float, **question: object) -> Scan:
        """Asks a question as of ``bench.lake.lake_reader``.

        :raises SystemExit: the engine ended, or an earlier answer took too long.
        """
        assert self._process.stdin is not None
        before, started = self._cpu_s(), time.perf_counter()
        with contextlib.suppress(BrokenPipeError):  # then there is no answer either
            self._process.stdin.write(json.dumps(question).encode() + b"\n")
            self._process.stdin.flush()
        line = self._next_line(limit_s)
        wall_s, cpu_s = time.perf_counter() - started, self._cpu_s() - before
        if line is None:
            self.close()
            return Scan(cpu_s, wall_s, why=f"over {limit_s:g} s")
        said = json.loads(line)
        if "refused" in said:
            return Scan(cpu_s, wall_s, why=f"refused: {said['refused']}")
        return Scan(cpu_s, wall_s, said["answer"])

    @property
    def is_closed(self) -> bool:
        """Whether it has ended; an answer that took too long ends it, too."""
        return self._process.poll() is not None

    def close(self) -> None:
        """Kills the engine with all of its processes."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _next_line(self, limit_s: float) -> bytes | None:
        """The next line that the engine writes; None: there was none within the limit.

        :raises SystemExit: the engine has ended.
        """
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], limit_s)[0]:
            return None
        if line := self._process.stdout.readline():
            return line
        raise self._failure(f"ended with exit code {self._process.wait()}")

    def _failure(self, how: str) -> SystemExit:
        said = self._log.read_text(encoding="utf-8", errors="replace")[-_ENDED_CHARS:]
        return SystemExit(f"{' '.join(self._command)} {how}:\n{said}")

    def _cpu_s(self) -> float:
        """What its living processes have spent so far."""
        spent = 0.0
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(self._process.pid)
            for each in (process, *process.children(recursive=True)):
                with contextlib.suppress(OSError):  # it has just ended
                    spent += time.clock_gettime(_cpu_clock(each.pid))
        return spent


def _cpu_clock(pid: int) -> int:
    """Linux' clock of a process's CPU time, which counts nanoseconds; /proc counts hundredths."""
    return (~pid << 3) | 2


def reader(engine: str, warehouse: Path, log: Path) -> Reader:
    """Starts an engine by its name; installs it if it is not Spark and this is the first time.

    :raises SystemExit: it does not start.
    """
    python, variables = _environment(engine)
    return Reader([python, str(PROGRAM), engine, str(warehouse)], variables, log)


def _environment(engine: str) -> tuple[str, dict[str, str]]:
    """The interpreter of an engine, and its variables."""
    if engine == SPARK:
        jar = iceberg_jar(os.environ.get("SLUICE_TIERING_JARS", "")).absolute()
        own = {"ICEBERG_JAR": str(jar), "SPARK_LOCAL_IP": "127.0.0.1", "TZ": "UTC"}
        return sys.executable, {**os.environ, **own}
    from tests.support.lake import lake_engines

    kept = lake_engines.duckdb() if engine == "duckdb" else lake_engines.python_engines()
    return kept.python, kept.variables
