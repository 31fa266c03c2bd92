"""Runs spark-submit, and ends what it has started on every way out of the task."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.hooks import spark_submit as provider
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.security.kerberos import renew_from_kt

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
from sluice.errors import ConfigurationError
from sluice.masking import line
from sluice_airflow.airflow_api.airflow_names import AirflowNotFoundException, conf
from sluice_airflow.airflow_api.api_server import connection_of
from sluice_airflow.airflow_api.logs import MaskedLogs
from sluice_airflow.submit.driver_end import DriverEnd
from sluice_airflow.submit.oom_kills import OomKills
from sluice_airflow.submit.output import LeveledLog
from sluice_airflow.submit.pipe import NOT_STARTED, Leash, end_processes, output_lines

if TYPE_CHECKING:
    from airflow.sdk import Connection

_ON_CLUSTER = {
    "k8s": {"spark.kubernetes.submission.waitAppCompletion": "true"},
    "yarn": {"spark.yarn.submit.waitAppCompletion": "true", "spark.yarn.maxAppAttempts": "1"},
}
"""By the start of the master: properties of a driver on the cluster. spark-submit waits for it: its
end is that of the tier task. YARN starts no second one: both would be the same try of a table, and
could give their files the same names."""
_SETTINGS_NAMES = (f".{SETTINGS_VARIABLE}", f".{SETTINGS_FILE_VARIABLE}")
"""How the names of Spark properties end that give the settings to a driver on the cluster."""
_HAS_ENDED = re.compile(r"\(state: (?:FINISHED|FAILED|KILLED)\)|\bphase: (?:Succeeded|Failed)\b")
"""What spark-submit prints of a driver on YARN or Kubernetes that has ended. The exit code of a
container proves less: it may be another container of the pod."""
_CONNECT_S, _ANSWER_S = 5, 30
"""How long the cluster may take when it is asked to end a driver. `yarn` itself tries for 15
minutes to reach a ResourceManager that is away."""
_YARN_VARIABLES = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")


def spark_connection_of(conn_id: str) -> Connection:
    """Returns a Spark connection. One that is not defined stands for yarn, as in the provider.

    :raises ConfigurationError: it is not defined, and no variable says where yarn is.
    :raises ApiServerAway: nobody can tell. The provider would take yarn.
    """
    from airflow.sdk import Connection

    try:
        return connection_of(conn_id)
    except AirflowNotFoundException as error:
        if any(os.environ.get(variable) for variable in _YARN_VARIABLES):
            return Connection(conn_id=conn_id, conn_type="spark", host="yarn")
        raise ConfigurationError(
            f"connection {conn_id!r} does not exist: run `airflow connections add {conn_id}"
            " --conn-type spark --conn-host 'local[2]'` (or another Spark master), or correct"
            " option spark_connection of section sluice in airflow.cfg or argument"
            " spark_conn_id of the DAG file"
        ) from error


class GroupSubmitHook(MaskedLogs, SparkSubmitHook):
    """Reads spark-submit's output, and ends it with all that it has started, when the task ends.

    The provider builds the command, and finds the driver on a cluster in the output.

    :param connection: the Spark connection. None: it is read.
    """

    is_cancelled: Callable[[], bool] = staticmethod(lambda: False)
    """Whether the driver must stop. Called again right after spark-submit started."""

    secret_environment: Mapping[str, str] = MappingProxyType({})
    """Environment variables of spark-submit that must not appear on a command line."""

    secrets: Sequence[str] = ()
    """Values to mask in the output of spark-submit."""

    is_small: bool = False
    """Whether the application ends so soon that nobody opens Spark's UI."""

    _conf: dict[str, Any]
    _env: dict[str, Any] | None
    _jars: str | None
    _packages: str | None
    ending = DriverEnd()
    """Chooses from the output what explains its end."""
    oom_kills: OomKills | None = None
    """Counts what the kernel has ended since the start. None: there was none."""
    _leash: Leash | None = None
    _may_run = False
    """Whether a driver may run on the cluster that the cluster was not yet asked to end."""
    _has_ended = False
    """Whether all was ended: later, its process ids may be those of others."""

    def __init__(
        self, *, conn_id: str, connection: Connection | None = None, **kwargs: Any
    ) -> None:
        self._given = connection or spark_connection_of(conn_id)
        super().__init__(conn_id=conn_id, **kwargs)

    def get_connection(self, conn_id: str) -> Connection:  # noqa: ARG002
        return self._given

    def submit(self, application: str = "", **kwargs: Any) -> str | None:
        """Runs spark-submit to its end. None of its processes outlives this call, or the task.

        :raises OSError: the program does not exist.
        """
        if self._program is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.binary)
        self.oom_kills = OomKills()
        self._may_run = self.is_on_cluster
        self._has_ended = False
        with Leash() as self._leash:
            try:
                return super().submit(application, **self._leash.words, **kwargs)
            finally:
                self._end()
                self._has_ended = True

    def _build_spark_submit_command(self, application: str) -> list[str]:
        self._name_iceberg()
        submit, environment, asked = self._program, self._submit_environment, self._application
        added = {
            **start_here(asked, self._jars or "", submit, environment),
            **log_conf(asked, submit, environment),
            **redaction_conf(asked, submit, environment),
            **self._cluster_conf(),
        }
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
        elsewhere = names_elsewhere(self._application, self._program, self._submit_environment)
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
        submit, environment = self._program, self._submit_environment
        runtime, copy = installed_iceberg(submit), None
        if not self._jars and driver_is_here(self._application, submit, environment):
            copy = kept_copy(runtime)
        if copy is None:
            self._packages = runtime.coordinates
        else:
            self._jars, self._packages = str(copy), None

    @property
    def _program(self) -> Path | None:
        return spark_submit(self.binary)

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
        found = self._program
        if found is None or shutil.which(self.binary):
            return {}
        return {"PATH": os.pathsep.join([str(found.parent), os.environ.get("PATH", "")])}

    def _get_spark_binary_path(self) -> list[str]:
        return [str(self._program or self.binary)]

    @property
    def exit_code(self) -> int | None:
        """Exit code of spark-submit, negative for a signal; None if it did not start."""
        return None if self._submit_sp is None else self._submit_sp.poll()

    @property
    def is_refused(self) -> bool:
        """Whether this machine could not run the program spark-submit."""
        return self.exit_code in (126, 127) and str(self.ending).startswith(NOT_STARTED)

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
        return str(self._mask_cmd([str(self.ending)]))

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
        self.ending = ending = DriverEnd()
        for each in lines:
            shown = line(each, self.secrets)
            ending.add(shown)
            if self.is_on_cluster and _HAS_ENDED.search(each):
                self._may_run = False
            yield shown

    def on_kill(self) -> None:
        if not self._has_ended:
            self._end()
            super().on_kill()  # runs the commands that the user gave for the end

    def _end(self) -> None:
        """Ends all processes of spark-submit, and the driver on the cluster that it waits for."""
        process = self._submit_sp
        if process is None:
            return
        if self._may_run:  # also if spark-submit has ended: it may have lost the cluster only
            process.kill()
            if self.driver_name:
                self._may_run = False
                self._end_on_cluster()
        end_processes(process)

    def _end_on_cluster(self) -> None:
        """Asks Kubernetes or YARN to end the driver. One that has ended is left as it is."""
        try:
            if self._kubernetes_driver_pod:
                self._delete_driver_pod()
            else:
                self._kill_application()
        except Exception as error:  # no program `yarn`, no access to Kubernetes
            self.log.warning(
                "cannot end the Spark driver %s on the cluster, end it there: %s",
                self.driver_name,
                line(str(error), self.secrets),
            )

    def _delete_driver_pod(self) -> None:
        """Does what the provider does, which sets no time limit."""
        client = provider.kube_client.get_kube_client()
        try:
            client.delete_namespaced_pod(
                self._kubernetes_driver_pod,
                self._connection["namespace"],
                _request_timeout=(_CONNECT_S, _ANSWER_S),
            )
        except provider.kube_client.ApiException as error:
            if getattr(error, "status", None) != 404:
                raise
            self.log.info("the driver pod %s is gone", self._kubernetes_driver_pod)
        else:
            self.log.info("deleted the driver pod %s", self._kubernetes_driver_pod)

    def _kill_application(self) -> None:
        """Does what the provider does, which sets no time limit and reads no exit code."""
        variables = {**os.environ, **(self._env or {})}
        principal, keytab = self._connection["principal"], self._connection["keytab"]
        if principal is not None and keytab is not None:
            renew_from_kt(principal, keytab, exit_on_fail=False)
            variables["KRB5CCNAME"] = conf.get_mandatory_value("kerberos", "ccache")
        done = subprocess.run(
            ["yarn", "application", "-kill", str(self._yarn_application_id)],
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_ANSWER_S,
            check=False,
        )
        if done.returncode:
            said = done.stdout.decode(errors="replace").strip().rpartition("\n")[2]
            raise OSError(f"`yarn application -kill` has exit code {done.returncode}: {said}")
        self.log.info("YARN ended the application %s", self._yarn_application_id)
