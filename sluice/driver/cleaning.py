"""What `sluice clean` does: it deletes orphan files and the folders of finished runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sluice.client import connect
from sluice.clock import SystemClock
from sluice.config import Config
from sluice.driver.lakes.jvm import Jvm
from sluice.driver.lakes.open_lake import checked_jvm, unusable, usable_lake
from sluice.errors import LakeTableMissing, SluiceError
from sluice.lake.iceberg.lake import IcebergLake
from sluice.model import Claim, TablePath
from sluice.rounds.records.finished_runs import RunFolder, remove_run, run_folders
from sluice.rounds.upkeep.orphans import CleanReport, clean


def clean_tables(
    config: Config,
    path: TablePath | None,
    *,
    apply: bool,
    older_than_ms: int = 0,
    jvm: Jvm | None = None,
) -> Iterator[CleanReport]:
    """Cleans up lake tables and yields a report for each one.

    :param path: only this table, without a request to the cluster. None: every table in Fluss, even
        if it is not tiered now. Tables without a lake table are skipped; the report of a table that
        cannot be read has an ``error``.
    :param jvm: a running JVM to use; None: this function starts one and ends it.
    :raises LakeTableMissing: the lake has no table ``path``.
    :raises LakeNotWritable: catalog or storage of ``path`` cannot be read.
    """
    jvm_context = checked_jvm(config, jvm)
    paths: Sequence[TablePath] = [path] if path is not None else _tables(config)
    with jvm_context as java, usable_lake(config, java.gateway) as lake:
        for each in paths:
            try:
                report = _clean(lake, each, apply, older_than_ms)
            except SluiceError as error:
                if path is not None:
                    raise
                if (whole := unusable(config, error)) is not None:
                    raise whole from error
                report = CleanReport(str(each), None, error=f"{type(error).__name__}: {error}")
            if report is not None:
                yield report
            elif path is not None:
                raise LakeTableMissing(
                    f"lake table {path} does not exist, so `sluice clean` cannot find orphan"
                    " files: check the table's name and the catalog settings",
                    table=str(path),
                )


def _clean(
    lake: IcebergLake, path: TablePath, apply: bool, older_than_ms: int
) -> CleanReport | None:
    table = lake.load(path)
    if table is None:
        return None
    now_ms = SystemClock().now_ms()
    return clean(
        path,
        table,
        apply=apply,
        older_than_ms=older_than_ms,
        now_ms=now_ms,
        keeps_files=table.keeps_files(),
    )


def clean_runs(config: Config, work_uri: str, keep_ms: int, *, apply: bool) -> list[RunFolder]:
    """Lists the runs in a work folder; with ``apply``, deletes the finished ones.

    A run that could not be deleted has an ``error``; the others are still deleted.

    :raises OSError: the work folder cannot be listed.
    :raises SluiceError: the coordinator cannot be reached.
    """
    now_ms = SystemClock().now_ms()
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


def _tables(config: Config) -> list[TablePath]:
    """All tables in Fluss: a table that is not tiered now may have been tiered before."""
    with connect(config.client) as client:
        return client.admin.all_tables()
