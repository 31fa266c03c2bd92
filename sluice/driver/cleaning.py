"""Clean-up on the real lake: what dead rounds left behind tables, and folders of ended runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, nullcontext, suppress

from sluice.checks.lake import check_lake
from sluice.client import connect
from sluice.clock import Clock, SystemClock
from sluice.config import Config
from sluice.driver.jvm import Jvm, check_jvm
from sluice.errors import DatabaseNotExist, LakeTableMissing, SluiceError
from sluice.lake.iceberg_catalog import IcebergLake
from sluice.model import Claim, TablePath
from sluice.rounds.clean import CleanReport, clean
from sluice.rounds.clean_runs import RunFolder, remove_run, run_folders


def clean_tables(
    config: Config,
    path: TablePath | None,
    *,
    apply: bool,
    older_than_ms: int = 0,
    clock: Clock | None = None,
    jvm: Jvm | None = None,
) -> Iterator[CleanReport]:
    """One report for each table, as it is done.

    :param path: this table only, without asking the cluster; None: every table that Fluss has,
        tiered now or not. One of those that is not in the lake is passed over, one that cannot be
        read has an ``error``.
    :param jvm: one that runs already; else one is started and ended here.
    :raises LakeTableMissing: the lake has no table ``path``.
    :raises LakeNotWritable: catalog or storage of ``path`` cannot be read.
    """
    check_lake(config)
    if jvm is None:
        check_jvm(config.tiering.jars)
    clock = clock or SystemClock()
    paths: Sequence[TablePath] = [path] if path is not None else list(_tables(config))
    with nullcontext(jvm) if jvm is not None else Jvm(config.tiering.jars) as java:
        lake = IcebergLake(java.gateway, config.datalake.iceberg, config.tiering)
        with closing(lake):
            for each in paths:
                try:
                    report = _clean(lake, each, apply, older_than_ms, clock)
                except SluiceError as error:
                    if path is not None:
                        raise
                    report = CleanReport(str(each), None, error=f"{type(error).__name__}: {error}")
                if report is not None:
                    yield report
                elif path is not None:
                    raise LakeTableMissing(
                        f"lake table {path} does not exist, so that nothing can be told of the"
                        " files of its rounds: check the name and the catalog settings",
                        table=str(path),
                    )


def _clean(
    lake: IcebergLake, path: TablePath, apply: bool, older_than_ms: int, clock: Clock
) -> CleanReport | None:
    table = lake.load(path)
    if table is None:
        return None
    now_ms = clock.now_ms()
    return clean(path, table, apply=apply, older_than_ms=older_than_ms, now_ms=now_ms)


def clean_runs(
    config: Config, work_uri: str, keep_ms: int, *, apply: bool, clock: Clock | None = None
) -> list[RunFolder]:
    """The runs below a work folder; with ``apply``, those that may go are removed.

    One that could not be removed has an ``error``; the others are done all the same.

    :raises OSError: the work folder cannot be listed.
    :raises SluiceError: the coordinator cannot be reached.
    """
    now_ms = (clock or SystemClock()).now_ms()
    with connect(config.client) as client:

        def is_held(claim: Claim) -> bool:
            return client.tiering.heartbeat([claim])[claim.table_id] is None

        runs = run_folders(work_uri, keep_ms, now_ms, is_held)
    if apply:
        for run in runs:
            if not run.reason:
                try:
                    remove_run(run)
                except OSError as error:
                    run.error = f"{type(error).__name__}: {error}"
    return runs


def _tables(config: Config) -> Iterator[TablePath]:
    """Every table of Fluss: one whose tiering is switched off now may have been tiered before."""
    with connect(config.client) as client:
        for database in sorted(client.admin.list_databases()):
            with suppress(DatabaseNotExist):  # dropped since it was listed
                for table in sorted(client.admin.list_tables(database)):
                    yield TablePath(database, table)
