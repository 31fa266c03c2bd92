"""What the operators share that run a driver of Sluice with spark-submit, and wait for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.apache.spark.operators import spark_submit as provider
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from sluice.errors import DriverLost, DriverRefused, SluiceError
from sluice_airflow.airflow_api.airflow_names import AirflowException
from sluice_airflow.airflow_api.logs import MaskedLogs
from sluice_airflow.config.connection import CONF_PREFIX
from sluice_airflow.config.rendered import properties_given
from sluice_airflow.config.settings import Settings
from sluice_airflow.submit.process_group import GroupSubmitHook, spark_connection_of
from sluice_airflow.tier.errors import NOT_STARTED, why_no_outcome

if TYPE_CHECKING:
    from airflow.sdk import Connection, Context

    from sluice_airflow.config.connection import FlussConnection


class SparkDriverOperator(MaskedLogs, SparkSubmitOperator):
    """Submits one Spark application after the other, and kills the running one with the task.

    An operator calls :func:`submit_arguments` and :meth:`_prepare` in its ``__init__``.
    """

    usual_conf: ClassVar[Mapping[str, str]] = {}
    """Spark properties that all others override."""
    conf: dict[str, Any] | None
    _killed = False
    _is_stopping = False
    _is_small = False
    _secrets: Sequence[str] = ()
    _spark: Connection | None = None

    def _prepare(
        self, settings: Settings, datalake: Mapping[str, Any] | None, spark_conf: Any
    ) -> None:
        # Always start a new driver: one of an earlier try has another attempt id. Not an argument,
        # because providers before 6.2 do not accept it.
        self.durable = False
        self.fluss_conn_id = settings.connection
        self.datalake = datalake
        self.spark_conf = spark_conf
        self._given_conf: dict[str, Any] = dict(self.conf or {})
        self._secret_environment: dict[str, str] = {}

    def on_kill(self) -> None:
        # Not the provider's: on YARN, it asks an API that only some connections name. Without a
        # hook it would read the Spark connection, inside a signal handler.
        self._killed = True
        if self._hook is not None:
            self._hook.on_kill()

    def _get_hook(self) -> GroupSubmitHook:
        # The provider builds the hook from two dozen arguments. Replace only its class: the
        # provider's own takes yarn for a connection that it cannot read.
        usual = provider.SparkSubmitHook
        provider.SparkSubmitHook = partial(GroupSubmitHook, connection=self._spark_connection())
        try:
            hook: GroupSubmitHook = super()._get_hook()
        finally:
            provider.SparkSubmitHook = usual
        hook.secret_environment = self._secret_environment
        hook.secrets = self._secrets
        hook.is_small = self._is_small
        hook.is_cancelled = lambda: self._killed or self._is_stopping
        return hook

    def _spark_connection(self) -> Connection:
        """Reads the Spark connection once: what is checked is what is used.

        :raises ConfigurationError, ApiServerAway: see :func:`spark_connection_of`.
        """
        self._spark = self._spark or spark_connection_of(self._conn_id)
        return self._spark

    def _set_conf(self, connection: FlussConnection) -> None:
        """Sets the Spark properties. The lake options of the connection override all others."""
        given = properties_given(self.spark_conf)
        hidden = {f"{CONF_PREFIX}{name}" for name in connection.secret_settings()}
        own_conf = {name: value for name, value in given.items() if name not in hidden}
        self.conf = {**self.usual_conf, **self._given_conf, **own_conf, **connection.spark_conf()}
        self._secret_environment = connection.secret_environment()
        self._secrets = connection.secrets()

    def _run_driver(self, context: Context) -> SluiceError:
        """Runs spark-submit to its end. Returns the error of what has no outcome file then.

        No driver outlives this call, whatever ends it.

        :raises ApiServerAway: the Spark connection cannot be read.
        """
        self._spark_connection()  # here, where the provider takes no error of it for its own
        error: Exception | None = None
        try:
            super().execute(context)
        except AirflowException as failed:
            error = failed
        except OSError as failed:
            if self._hook is not None and self._hook.exit_code is not None:
                raise  # of a handler of the log: the program was started
            return DriverRefused(f"{NOT_STARTED}: {failed}")
        if self._killed:
            return DriverLost("Airflow stopped the task and its Spark driver")
        hook = self._hook
        assert isinstance(hook, GroupSubmitHook)
        if error is not None and hook.exit_code is None:
            return DriverRefused(f"{NOT_STARTED}: {error}")
        return why_no_outcome(hook, is_stopped=self._is_stopping)


def submit_arguments(settings: Settings, script: str) -> dict[str, Any]:
    """The arguments of Airflow's SparkSubmitOperator.

    :param script: path or URI of the driver's script.
    """
    return {
        "conn_id": settings.spark_connection,
        "application": script,
        "py_files": settings.py_files or None,
        "spark_binary": settings.spark_binary or None,
        "packages": None if settings.jars else settings.packages,
        "jars": settings.jars or None,
    }
