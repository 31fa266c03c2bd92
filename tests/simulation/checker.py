"""Checks the rules of a simulated run after every lake snapshot and every registration."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import replace

from sluice.model import LakeSnapshotInfo, TableBucket, TablePath, offsets_from_text
from sluice.rounds.plan.bucket_repairs import left_out_in
from sluice.rounds.values.history import MAINTENANCE_KEY
from sluice.rounds.values.offsets import OFFSETS_KEY, TABLE_ID_KEY
from sluice.rounds.values.types import LakeSnapshot
from sluice.rounds.values.write_ids import short_uuid, write_ids_in
from tests.simulation.fluss.cluster import FlussTable, SimCluster
from tests.simulation.fluss.keyed import Change, replayed
from tests.simulation.fluss.log_damage import AcceptedRanges, LogDamage, without_cause
from tests.simulation.lake.stored_lake import SimLake, SimTable
from tests.support.models.memory_lake import TwoVectors


class Checker:
    """Checks the rules and keeps the first violation as text."""

    def __init__(
        self, note: Callable[[str], None], say: Callable[[str], None], damage: LogDamage
    ) -> None:
        """:param note: counts an event. :param say: writes into the trace."""
        self._note, self._say = note, say
        self.damage = damage
        self._accepted = AcceptedRanges()
        self.cluster: SimCluster
        self.lake: SimLake
        self.violation = ""
        self.forward_only = True
        """Whether the coordinator promises that registered offsets never go back."""
        self.acknowledged: dict[TableBucket, list[int]] = {}
        """The tables ever created."""
        self.values: dict[int, tuple[str, ...]] = {}
        """The partitions ever created."""
        self.changes: dict[TableBucket, list[Change]] = {}
        """The primary-key tables ever created."""

    def wrong(self, what: str) -> None:
        """Keeps the first violation; later ones usually follow from it."""
        if not self.violation:
            self.violation = what
            self._say(f"VIOLATION: {what}")

    # ---- at every lake snapshot ----

    def snapshot_made(self, table: SimTable) -> None:
        """Checks a lake table whose main branch was moved by any writer."""
        self.files_present()
        self._is_no_rounds(table)
        ours = table.newest_tiering_snapshot()
        if why := without_cause(self._missing(table), self.damage, ours):
            self.wrong(f"{table.location}: {why}")
        if self.changes:
            said = None if ours is None else self._said(ours)
            if why := self._keyed_difference(table, said):
                self.wrong(f"{table.location}: ours is {ours and ours.snapshot_id}: {why}")
            return
        held = self._held(table)
        for bucket, found in sorted(held.items(), key=str):
            doubled = sorted({offset for offset in found if found.count(offset) > 1})
            if doubled:
                self.wrong(f"{table.location}: rows doubled: bucket {bucket}, offsets {doubled}")
        if ours is not None:
            self._holds_what_it_says(table, ours, held)

    def _is_no_rounds(self, table: SimTable) -> None:
        """Checks that a snapshot of maintenance is none of a round: the fence finds it nowhere."""
        entry = table.history().entry(table.main or -1)
        if entry is None or MAINTENANCE_KEY not in entry.summary:
            return
        if entry.is_tiering:
            self.wrong(f"{table.location}: snapshot {table.main} of maintenance has a commit user")
        if table.tagged == table.main:
            self.wrong(f"{table.location}: the tag is at snapshot {table.main} of maintenance")

    def files_present(self) -> None:
        """Checks that the tagged snapshot exists, and every file that a snapshot references."""
        for table in self.lake.all():
            if table.tagged is not None and not table.holds(table.tagged):
                self.wrong(f"{table.location}: the tagged snapshot {table.tagged} is gone")
            gone = [path for path in table.referenced()[0] if path not in table.files]
            if gone:
                self.wrong(f"{table.location}: referenced file is gone: {sorted(gone)[0]}")

    def _held(self, table: SimTable) -> dict[TableBucket, list[int]]:
        """The offsets of each bucket's rows in main."""
        held: dict[TableBucket, list[int]] = {}
        for path in table.paths():
            owner = table.owners.get(path)
            if owner is None:
                continue
            for _, number, offset in table.files.get(path, ()):
                found = held.setdefault(replace(owner, bucket=number), [])
                found += [offset] * (2 if path in table.twice else 1)
        return held

    def _missing(self, table: SimTable) -> Mapping[TableBucket, set[int]]:
        """The offsets that main lacks because a user accepted it, as the summaries say."""
        entry = table.history().entry(table.main or -1)
        if entry is None:
            return {}
        return self._accepted.at(table.uuid, table.main, entry.parent_id, entry.summary)

    def _holds_what_it_says(
        self, table: SimTable, ours: LakeSnapshot, held: Mapping[TableBucket, list[int]]
    ) -> None:
        """Checks that main contains exactly the rows that Sluice's newest snapshot names."""
        said = self._said(ours)
        newest, missing = self._newest_incarnations(said), self._missing(table)
        for bucket in sorted({**held, **said}, key=str):
            expected = self.acknowledged.get(bucket, [])
            expected = expected[: bisect_left(expected, said.get(bucket, 0))]
            expected = [one for one in expected if one not in missing.get(bucket, ())]
            if bucket.partition_id is not None and bucket.partition_id not in newest:
                expected = []  # created again since: its rows had to go
            if sorted(held.get(bucket, ())) != expected:
                self.wrong(
                    f"{table.location}: snapshot {ours.snapshot_id} says bucket {bucket} up to"
                    f" {said.get(bucket)}: has rows {sorted(held.get(bucket, ()))}, not {expected}"
                )

    def _keyed_difference(self, table: SimTable, said: Mapping[TableBucket, int] | None) -> str:
        """The difference between main, with deletes applied, and the table at these offsets.

        :param said: None if the offsets are unknown; then only duplicate keys are a difference.
        """
        if table.paths() & table.twice:
            return f"rows doubled: files {sorted(table.paths() & table.twice)}"
        try:
            rows = table.keyed_rows()
        except TwoVectors as unreadable:
            return f"no reader can plan the table: {unreadable}"
        except AssertionError as doubled:
            return f"rows doubled: {doubled}"
        if said is None:
            return ""
        newest = self._newest_incarnations(said)
        expected: dict[tuple[tuple[str, ...], int], int] = {}
        for bucket, end in said.items():
            if bucket.partition_id is None or bucket.partition_id in newest:
                values = self.values[bucket.partition_id] if bucket.partition_id is not None else ()
                held = replayed(self.changes.get(bucket, []), end)
                expected |= {(values, key): value for key, value in held.items()}
        found = {(values, row["a"]): row["n"] for (values, _), row in rows.items()}
        if found == expected:
            return ""
        return f"offsets {dict(said)}: has rows {found}, not {expected}"

    def _newest_incarnations(self, said: Mapping[TableBucket, int]) -> set[int]:
        newest: dict[tuple[str, ...], int] = {}
        for bucket in said:
            if bucket.partition_id is not None:
                values = self.values[bucket.partition_id]
                newest[values] = max(newest.get(values, 0), bucket.partition_id)
        return set(newest.values())

    def _said(self, ours: LakeSnapshot) -> Mapping[TableBucket, int]:
        _, said = offsets_from_text(ours.summary[OFFSETS_KEY])  # few buckets: never in a file
        return said

    # ---- at every registration ----

    def registered(
        self, fluss: FlussTable, snapshot_id: int, before: LakeSnapshotInfo | None
    ) -> None:
        """Checks a lake snapshot that Fluss has registered."""
        now = fluss.latest_registered()
        assert now is not None
        for bucket in fluss.buckets():
            old = -1 if before is None else before.offsets.get(bucket, -1)
            if now.offsets.get(bucket, -1) < old:
                if not self.forward_only:
                    self._note("a real Fluss went back")
                else:
                    self.wrong(f"offset of {bucket} went back from {old} to {dict(now.offsets)}")
        table = self.lake.tables.get(fluss.described.path)
        entry = table.history().entry(snapshot_id) if table is not None else None
        if entry is None or entry.summary.get(TABLE_ID_KEY) != str(fluss.described.table_id):
            return  # the lake table was dropped meanwhile
        said = self._said(LakeSnapshot(snapshot_id, entry.sequence_number, entry.summary))
        if dict(said) != dict(now.offsets):
            self.wrong(
                f"snapshot {snapshot_id} was registered with {dict(now.offsets)}, it holds {said}"
            )

    # ---- at the end of a repair ----

    def retier_met(self, path: TablePath, bucket: TableBucket, offset: int) -> None:
        """Checks a batch that a retier could not read: its rows were tiered, and damaged later."""
        fluss, table = self.cluster.tables.get(path), self.lake.tables.get(path)
        if fluss is None or table is None or not self.is_behind(fluss, table):
            return  # it was an ordinary round, because another user has repaired the table
        left_out = left_out_in(bucket.table_id, table.whole_history())
        if any(one.holds(bucket, offset) for one in left_out):
            self.wrong(f"a retier meets the batch {bucket}:{offset}, which was left out before")
        registered = fluss.latest_registered()
        if registered is None or offset >= registered.offsets.get(bucket, 0):
            self.wrong(f"a retier meets the batch {bucket}:{offset}, which was never tiered")
        self._note("retier met a batch that was damaged later")

    # ---- at the end ----

    def healed(self, fluss: FlussTable) -> str:
        """Why the lake table is not complete yet; empty if it is."""
        path = fluss.described.path
        ends = {b: fluss.end(b) for b in fluss.buckets() if fluss.end(b)}
        table = self.lake.tables.get(path)
        registered = fluss.latest_registered()
        if not ends and registered is None:
            return ""
        if table is None:
            return f"{path} has no lake table"
        ours = table.newest_tiering_snapshot()
        if registered is None or ours is None or ours.snapshot_id != registered.snapshot_id:
            return f"{path}: registered is {registered}, in the lake {ours}"
        living = {b: registered.offsets.get(b, 0) for b in ends}
        if living != ends:
            return f"{path}: registered are {living}, the logs end at {ends}"
        if self.changes and (why := self._keyed_difference(table, registered.offsets)):
            return f"{path}: {why}"
        held = self._held(table)
        for bucket in ends if not self.changes else ():
            missing = self._missing(table).get(bucket, ())
            expected = [one for one in self.acknowledged.get(bucket, []) if one not in missing]
            if sorted(held.get(bucket, ())) != expected:
                return f"{path}: bucket {bucket} has {held.get(bucket)} in the lake"
        if table.tagged != ours.snapshot_id:
            return f"{path}: the tag is at {table.tagged}, not at {ours.snapshot_id}"
        return ""

    def tidy(self) -> None:
        """Checks that what clean-up and maintenance have to delete is gone.

        That is files of rounds that can never commit, and all of maintenance. Tables that Fluss
        has dropped are not maintained.
        """
        for path_of_table, table in self.lake.tables.items():
            is_maintained = path_of_table in self.cluster.tables
            newest = table.newest_tiering_snapshot()
            for path in sorted(table.unreferenced_files()):
                for write_id in write_ids_in(path.rpartition("/")[2]):
                    dead = newest is not None and write_id.base < newest.sequence_number
                    if dead and write_id.is_of(table.uuid):
                        self.wrong(f"{table.location}: left by clean-up: {path}")
                if is_maintained and path in table.written_ms and short_uuid(table.uuid) in path:
                    self.wrong(f"{table.location}: left by maintenance: {path}")

    def is_behind(self, fluss: FlussTable, table: SimTable) -> bool:
        """Whether the lake lacks rows that Fluss has registered."""
        return self.behind(fluss, table, fluss.latest_registered())

    def behind(
        self, fluss: FlussTable, table: SimTable, registered: LakeSnapshotInfo | None
    ) -> bool:
        """Whether the lake lacks rows of a registered snapshot."""
        if registered is None or registered.table_id != fluss.described.table_id:
            return False
        ours = table.newest_tiering_snapshot()
        if ours is None or ours.summary.get(TABLE_ID_KEY) != str(fluss.described.table_id):
            return True
        said = self._said(ours)
        return any(said.get(b, -1) < offset for b, offset in registered.offsets.items())
