"""Runs spark-submit, and ends what it has started on every way out of the task."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

from sluice.artifacts.iceberg import AUTO, installed_iceberg
from sluice.artifacts.jars import kept_copy
from sluice.artifacts.spark_log import log_conf, redaction_conf
from sluice.artifacts.spark_start import (
    Application,
    driver_is_here,
    names_elsewhere,
    start_here,
)
from sluice.artifacts.spark_submit import spark_submit
from sluice.config import SETTINGS_FILE_VARIABLE, SETTINGS_VARIABLE
from sluice.masking import line, mask
from sluice_airflow.driver_end import DriverEnd, ended_by
from sluice_airflow.oom_kills import OomKills
from sluice_airflow.submit_output import LeveledLog
from sluice_airflow.submit_pipe import NOT_STARTED, Leash, end_processes, output_lines

_ON_CLUSTER = {
    "k8s": {"spark.kubernetes.submission.waitAppCompletion": "true"},
    "yarn": {"spark.yarn.submit.waitAppCompletion": "true", "spark.yarn.maxAppAttempts": "1"},
}
"""By the start of the master: properties of a driver on the cluster. spark-submit waits for it: its
end is that of the tier task. YARN starts no second one: both would be the same try of a table, and
could give their files the same names."""
_SETTINGS_NAMES = (f".{SETTINGS_VARIABLE}", f".{SETTINGS_FILE_VARIABLE}")
"""How the names of Spark properties end that give the settings to a driver on the cluster."""


class GroupSubmitHook(SparkSubmitHook):
    """Reads spark-submit's output, and ends it with all that it has started, when the task ends.

    The provider builds the command, and finds the driver on a cluster in the output.
    """

    is_cancelled: Callable[[], bool] = staticmethod(lambda: False)
    """Whether the driver must stop. Called again right after spark-submit started."""

    secret_environment: Mapping[str, str] = MappingProxyType({})
    """Environment variables of spark-submit that must not appear on a command line."""

    secrets: Sequence[str] = ()
    """Values to mask in the output of spark-submit."""

    is_small: bool = False
    """Whether the application ends so soon that nobody opens Spark's UI."""

    _env: dict[str, Any] | None
    _conf: dict[str, Any]
    _driver_class_path: str | None
    _env_vars: dict[str, Any] | None
    _jars: str | None
    _kubernetes_driver_pod: str | None
    _packages: str | None
    _properties_file: str | None
    _spark_exit_code: int | None
    _yarn_application_id: str | None
    _log: Any
    _ending = DriverEnd()
    _oom_kills: OomKills | None = None
    _leash: Leash | None = None
    _asked = False
    """Whether the cluster was asked to end the driver."""
    _has_ended = False
    """Whether all was ended: later, its process ids may be those of others."""

    def submit(self, application: str = "", **kwargs: Any) -> str | None:
        """Runs spark-submit to its end. None of its processes outlives this call, or the task.

        :raises OSError: the program does not exist.
        """
        if spark_submit(self.binary) is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.binary)
        self._oom_kills = OomKills()
        self._asked = self._has_ended = False
        with Leash() as self._leash:
            try:
                return super().submit(application, **self._leash.words, **kwargs)
            finally:
                self._end()
                self._has_ended = True

    def _build_spark_submit_command(self, application: str) -> list[str]:
        self._name_iceberg()
        added = {**self._start_conf(), **self._log_conf(), **self._cluster_conf()}
        self._conf = {**self._conf, **added}
        command: list[str] = super()._build_spark_submit_command(application)
        variables: dict[str, Any] = self._env or {}
        self._env = {**variables, **self._path(), **self.secret_environment}
        if self.secret_environment and self.is_on_cluster and not self._names_settings():
            self.log.warning(
                "deploy mode cluster: the driver does not receive the passwords and keys of the"
                " Fluss connection; give it %s or %s (docs/spark-clusters.md)",
                SETTINGS_VARIABLE,
                SETTINGS_FILE_VARIABLE,
            )
        return command if self._leash is None else self._leash.command(command)

    def _cluster_conf(self) -> dict[str, str]:
        found = [conf for kind, conf in _ON_CLUSTER.items() if self.master.startswith(kind)]
        return found[0] if found and self.is_on_cluster else {}

    def _names_settings(self) -> bool:
        """Whether a property gives the driver its secret settings."""
        submit = spark_submit(self.binary)
        elsewhere = names_elsewhere(self._application, submit, self._submit_environment)
        return any(name.endswith(_SETTINGS_NAMES) for name in (*self._conf, *elsewhere))

    @property
    def is_on_cluster(self) -> bool:
        """Whether the driver runs on the cluster, in deploy mode ``cluster``."""
        return self.deploy_mode == "cluster"

    def _name_iceberg(self) -> None:
        """Replaces ``packages = auto`` by a jar of this machine, or by its coordinates.

        For coordinates, Ivy costs each start a CPU second.
        """
        if self._packages != AUTO:
            return
        submit = spark_submit(self.binary)
        runtime = installed_iceberg(submit)
        copy = None
        if not self._jars and driver_is_here(self._application, submit, self._submit_environment):
            copy = kept_copy(runtime)
        if copy is None:
            self._packages = runtime.coordinates
        else:
            self._jars, self._packages = str(copy), None

    def _start_conf(self) -> dict[str, str]:
        """The properties with which a driver starts quickly on this machine."""
        submit = spark_submit(self.binary)
        return start_here(self._application, self._jars or "", submit, self._submit_environment)

    def _log_conf(self) -> dict[str, str]:
        place = self._application, spark_submit(self.binary), self._submit_environment
        return {**log_conf(*place), **redaction_conf(*place)}

    @property
    def _application(self) -> Application:
        return Application(
            self._conf,
            self.deploy_mode or "",
            self.is_small,
            self._driver_class_path or "",
            self._properties_file or "",
        )

    @property
    def _submit_environment(self) -> dict[str, str]:
        return {**os.environ, **(self._env_vars or {})}

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
    def is_refused(self) -> bool:
        """Whether this machine could not run the program spark-submit."""
        return self.exit_code in (126, 127) and str(self._ending).startswith(NOT_STARTED)

    @property
    def driver_exit_code(self) -> int | None:
        """Exit code of a driver on Kubernetes, as spark-submit printed it; None: not known."""
        code: int | None = self._spark_exit_code if self.is_on_cluster else None
        return code

    @property
    def driver_name(self) -> str:
        """Pod or YARN application of a driver on the cluster. Empty: not known."""
        return self._kubernetes_driver_pod or self._yarn_application_id or ""

    @property
    def why_ended(self) -> str:
        """What spark-submit printed that explains its end, with secrets masked."""
        return str(self._mask_cmd([str(self._ending)]))

    @property
    def is_setting_wrong(self) -> bool:
        """Whether no second start with the same settings can end otherwise."""
        return self._ending.is_setting

    @property
    def full_memory(self) -> str | None:
        """Which memory was full when the kernel ended a process. Empty: none; None: not known."""
        return None if self._oom_kills is None else self._oom_kills.full()

    def _process_spark_submit_log(self, itr: Iterator[Any]) -> None:  # noqa: ARG002
        # A cancellation just before the start found no process to kill.
        if self.is_cancelled():
            self.on_kill()
        log = self.log
        self._log = LeveledLog(log)
        try:
            super()._process_spark_submit_log(self._shown(output_lines(self._submit_sp)))
        finally:
            self._log = log

    def _shown(self, lines: Iterator[str]) -> Iterator[str]:
        """Masks each line, and keeps what tells most."""
        self._ending = ending = DriverEnd()
        for each in lines:
            shown = line(each, self.secrets)
            ending.add(shown)
            yield shown

    def on_kill(self) -> None:
        if self._has_ended:
            return
        self._end()
        if not self.is_on_cluster:
            super().on_kill()

    def _end(self) -> None:
        """Ends all processes of spark-submit, and the driver on the cluster that it waits for."""
        process = self._submit_sp
        if process is None:
            return
        code = process.poll()
        is_killed = bool(ended_by(code) and self.driver_name)
        if self.is_on_cluster and not self._asked and (code is None or is_killed):
            self._asked = True
            self._end_on_cluster(process)
        end_processes(process)

    def _end_on_cluster(self, process: Any) -> None:
        """Kills spark-submit, and asks Kubernetes or YARN to end the driver."""
        # The provider asks only while spark-submit runs. Somebody else may have killed it.
        waiting: Any = process if process.poll() is None else _Waiting()
        self._submit_sp = waiting
        try:
            super().on_kill()
        except Exception as error:  # no program `yarn`, no access to Kubernetes
            self.log.warning(
                "cannot end the Spark driver %s on the cluster, end it there: %s",
                self.driver_name,
                mask(str(error), self.secrets),
            )
        finally:
            self._submit_sp = process


class _Waiting:
    """Stands for a spark-submit that waits for its driver."""

    def poll(self) -> None:
        return None

    def kill(self) -> None:
        return None
