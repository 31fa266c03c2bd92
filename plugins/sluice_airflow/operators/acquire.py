"""Claims the tables that a run tiers, leases their KV snapshots, and packs them."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sluice.errors import SluiceError
from sluice.masking import mask
from sluice.rounds.records.run_names import RunName
from sluice_airflow.airflow_api.airflow_names import AirflowException, AirflowFailException, conf
from sluice_airflow.airflow_api.api_server import RetriedIfAway, fails_at_once
from sluice_airflow.airflow_api.task_states import mapped_states_of
from sluice_airflow.claims.packs import Pack, PackLimits
from sluice_airflow.claims.task_runs import is_manual
from sluice_airflow.config.params import ALL_TABLES, TABLES_MAX
from sluice_airflow.config.rendered import count_given, flag, properties_given, tables_given
from sluice_airflow.config.settings import Settings, connection_id, load_settings, slots_at_once
from sluice_airflow.hooks.fluss import FlussHook

if TYPE_CHECKING:
    from airflow.sdk import Context

    from sluice_airflow.acquire.requests import Acquired, Request

ERROR = "error"
"""XCom key: why the task that claims has failed."""
ERROR_MAX = 1000
ACCOUNT = "account"
"""XCom key. Of the task that claims: the account of the tables that no tier task has. Of the last
task: what became of each table that the run was asked for."""


class SluiceAcquireOperator(RetriedIfAway):
    """Checks what the run needs, claims tables with new rows, and packs them for Spark.

    It leases the newest KV snapshots of tables with a primary key, and writes a plan for each
    table. A table that is due but has no new rows is reported as finished at once.

    Returns the packs, a list: expand :class:`SluiceTierOperator` over it by ``entry``. The XCom
    ``account`` has the tables that are in no pack, with the reasons.

    Everything after ``spark_conn_id`` has the name and meaning of an option of the section [sluice]
    of Airflow's configuration. None: that option counts.

    :param lease_id: what :class:`SluiceOpenOperator` returned. (templated)
    :param tables: names or patterns of tables. (templated)
    :param max_tables: the run claims no more tables than this. (templated)
    :param force: tier the tables even if they are not due. (templated)
    :param wait: tier the tables up to their present ends, or fail. (templated)
    :param dry_run: claim nothing; the account says what would be tiered. (templated)
    :param spark_conf: Spark properties of the run, which the checks consider. (templated)
    :param fluss_conn_id: connection of type fluss; None: as the section [sluice] says.
    :param datalake: options of the lake that override those of the connection.
    :param tier_task_id: id of the mapped task that tiers the packs.
    :param conf_keys: the keys that the conf of a run may have. None: any.
    :param spark_conn_id: connection of type spark. None: option ``spark_connection``.
    """

    template_fields: Sequence[str] = (
        "tables",
        "max_tables",
        "force",
        "wait",
        "dry_run",
        "spark_conf",
        "lease_id",
    )

    def __init__(
        self,
        *,
        lease_id: Any,
        tables: Any = ALL_TABLES,
        max_tables: Any = TABLES_MAX,
        force: Any = False,
        wait: Any = False,
        dry_run: Any = False,
        spark_conf: Any = None,
        fluss_conn_id: str | None = None,
        datalake: Mapping[str, Any] | None = None,
        tier_task_id: str = "tier",
        conf_keys: Collection[str] | None = None,
        spark_conn_id: str | None = None,
        spark_binary: str | None = None,
        application: str | None = None,
        py_files: str | None = None,
        packages: str | None = None,
        jars: str | None = None,
        pool_slots: int | None = None,
        tables_per_application: int | None = None,
        rows_per_application: int | None = None,
        heartbeat_interval_seconds: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.lease_id = lease_id
        self.tables = tables
        self.max_tables = max_tables
        self.force = force
        self.wait = wait
        self.dry_run = dry_run
        self.spark_conf = spark_conf
        self.fluss_conn_id = connection_id(fluss_conn_id)
        self.datalake = datalake
        self.tier_task_id = tier_task_id
        self.conf_keys = conf_keys
        self.settings: Settings = load_settings(
            spark_connection=spark_conn_id,
            spark_binary=spark_binary,
            application=application,
            py_files=py_files,
            packages=packages,
            jars=jars,
            pool_slots=pool_slots,
            tables_per_application=tables_per_application,
            rows_per_application=rows_per_application,
            heartbeat_interval_seconds=heartbeat_interval_seconds,
        )

    @classmethod
    def get_serialized_fields(cls) -> frozenset[str]:
        """Also what the page needs to know of a DAG, which it reads from Airflow's database."""
        return super().get_serialized_fields() | {"fluss_conn_id", "tier_task_id", "conf_keys"}

    @fails_at_once
    def execute(self, context: Context) -> list[Pack]:
        """Returns the packs.

        :raises AirflowFailException: what the run needs is missing or refused, or a name matches
            no lake table. A retry cannot succeed.
        """
        try:
            return self._acquire(context)
        except SluiceError as error:
            why = f"{type(error).__name__}: {error}"
            self._push_error(context, why)
            if error.retryable:
                raise
            raise AirflowFailException(why) from error
        except AirflowException as error:
            self._push_error(context, str(error))
            raise

    def _push_error(self, context: Context, why: str) -> None:
        """Leaves the reason for drop_lease, whose error says why no table was tiered."""
        context["ti"].xcom_push(key=ERROR, value=mask(why)[:ERROR_MAX])

    def _acquire(self, context: Context) -> list[Pack]:
        # Imported here because they load pyarrow, which the DAG file itself does not need.
        from sluice_airflow.acquire.acquire import check_conf_keys
        from sluice_airflow.config import preflight
        from sluice_airflow.outcomes.failed_start import FailedStarts
        from sluice_airflow.submit.submission import submission_of

        ti = context["ti"]
        if self.conf_keys is not None:
            check_conf_keys(context["dag_run"].conf, self.conf_keys)
        connection = FlussHook(self.fluss_conn_id, self.datalake).config()
        submission = submission_of(self.settings, properties_given(self.spark_conf))
        if obstacle := preflight.find_obstacle(connection, submission):
            kind = AirflowException if obstacle.may_pass else AirflowFailException
            raise kind(obstacle.reason)
        work_uri = connection.require_work_uri()
        request = self._request(context, work_uri)
        is_cleared = ti.max_tries > self.retries  # Airflow adds the tries before
        if not (request.dry_run or is_manual(context) or is_cleared):
            last = FailedStarts(work_uri, ti.dag_id, self.tier_task_id).last()
            if last is not None:
                last.check(int(time.time() * 1000))
        found = self._claim(request, ti)
        # Scheduled runs leave no name of an idle table: they would fill Airflow's database.
        told = found.to_xcom(names=is_manual(context))
        ti.xcom_push(key=ACCOUNT, value={**told, "again": ti.try_number > 1})
        return found.packs

    def _request(self, context: Context, work_uri: str) -> Request:
        from sluice_airflow.acquire.earlier_packs import NOTHING_EARLIER, Earlier
        from sluice_airflow.acquire.requests import Request

        ti = context["ti"]
        earlier = NOTHING_EARLIER
        if ti.try_number > 1:  # a retry, or a user cleared this task, alone or with tier tasks
            states = mapped_states_of(ti, self.tier_task_id)
            earlier = Earlier.read(work_uri, self.lease_id, states)
        # Only names in the conf of a run are those that a person asked for now.
        is_named = self.conf_keys is not None and "tables" in (context["dag_run"].conf or {})
        return Request(
            tables_given(self.tables),
            count_given("max_tables", self.max_tables),
            force=flag("force", self.force),
            wait=flag("wait", self.wait),
            dry_run=flag("dry_run", self.dry_run),
            is_manual=is_manual(context) and is_named,
            run=RunName(ti.dag_id, str(context["run_id"])),
            earlier=earlier,
        )

    def _claim(self, request: Request, ti: Any) -> Acquired:
        from sluice_airflow.acquire.requests import acquire_request

        settings = self.settings
        states = ["running", "queued"]
        busy = ti.get_ti_count(dag_id=ti.dag_id, task_ids=[self.tier_task_id], states=states)
        hook = FlussHook(self.fluss_conn_id, self.datalake)
        with hook.get_client() as client:
            return acquire_request(
                client,
                hook.config(),
                self.lease_id,
                request,
                PackLimits(settings.tables_per_application, settings.rows_per_application),
                max(1, slots_at_once(settings) - busy),
                settings.heartbeat_interval_seconds,
                tasks_max=conf.getint("core", "max_map_length"),
            )
