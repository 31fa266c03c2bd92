"""What `sluice doctor` sees of a lake that it opens as a round does: by Iceberg's own client."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sluice.catalog_options import shown_kind
from sluice.checks.findings import Finding, line_of
from sluice.checks.lake import KEYS
from sluice.clock import Clock, SystemClock
from sluice.config import Config
from sluice.driver.jvm import Jvm
from sluice.driver.open_lake import open_lake
from sluice.errors import SluiceError
from sluice.lake.iceberg_catalog import IcebergLake
from sluice.lake.write_check import NothingWritten, StoreReport
from sluice.model import TableInfo, TablePath
from sluice.quantities import time_left
from sluice.storage import CHECKSUM_ADVICE, is_checksum_refusal

OPEN, WRITE = "open the lake", "write a table's files"
_NO_TABLE = "the lake has no table yet: a round writes a file before it creates the first one"


def opened_lake_findings(
    config: Config, jvm: Jvm, tiered: Mapping[TablePath, TableInfo], clock: Clock | None = None
) -> Iterator[Finding]:
    """Opens the catalog, and has both clients write to the store of a table.

    Two files are written, read and deleted in the data folder of one table: of one that the lake
    has, or of one that is staged but not created.

    :param tiered: the tables with tiering enabled.
    """
    what = OPEN
    try:
        with open_lake(config, jvm.gateway) as lake:
            table = _any_table(lake, tiered)
            kind = shown_kind(config.datalake.iceberg)
            yield Finding(OPEN, True, f"Iceberg's client has opened the catalog {kind}")
            what = WRITE
            yield from _store(lake, table, tiered, clock or SystemClock())
    except SluiceError as error:
        told = line_of(error, config.secrets())
        if is_checksum_refusal(error):
            told = f"{told}; {CHECKSUM_ADVICE}"
        yield Finding(what, False, told)


def _any_table(lake: IcebergLake, tiered: Mapping[TablePath, TableInfo]) -> TablePath | None:
    """One of the tables that the lake has; it also shows that the catalog answers."""
    if not tiered:
        lake.has(TablePath("sluice", "doctor"))
    return next((path for path in sorted(tiered, key=str) if lake.has(path)), None)


def _store(
    lake: IcebergLake,
    table: TablePath | None,
    tiered: Mapping[TablePath, TableInfo],
    clock: Clock,
) -> Iterator[Finding]:
    info = next(iter(tiered.values()), None)
    report = None if info is None else lake.check_store(table, info)
    if report is None:
        yield Finding(WRITE, None, _NO_TABLE)
        return
    if isinstance(report, NothingWritten):
        yield Finding(WRITE, None, report.why)
        return
    yield Finding(WRITE, True, _written(report))
    if report.expires_ms is not None:
        left = time_left(report.expires_ms - clock.now_ms())
        told = f"the catalog gives keys that end in {left}; rounds renew them"
        yield Finding(KEYS, True, told)


def _written(report: StoreReport) -> str:
    both = "Sluice and Iceberg's client have"
    if not report.kept:
        return f"{both} written, read and deleted a file in {report.folder}"
    names = ", ".join(uri.rpartition("/")[2] for uri in report.kept)
    return (
        f"{both} written and read files in {report.folder}; the store refused to delete {names}:"
        " what it refused stays, and belongs to no table"
    )
