"""spark-submit in a process group of its own, so that ending it leaves no driver behind."""

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
"""Airflow itself kills a task five seconds after asking it to end."""


class GroupSubmitHook(SparkSubmitHook):
    """The provider's hook kills the JVM alone; the Python driver under it would go on a while."""

    not_wanted: Callable[[], bool] = staticmethod(lambda: False)
    """Whether the driver's work was given up; asked anew once spark-submit has been started."""

    secret_environment: Mapping[str, str] = MappingProxyType({})
    """Variables of spark-submit that stand on no command line, as the provider's own may."""

    secrets: Sequence[str] = ()
    """Values that no line of spark-submit may show."""

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
                "the driver runs on the cluster, where logins and keys of the Fluss connection"
                " do not reach it: give it %s there (docs/airflow.md)",
                ", ".join(self.secret_environment),
            )
        return command

    @property
    def binary(self) -> str:
        """spark-submit, by name or path, as setting or connection name it."""
        return str(self._connection["spark_binary"])

    @property
    def master(self) -> str:
        return str(self._connection["master"])

    @property
    def deploy_mode(self) -> str | None:
        """None: the connection leaves it to Spark's configuration."""
        mode: str | None = self._connection["deploy_mode"]
        return mode

    def _path(self) -> dict[str, str]:
        """Where spark-submit is found beside our Python alone, it has to find that Python, too."""
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
        """The end of what spark-submit said, secrets masked."""
        return "\n".join(self._mask_cmd([line]) for line in self._tail)

    def _process_spark_submit_log(self, itr: Iterator[Any]) -> None:
        # Whoever gave up while spark-submit was about to start found no process to end.
        if self.not_wanted():
            self.on_kill()
        super()._process_spark_submit_log(self._shown(itr))

    def _shown(self, lines: Iterator[Any]) -> Iterator[str]:
        """Masks each line, and remembers the last ones; providers before 6.3 do not."""
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
    # spark-submit is gone; whatever of its group outlived the polite signal is not wanted either.
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
