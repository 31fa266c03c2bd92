"""Runs spark-submit in its own process group, so that no driver survives a kill."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

from sluice.artifacts.iceberg import AUTO, installed_iceberg
from sluice.artifacts.spark_submit import spark_submit
from sluice.masking import mask

LAST_LINES = 5
GRACE_S = 3.0
"""Airflow kills a task five seconds after SIGTERM."""


class GroupSubmitHook(SparkSubmitHook):
    """Kills the JVM and the Python driver below it; the provider's own hook kills the JVM only."""

    is_cancelled: Callable[[], bool] = staticmethod(lambda: False)
    """Whether the driver must stop. Called again right after spark-submit started."""

    secret_environment: Mapping[str, str] = MappingProxyType({})
    """Environment variables of spark-submit that must not appear on a command line."""

    secrets: Sequence[str] = ()
    """Values to mask in the output of spark-submit."""

    _env: dict[str, Any] | None
    _packages: str | None
    _tail: Collection[str] = ()

    def submit(self, application: str = "", **kwargs: Any) -> str | None:
        return super().submit(application, start_new_session=True, **kwargs)

    def _build_spark_submit_command(self, application: str) -> list[str]:
        if self._packages == AUTO:
            self._packages = installed_iceberg(spark_submit(self.binary)).coordinates
        command: list[str] = super()._build_spark_submit_command(application)
        variables: dict[str, Any] = self._env or {}
        self._env = {**variables, **self._path(), **self.secret_environment}
        if self.secret_environment and self.deploy_mode == "cluster":
            self.log.warning(
                "deploy mode cluster: the driver does not receive the passwords and keys of the"
                " Fluss connection; set %s in the driver's environment (docs/airflow.md)",
                ", ".join(self.secret_environment),
            )
        return command

    @property
    def binary(self) -> str:
        """Name or path of spark-submit, from the settings or the Spark connection."""
        return str(self._connection["spark_binary"])

    @property
    def master(self) -> str:
        return str(self._connection["master"])

    @property
    def deploy_mode(self) -> str | None:
        """Deploy mode of the connection. None: Spark's configuration decides."""
        mode: str | None = self._connection["deploy_mode"]
        return mode

    def _path(self) -> dict[str, str]:
        """Adds spark-submit's folder to the PATH if it is missing, because its Python is there."""
        found = spark_submit(self.binary)
        if found is None or shutil.which(self.binary):
            return {}
        return {"PATH": os.pathsep.join([str(found.parent), os.environ.get("PATH", "")])}

    def _get_spark_binary_path(self) -> list[str]:
        found = spark_submit(self.binary)
        return [self.binary if found is None else str(found)]

    @property
    def exit_code(self) -> int | None:
        """Exit code of spark-submit, negative for a signal; None if it did not start."""
        return None if self._submit_sp is None else self._submit_sp.poll()

    @property
    def last_lines(self) -> str:
        """Last lines that spark-submit printed, with secrets masked."""
        return "\n".join(self._mask_cmd([line]) for line in self._tail)

    def _process_spark_submit_log(self, itr: Iterator[Any]) -> None:
        # A cancellation just before the start found no process to kill.
        if self.is_cancelled():
            self.on_kill()
        super()._process_spark_submit_log(self._shown(itr))

    def _shown(self, lines: Iterator[Any]) -> Iterator[str]:
        """Masks each line and keeps the last ones. Providers before 6.3 keep none."""
        self._tail = tail = deque[str](maxlen=LAST_LINES)
        for line in lines:
            shown = mask(str(line), self.secrets)
            if text := shown.strip():
                tail.append(text)
            yield shown

    def on_kill(self) -> None:
        process = self._submit_sp
        if process is not None and process.poll() is None:
            _end_group(process)
        super().on_kill()


def _end_group(process: subprocess.Popen[str]) -> None:
    for sent, wait_s in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, 1.0)):
        try:
            os.killpg(process.pid, sent)
            process.wait(wait_s)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue
    # spark-submit has ended. Kill the processes of its group that survived SIGTERM.
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
