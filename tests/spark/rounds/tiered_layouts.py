"""A table of some kind and layout, its rounds, and its lake compared with what was written."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.table import StaticTable

from sluice.driver.repairing import diagnose_table
from sluice.rounds.records.result import RoundResult
from tests.spark.conftest import STOCK, LocalStock
from tests.spark.upkeep.test_maintain import lake_table
from tests.support.lake.lake_checker import LakeChecker
from tests.support.lake.layout_tables import FEW, NESTED, STEP, Kind, Replay, day_of
from tests.support.tables.server_files import (
    read_logs,
    read_partitions,
    read_registered,
    table_folder,
)

SYSTEM = {"legacy": ["__bucket", "__offset", "__timestamp"], "clean": []}
LAKE = f"lake.{STOCK}"


@dataclass
class Tiered:
    """One table; its server, its lake and its rounds are those of ``stock``."""

    stock: LocalStock
    kind: Kind
    layout: str
    arm: Callable[[str], None]
    """Arms failpoints."""
    replay: Replay = field(init=False)
    skipped: dict[tuple[str, int], set[int]] = field(default_factory=dict)
    """Offsets that a user has given up, by partition and bucket."""
    is_damaged: bool = False
    """Whether a log has a batch that cannot be read."""
    _days: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.replay = Replay(self.kind)

    def create(self, **properties: str) -> None:
        self.stock.client.admin.create_database(STOCK.database, ignore_if_exists=True)
        self.stock.client.admin.create_table(STOCK, self.kind.descriptor(properties))

    # -- writes

    def insert(self, number: int) -> None:
        """The new rows of a step."""
        self.put(range(number * STEP, (number + 1) * STEP))

    def step(self, number: int) -> None:
        """New rows; of a keyed table also updates, deletes, and a key that comes back."""
        self.insert(number)
        first = (number - 1) * STEP
        if self.kind.is_keyed and number:
            self.put(range(first, first + 5), change=number)
            self.delete(range(first + 4, first + 7))
            self.put([first + 5], change=number + 1)
            self.put([max(0, first - 6)], change=number)  # was deleted a step before

    def put(self, numbers: Iterable[int], change: int = 0) -> None:
        ids = [*numbers]
        self._partitions(ids)
        rows, client = [self.kind.row(one, change) for one in ids], self.stock.client
        if self.kind.is_keyed:
            with client.kv_writer(STOCK) as keyed:
                keyed.upsert(self.kind.table(rows))
        else:
            with client.log_writer(STOCK) as log:
                log.write(self.kind.table(rows))
        self.replay.put(rows)

    def delete(self, numbers: Iterable[int]) -> None:
        ids = [*numbers]
        rows = self.kind.table([self.kind.row(one) for one in ids])
        with self.stock.client.kv_writer(STOCK) as writer:
            writer.delete(rows.select(self.kind.key))
        self.replay.delete(ids)

    def _partitions(self, numbers: Iterable[int]) -> None:
        if self.kind.is_partitioned:
            for day in sorted({day_of(one) for one in numbers} - self._days):
                self.stock.client.admin.create_partition(STOCK, {"day": day})
                self._days.add(day)

    # -- rounds

    def tier(self, **settings: Any) -> RoundResult:
        """One round.

        :param settings: of ``tiering``, from now on.
        """
        site = self.stock.site
        site.config = replace(site.config, tiering=replace(site.config.tiering, **settings))
        result = self.stock.tier()
        assert result.lake_layout in ("", self.layout)
        return result

    def by_positions(self, number: int) -> None:
        """A step, and a round that deletes rows by position."""
        self.step(number)
        result = self.tier()
        assert result.outcome == "committed"
        if self.kind.is_keyed:
            assert result.deletes_as == "positions"

    def java(self) -> Any:
        """Iceberg's own object of the lake table."""
        return lake_table(self.stock)._loaded.java

    def newest(self) -> int:
        """The snapshot that Fluss has registered."""
        registered = self.stock.client.admin.lake_snapshot(STOCK)
        assert registered is not None
        return registered.snapshot_id

    @property
    def folder(self) -> Path:
        return self.stock.site.warehouse / STOCK.database / STOCK.table

    def live_files(self) -> list[Path]:
        """The data files of main."""
        tasks = StaticTable.from_metadata(str(self.folder)).scan().plan_files()
        return [Path(one.file.file_path.removeprefix("file:")) for one in tasks]

    def orphans(self) -> set[str]:
        """Files of data and deletes that no snapshot has."""
        known = StaticTable.from_metadata(str(self.folder)).inspect.all_files()["file_path"]
        stored = {str(one) for one in self.folder.rglob("data/**/*.parquet")}
        return stored - {one.removeprefix("file:") for one in known.to_pylist()}

    # -- what must hold

    def check(self) -> None:
        """The lake holds what was written, in its layout, and Fluss knows all of it.

        PyIceberg reads it, except nested columns: it takes a list of rows that is null for an empty
        one.
        """
        lake = StaticTable.from_metadata(str(self.folder))
        names = [*self.kind.types, *SYSTEM[self.layout]]
        assert [one.name for one in lake.schema().fields] == names
        is_legacy = self.layout == "legacy"
        assert lake.sort_order().is_unsorted is not is_legacy
        fields = ["day"] * self.kind.is_partitioned
        if self.kind.is_keyed or self.kind.has_bucket_key:
            fields.append("id_bucket")
        elif is_legacy:
            fields.append("__bucket")
        assert [one.name for one in lake.spec().fields] == fields
        is_nested = self.kind.values is NESTED
        rows = self._rows_in_spark() if is_nested else lake.scan().to_arrow().to_pylist()
        self.replay.assert_equal(rows)
        ends = self._registered()
        if is_legacy:
            self._check_offsets(rows, ends)
        for file in self.live_files():
            assert set(pq.read_schema(file).names) == set(names)
        self._check_diagnosis()

    def _registered(self) -> dict[tuple[str, int], int]:
        """The registered offsets, which are the ends of all logs."""
        admin = self.stock.client.admin
        registered = admin.lake_snapshot(STOCK)
        assert registered is not None
        ends = admin.table_offsets(admin.table_info(STOCK))
        held = {one: registered.offsets.get(one, 0) for one in ends}
        assert held == ends
        days = {None: ""}
        if self.kind.is_partitioned:
            days |= {one.partition_id: one.values[0] for one in admin.partitions(STOCK)}
        return {(days[one.partition_id], one.bucket): end for one, end in ends.items()}

    def _check_offsets(self, rows: list[dict[str, Any]], ends: dict[tuple[str, int], int]) -> None:
        """Of a legacy table: each row says its offset, and each offset is there once."""
        found: dict[tuple[str, int], list[int]] = {place: [] for place in ends}
        for row in rows:
            found[row.get("day", ""), row["__bucket"]].append(row["__offset"])
        for place, offsets in found.items():
            of_log = sorted(one for one in offsets if one != -1)
            assert len(of_log) == len(set(of_log))
            if not self.kind.is_keyed:
                left = set(range(ends[place])) - self.skipped.get(place, set())
                assert offsets.count(-1) == 0
                assert of_log == sorted(left)

    def _check_diagnosis(self) -> None:
        """`sluice repair` finds nothing to do."""
        site = self.stock.site
        found = diagnose_table(site.config, STOCK, site.jvm)
        assert found.healthy, found.state

    def check_by_spark(self) -> None:
        """Spark reads what was written."""
        if "c_time" not in self.kind.values:
            self.replay.assert_equal(self._rows_in_spark())

    def check_files(self) -> None:
        """Spark reads the same, and each file and mark is as it should be.

        The checker compares no rows of other types, and reads no damaged logs.
        """
        self.check_by_spark()
        if self.kind.values is not FEW or self.is_damaged:
            return
        place = (self.stock.data_dir, STOCK.database, STOCK.table)
        logs = self.logs()
        checker = LakeChecker(
            self.stock.rows,
            LAKE,
            self.folder,
            read_partitions(*place),
            self.kind.key,
            ("day",) if self.kind.is_partitioned else (),
        )
        report = checker.report(logs, read_registered(*place))
        assert report.damage == {}
        assert report.rows == len(self.replay.rows())

    def _rows_in_spark(self) -> list[dict[str, Any]]:
        rows = self.stock.rows(f"SELECT * FROM {LAKE}")
        return [row.asDict(recursive=True) for row in rows]

    def logs(self) -> dict[tuple[str, int], Any]:
        """What the server has stored, by partition and bucket."""
        folder = table_folder(self.stock.data_dir / "log", STOCK.database, STOCK.table)
        schema = pa.schema([one.with_nullable(True) for one in self.kind.arrow])
        return read_logs(folder, schema, keyed=self.kind.is_keyed)
