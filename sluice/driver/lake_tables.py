"""What `sluice create-lake-table` does: it makes lake tables before any round.

A coordinator of Fluss makes the lake table at CREATE TABLE, and Fluss's own tiering service relies
on it. The embedded server does not reach the lake; rounds of Sluice make what is missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sluice.catalog_options import LAYOUT
from sluice.client import connect
from sluice.client.client import Client
from sluice.config import Config
from sluice.driver.lakes.jvm import Jvm
from sluice.driver.lakes.open_lake import checked_jvm, unusable, usable_lake
from sluice.errors import FlussError, TableNotExist, UnsupportedLakeOption
from sluice.iceberg_rules.layout import PartFields, new_layout
from sluice.iceberg_rules.matched_schema import parts_text
from sluice.iceberg_rules.names_and_types import cautions
from sluice.iceberg_rules.own_parts import own_field
from sluice.lake.iceberg.lake import IcebergLake
from sluice.model import TableInfo, TablePath
from sluice.rounds.commit.recover import LakeStatus, compare, rolled_back, table_missing
from sluice.rounds.plan.bucket_counts import check_partitions
from sluice.rounds.plan.dropped import is_unanswered
from sluice.rounds.plan.named_lake import lake_place, other_lake_note
from sluice.rounds.values.reasons import reason_of

CREATED, EXISTS, FAILED = "created", "exists", "failed"
NOT_REGISTERED = "a round died before it registered its newest snapshot; the next round does that"


@dataclass(frozen=True, slots=True)
class LakeTableReport:
    """What became of one table."""

    table: str
    outcome: str
    """``created``, ``exists`` or ``failed``."""
    location: str = ""
    """Of the lake table; empty if it failed."""
    layout: str = ""
    """``clean`` or ``legacy``: whether it has Fluss's system columns. Empty if it failed."""
    is_tiered: bool = True
    """Whether the Fluss table has ``table.datalake.enabled``."""
    note: str = ""
    error: str = ""
    """Why it failed, without secrets."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def create_lake_tables(
    config: Config,
    path: TablePath | None,
    jvm: Jvm | None = None,
    partition_by: Sequence[str] = (),
) -> Iterator[LakeTableReport]:
    """Makes the lake tables that are missing, and yields a report of each as soon as it is done.

    An existing one is checked, and gets the columns that Fluss has added. A second call changes
    nothing, so a killed call is repeated.

    :param path: this table, tiered or not; None: every tiered table. Then a table that fails has a
        report with an ``error``.
    :param jvm: a running JVM to use; None: this function starts one and ends it.
    :param partition_by: partition fields of the user's own, of a table ``path``.
    :raises TableNotExist, DatabaseNotExist: the cluster has no table ``path``.
    :raises UnsupportedLakeOption: Iceberg cannot store table ``path``.
    :raises ConfigurationError: table ``path`` cannot have the fields ``partition_by``.
    :raises LakeTableMismatch, LakeRolledBack, LakeTableMissing, LakeOffsetsLost: its lake table is
        not one that a round could continue.
    :raises LakeNotWritable: catalog or storage cannot be used.
    :raises NetworkError, RequestTimeOut: the cluster does not answer.
    """
    jvm_context = checked_jvm(config, jvm)
    with connect(config.client) as client:
        if path is not None:
            info = client.admin.table_info(path)
            for text in partition_by:  # what is wrong without a lake needs no JVM
                own_field(info, text)
            paths = [path]
        else:
            known = client.admin.known_infos(client.admin.all_tables())
            paths = sorted(table for table, info in known.items() if info.datalake_enabled)
        if not paths:
            return
        with jvm_context as java, usable_lake(config, java.gateway) as lake:
            for each in paths:
                try:
                    yield _create_lake_table(client, lake, each, partition_by)
                except Exception as error:  # whatever it is, the other tables are made
                    if path is not None or (isinstance(error, FlussError) and is_unanswered(error)):
                        raise
                    if isinstance(error, TableNotExist):  # dropped since the tables were listed
                        continue
                    if (whole := unusable(config, error)) is not None:
                        raise whole from error
                    reason = str(reason_of(error, config.secrets()))
                    yield LakeTableReport(str(each), FAILED, error=reason)


def _create_lake_table(
    client: Client, lake: IcebergLake, path: TablePath, partition_by: Sequence[str]
) -> LakeTableReport:
    """As a round begins: it makes a lake table only if Fluss has registered no snapshot of one."""
    info = client.admin.table_info(path)
    if info.datalake_format != "iceberg":
        raise UnsupportedLakeOption(
            f"table {path} has the lake format {info.datalake_format or 'none'}, which its cluster"
            " set at its creation; only tables of the format iceberg have lake tables of Sluice"
        )
    registered = client.tiering.lake_snapshot(path)
    table, outcome = lake.load(path), EXISTS
    notes = [other_lake_note(info, lake)] if registered is None else []
    if table is None:
        if registered is not None:
            raise table_missing(path, registered, lake_place(info, lake))
        check_partitions(info, client.tiering)
        layout = new_layout(info, lake.options, client.admin.lake_layout)
        table, outcome = lake.create(info, layout, partition_by), CREATED
    changes = table.add_missing_columns(info)
    if outcome == EXISTS:
        notes.insert(0, _kept_fields(info, table.part_fields, partition_by))
    notes += [*cautions(info, table.layout), *changes]
    found = compare(path, info.table_id, table, table.newest_tiering_snapshot(), registered)
    if found.status is LakeStatus.BEHIND:
        assert registered is not None
        raise rolled_back(path, registered, found.why)
    if found.status is LakeStatus.AHEAD:
        notes.insert(0, NOT_REGISTERED)
    wanted, made = lake.options.get(LAYOUT, ""), table.layout.value
    if outcome == EXISTS and wanted.lower() not in ("", made):
        notes.insert(0, f"it stays {made}, because a lake table keeps its layout")
    note = ". ".join(filter(None, notes))
    return LakeTableReport(str(path), outcome, table.location, made, info.datalake_enabled, note)


def _kept_fields(info: TableInfo, has: PartFields, partition_by: Sequence[str]) -> str:
    """A note if a lake table that exists lacks partition fields that were asked for."""
    found = [(one.column, one.transform) for one in has.fields]
    wanted = [own_field(info, text) for text in partition_by]
    if all((one.column, one.transform) in found for one in wanted):
        return ""
    if not found:
        return "it exists without partition fields: add them by ALTER TABLE in Spark SQL"
    return (
        f"it exists, and keeps its partition fields {parts_text(found)}: change them by ALTER"
        " TABLE in Spark SQL"
    )
