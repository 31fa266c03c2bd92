"""What `sluice doctor` sees of a lake that it opens as a round does: by Iceberg's own client."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sluice.catalog_options import shown_kind
from sluice.checks.findings import Finding, line_of
from sluice.checks.lake import KEYS
from sluice.clock import Clock, SystemClock
from sluice.config import Config
from sluice.driver.lakes.jvm import Jvm
from sluice.driver.lakes.open_lake import open_lake
from sluice.errors import SluiceError
from sluice.lake.iceberg.catalog.write_check import NothingWritten, StoreReport
from sluice.lake.iceberg.lake import IcebergLake
from sluice.model import TableInfo, TablePath
from sluice.quantities import time_left
from sluice.storage import CHECKSUM_ADVICE, is_checksum_refusal

OPEN, WRITE = "open the lake", "write a table's files"
_NOT_TIERED = "no table has tiering enabled, so there is none whose files could be written"
_TABLES_UNKNOWN = "the cluster does not tell which tables have tiering enabled"
_TABLES_MAX = 20
"""Tables that the catalog is asked for, one request each, to find one that the lake has."""


def opened_lake_findings(
    config: Config,
    jvm: Jvm,
    tiered: Mapping[TablePath, TableInfo] | None,
    clock: Clock | None = None,
) -> Iterator[Finding]:
    """Opens the catalog, and has both clients write to the store of a table.

    Two files are written, read and deleted in the data folder of one table: of one that the lake
    has, or of one that is staged but not created.

    :param tiered: the tables with tiering enabled; None: they are not known.
    """
    what = OPEN
    try:
        with open_lake(config, jvm.gateway) as lake:
            table = _any_table(lake, tiered or {})
            kind = shown_kind(config.datalake.iceberg)
            yield Finding(OPEN, True, f"Iceberg's client has opened the catalog {kind}")
            what = WRITE
            if tiered:
                yield from _store(lake, table, tiered, clock or SystemClock())
            else:
                yield Finding(WRITE, None, _TABLES_UNKNOWN if tiered is None else _NOT_TIERED)
    except SluiceError as error:
        told = line_of(error, config.secrets())
        if is_checksum_refusal(error):
            told = f"{told}; {CHECKSUM_ADVICE}"
        yield Finding(what, False, told)


def _any_table(lake: IcebergLake, tiered: Mapping[TablePath, TableInfo]) -> TablePath | None:
    """One of the tables asked for that the lake has; it also shows that the catalog answers."""
    if not tiered:
        lake.has(TablePath("sluice", "doctor"))
    return next((path for path in _asked(tiered) if lake.has(path)), None)


def _asked(tiered: Mapping[TablePath, TableInfo]) -> list[TablePath]:
    """The tables that the catalog is asked for."""
    return sorted(tiered, key=str)[:_TABLES_MAX]


def _store(
    lake: IcebergLake,
    table: TablePath | None,
    tiered: Mapping[TablePath, TableInfo],
    clock: Clock,
) -> Iterator[Finding]:
    report = lake.check_store(table, tiered[table or _asked(tiered)[0]])
    if isinstance(report, NothingWritten):
        has_none = "no table yet"
        if len(tiered) > _TABLES_MAX:
            has_none = f"none of the first {_TABLES_MAX} of {len(tiered):,} tables"
        yield Finding(WRITE, None, f"the lake has {has_none}; {report.why}")
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
