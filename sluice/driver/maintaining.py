"""What `sluice maintain` does: it maintains lake tables beside their rounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from sluice.client import connect
from sluice.client.admin.missing_leaders import is_elected
from sluice.client.client import Client
from sluice.client.user_requests import compaction_is_open
from sluice.clock import SystemClock
from sluice.config import Config
from sluice.driver.conversions import ThreadConversions
from sluice.driver.lakes.jvm import Jvm
from sluice.driver.lakes.open_lake import checked_jvm, unusable, usable_lake
from sluice.driver.round_options import compaction_options
from sluice.errors import (
    FlussError,
    LakeTableMismatch,
    LakeTableMissing,
    StatusUnreadable,
    TableNotExist,
)
from sluice.lake.iceberg.lake import IcebergLake
from sluice.model import TableInfo, TablePath
from sluice.quantities import counted
from sluice.rounds.plan.dropped import is_unanswered
from sluice.rounds.plan.named_lake import lake_place
from sluice.rounds.plan.plan import check_lake_format
from sluice.rounds.upkeep.compaction import DEFAULT_COMPACTIONS
from sluice.rounds.upkeep.conversion import ConversionRunner
from sluice.rounds.upkeep.maintenance import MaintenanceOptions, MaintenanceReport, maintain
from sluice.rounds.values.expiry import AUTO_EXPIRE
from sluice.rounds.values.limits import RoundLimits
from sluice.rounds.values.reasons import reason_of


def maintain_tables(
    config: Config,
    path: TablePath | None,
    *,
    apply: bool,
    lists_folders: bool = True,
    jvm: Jvm | None = None,
) -> Iterator[MaintenanceReport]:
    """Maintains lake tables, and yields a report of each one as soon as it is done.

    Equality deletes are converted by ``tiering.parallelism`` threads. Each needs twice
    ``tiering.changes_memory_bytes``: for keys, and for positions.

    :param path: only this table; None: every table of the cluster that the lake has. The report of
        a table that cannot be read has an ``error``.
    :param apply: False: only reports what the tables need.
    :param lists_folders: whether such a report has the orphan files, for which folders are listed.
    :param jvm: a running JVM to use; None: this function starts one and ends it.
    :raises TableNotExist, DatabaseNotExist: the cluster has no table ``path``.
    :raises UnsupportedLakeOption: ``path`` is a table of another lake format.
    :raises LakeTableMissing: the lake has no table ``path``.
    :raises LakeNotWritable: catalog or storage of ``path`` cannot be read.
    :raises NetworkError, RequestTimeOut: the cluster does not answer; the other tables are left.
    """
    jvm_context = checked_jvm(config, jvm)
    run = ThreadConversions(config.tiering.parallelism)
    with connect(config.client) as client:
        if path is not None:
            # If it does not exist, or is one of another lake, this lake is not the problem.
            check_lake_format(client.admin.table_info(path))
        paths: Sequence[TablePath] = [path] if path is not None else client.admin.all_tables()
        with jvm_context as java, usable_lake(config, java.gateway) as lake:
            for place, each in enumerate(paths):
                try:
                    report = maintain_table(
                        config, client, lake, each, run, apply=apply, lists_folders=lists_folders
                    )
                except Exception as error:  # whatever it is, the other tables are maintained
                    if path is not None:
                        raise
                    if isinstance(error, TableNotExist):  # dropped since the tables were listed
                        continue
                    if (whole := unusable(config, error)) is not None:
                        raise whole from error
                    if isinstance(error, FlussError) and is_unanswered(error):
                        raise _ended(error, len(paths) - place, len(paths)) from error
                    report = MaintenanceReport(
                        str(each), error=str(reason_of(error, config.secrets()))
                    )
                if report is not None:
                    yield report
                elif path is not None:
                    where = lake_place(client.admin.table_info(path), lake)
                    raise LakeTableMissing(
                        f"table {path} does not exist in the lake {where}, or is not one of"
                        f" Fluss: `sluice status {path}` says whether it was ever tiered",
                        table=str(path),
                    )


def _ended(error: FlussError, left: int, count: int) -> FlussError:
    """The error of a cluster that does not answer: each other table would wait as long."""
    text = (
        f"{error.message}. The command did not get to {left} of {counted(count, 'table')}: call it"
        " again"
    )
    return type(error)(text, **error.details)


@dataclass(frozen=True, slots=True)
class _Requests:
    """The request for a compaction of one table."""

    client: Client
    info: TableInfo
    now_ms: int

    def is_open(self) -> bool:
        """Whether a request is open that the next round does not end as too old.

        :raises StatusUnreadable: on a cluster whose statuses are a table that cannot be read.
        """
        [status] = self.client.statuses.list(self.info.path, lags=False)
        if status.is_unread:
            raise StatusUnreadable(f"the status of table {self.info.path}: {status.note}")
        return compaction_is_open(status, self.info, self.now_ms)

    def make(self) -> None:
        self.client.statuses.request_compaction(self.info.path)


def maintain_table(
    config: Config,
    client: Client,
    lake: IcebergLake,
    path: TablePath,
    run: ConversionRunner,
    *,
    apply: bool,
    lists_folders: bool = True,
) -> MaintenanceReport | None:
    """Maintains one lake table; None: the lake has none of that name in Fluss's layout.

    :param run: converts the equality deletes of buckets. Each one that it converts at the same time
        needs twice ``tiering.changes_memory_bytes``.
    :param lists_folders: as of :func:`maintain_tables`.
    :raises LakeNotWritable: the table cannot be read.
    :raises LakeTableMismatch: a tiered table has another layout, or rows of another table id.
    """
    table = lake.load(path)
    if table is None:
        return None
    registered = client.tiering.lake_snapshot(path)
    info = client.admin.table_info(path)
    try:
        table.check_layout(info)
    except LakeTableMismatch:
        if info.datalake_enabled or registered is not None:
            raise
        return None  # a table of others that has the same name
    compacts = config.tiering.compaction_bytes > 0 and info.datalake_enabled
    now_ms = SystemClock().now_ms()
    options = MaintenanceOptions(
        config.tiering.changes_memory_bytes,
        now_ms,
        RoundLimits(config.tiering.max_round_ms).round_ms(info),
        None if registered is None else registered.snapshot_id,
        requests=_Requests(client, info, now_ms) if compacts else None,
        run=run,
        expires=info.descriptor.properties.get(AUTO_EXPIRE, "").lower() != "false",
        compaction=compaction_options(config) if compacts else DEFAULT_COMPACTIONS,
        lists_folders=lists_folders,
        secrets=tuple(config.secrets()),
    )
    report = maintain(path, table, options, apply=apply)
    if info.datalake_enabled:
        may_be_missed = registered is None and is_elected(info.created_ms, now_ms)
        with suppress(FlussError):  # the report is about the lake all the same
            found = client.admin.without_leaders([info], may_be_missed=may_be_missed)
            report.no_leader = found.get(info.table_id, "")
    return report
