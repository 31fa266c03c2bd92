"""The health of lake tables, as `sluice doctor` shows it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from sluice.catalog_options import name_of
from sluice.checks.findings import Finding
from sluice.client import Client, connect
from sluice.clock import Clock, SystemClock
from sluice.config import Config
from sluice.driver.lakes.jvm import Jvm
from sluice.driver.maintaining import maintain_tables
from sluice.errors import FlussError, SluiceError, UnsupportedLakeOption
from sluice.masking import mask, reason_text
from sluice.model import TableInfo, TablePath, TieringStatus
from sluice.quantities import counted
from sluice.rounds.plan.bucket_counts import check_partitions
from sluice.rounds.plan.named_lake import other_lake
from sluice.rounds.plan.plan import check_options
from sluice.rounds.upkeep.health import SMALL_BYTES
from sluice.rounds.upkeep.maintenance import NOT_REWRITTEN, MaintenanceReport

DIFFERS, FAILED, NEEDS_WORK = "differs", "Failed", "needs work"
NOT_HERE = "not in this lake"
SECONDS_MAX = 60.0
"""Tables that were not looked at after this time are left out."""


def table_findings(
    config: Config, jvm: Jvm | None = None, clock: Clock | None = None
) -> Iterator[Finding]:
    """One finding for each table that the lake has, or that Fluss has registered in another one.

    Tables that every round refuses are among them, if the lake has them or not.
    """
    clock = clock or SystemClock()
    until_s = clock.monotonic_s() + SECONDS_MAX
    try:
        with connect(config.client) as client:
            tiered = client.admin.known_infos(client.statuses.lake_tables())
            refused = [*_refused(client, tiered.values())]
        yield from _other_lake(config, tiered.values())
        yield from refused
        if len(refused) == len(tiered):
            return
        left = dict(tiered)
        for report in maintain_tables(config, None, apply=False, lists_folders=False, jvm=jvm):
            left.pop(TablePath.parse(report.table), None)
            yield _finding(report)
            if clock.monotonic_s() >= until_s:
                why = f"not looked at in {SECONDS_MAX:g} s: run `sluice maintain`"
                yield Finding("other tables", None, why)
                return
        yield from _elsewhere(config, left.values())
    except Exception as error:  # whatever it is, the other findings count
        said = reason_text(f"{type(error).__name__}: {error}", config.secrets())
        yield Finding("tables", False, said)


def failed_rounds(config: Config) -> list[Finding]:
    """One finding for each table that `sluice status` shows as failing, with its last error."""
    try:
        with connect(config.client) as client:
            statuses = client.statuses.list(lags=False)
    except SluiceError as error:
        said = reason_text(f"{type(error).__name__}: {error}", config.secrets())
        return [Finding("tiering states", False, said)]
    found = [_failed_round(one) for one in statuses if one.is_failing]
    found += [
        Finding(f"table {one.path}", False, str(one.note))
        for one in statuses
        if one.has_no_leader and not one.is_failing
    ]
    if unread := sorted({str(one.note) for one in statuses if one.is_unread}):
        found.append(Finding("tiering states", False, "; ".join(unread)))
    return found


def _failed_round(status: TieringStatus) -> Finding:
    failures = f"{counted(status.failures, 'failure')}, " if status.failures else ""
    said = "no reason reported"
    if status.last_error is not None:
        said = f"last error: {status.last_error}"
    return Finding(f"table {status.path}", False, f"{failures}{said}", result=FAILED)


def with_failures(health: Iterable[Finding], failed: Sequence[Finding]) -> Iterator[Finding]:
    """The findings of tables; one for a table whose rounds fail says so first."""
    left = {one.what: one for one in failed}
    for one in health:
        failure = left.pop(one.what, None)
        if failure is None:
            yield one
        elif one.seen in failure.seen:  # the round failed as the check did
            yield failure
        else:
            yield replace(failure, seen=f"{failure.seen}. {_in_the_lake(one)}")
    yield from left.values()


def _in_the_lake(health: Finding) -> str:
    return f"It has {health.seen}" if health.ok and not health.result else health.seen


def _other_lake(config: Config, tiered: Iterable[TableInfo]) -> Iterator[Finding]:
    """The cluster's name of the lake, if it is another one; it is the same for all tables."""
    for info in tiered:
        if other := other_lake(info, config.datalake.iceberg):
            why = f"{other}. That may be another name of the same lake"
            yield Finding("lake of the cluster", True, why, result=DIFFERS)
            return


def _elsewhere(config: Config, absent: Iterable[TableInfo]) -> Iterator[Finding]:
    """The tables that Fluss has registered, though the lake does not have them."""
    lake = config.datalake.iceberg
    where = lake.get("warehouse") or f"catalog {name_of(lake)}"
    with connect(config.client) as client:
        for info in absent:
            registered = client.admin.lake_snapshot(info.path)
            if registered is not None:
                seen = (
                    f"Fluss has registered lake snapshot {registered.snapshot_id}, but the lake"
                    f" {where} has no such table: correct --warehouse or datalake.iceberg"
                )
                yield Finding(f"table {info.path}", False, mask(seen), result=NOT_HERE)


def _refused(client: Client, tiered: Iterable[TableInfo]) -> Iterator[Finding]:
    """The tables with a lake format, an option or bucket counts that Sluice does not support."""
    for info in tiered:
        try:
            check_options(info)
            with suppress(FlussError):  # dropped in the meantime
                check_partitions(info, client.tiering)
        except UnsupportedLakeOption as error:
            yield Finding(f"table {info.path}", False, error.message)


def _finding(report: MaintenanceReport) -> Finding:
    what = f"table {report.table}"
    if report.error:
        return Finding(what, False, report.error)
    needs = "; ".join(report.before.needs(dead_of_bytes=SMALL_BYTES))
    if not needs:
        return Finding(what, True, str(report.before))
    seen = ". ".join(filter(None, [needs, f"It has {report.before}", _help(report)]))
    return Finding(what, True, seen, result=NEEDS_WORK)


def _help(report: MaintenanceReport) -> str:
    """What to do about the needs of a table, and what could not be found out."""
    said = []
    if report.compaction_is_open:
        said.append("A compaction is requested: the table's next round makes it")
    elif report.before.is_scattered and not report.is_rewritten:
        said.append(NOT_REWRITTEN.capitalize())
    if report.before.has_work or report.compaction_due:
        command = f"`sluice maintain {report.table} --yes`"
        said.append(f"{command}, with the same --config or --warehouse, helps")
    said += report.notes
    return ". ".join(said)
