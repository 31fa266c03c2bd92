"""Checks what a simulated round reports: what it tiered, what it left out, and why it failed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from sluice.errors import SluiceError
from sluice.model import Claim, TableBucket
from sluice.rounds.records.result import RoundResult
from sluice.rounds.values.reasons import reason_of
from tests.simulation.actors import Actor
from tests.simulation.fluss.cluster import SimCluster
from tests.simulation.lake.stored_lake import SimLake, SimTable
from tests.support.models.memory_cluster import RegisteredSnapshot

_DROPPED = re.compile(r"partition \S+ \(id (\d+)\) was dropped during the round: (.*)")
_DROPPED_BEFORE = re.compile(r"partition id (\d+) \(bucket:offset")
_OFFSETS = re.compile(r"bucket (\d+) offsets (?:\[(\d+), \d+\)|below \d+)")
_NEEDS_CAUSE = frozenset(
    {
        "SplitFailed",
        "PartitionNotExists",
        "UnknownTableOrBucket",
        "LogOffsetOutOfRange",
        "CorruptMessage",
    }
)
"""Errors with which a round may fail only if a fault caused them."""
_REFUSED = frozenset({"LakeCommitRefused", "LakeFilesChanged"})
"""Errors of a lake commit with which a round that has met only rewrites may not fail."""
_REGISTERED_BY_OTHERS = "each time an older round registered another one"
"""Text of a LakeCommitRefused before the lake commit, which other writers do not cause."""
_REGISTERED_SINCE = "with Fluss while this round ran"
"""Text of another one, which is true only if a snapshot was registered since the round began."""
_DELETED = ("LogOffsetOutOfRange", "its log ended at offset None")
"""Texts of errors about a log that has lost its beginning, or all of its rows."""


class RoundChecker:
    """Checks one round."""

    def __init__(
        self,
        cluster: SimCluster,
        lake: SimLake,
        actor: Actor,
        claim: Claim,
        wrong: Callable[[str], None],
    ) -> None:
        self._cluster, self._actor, self._claim, self._wrong = cluster, actor, claim, wrong
        self._lake = lake
        self._lake_before = self._lake_now()
        self._ends = self._living()
        self._registered = self._newest()

    def _living(self) -> Mapping[TableBucket, int]:
        """The buckets that exist, with the ends of their logs."""
        table = self._cluster.tables.get(self._claim.path)
        if table is None or table.described.table_id != self._claim.table_id:
            return {}
        return {bucket: table.end(bucket) for bucket in table.buckets()}

    def _newest(self) -> RegisteredSnapshot | None:
        table = self._cluster.tables.get(self._claim.path)
        return None if table is None else table.latest()

    def _gaps(self) -> bool:
        """Whether a log of the table begins after what Fluss has registered."""
        table = self._cluster.tables.get(self._claim.path)
        registered = None if table is None else table.latest_registered()
        if table is None or registered is None:
            return False
        known = registered.offsets
        return any(table.starts.get(b, 0) > known[b] for b in table.buckets() if b in known)

    def _lake_now(self) -> tuple[SimTable | None, int]:
        """The lake table, and how much has happened to it that may refuse a round."""
        table = self._lake.tables.get(self._claim.path)
        return table, 0 if table is None else table.disturbed

    def _met_only_rewrites(self) -> bool:
        """Whether nothing else has happened to the lake since the round began."""
        (before, happened), (table, now) = self._lake_before, self._lake_now()
        return not self._actor.lake_faults and table is before and now == happened

    def registered_since(self) -> bool:
        """Whether another snapshot was registered after the round began."""
        return self._newest() != self._registered

    def succeeded(self, result: RoundResult) -> None:
        """Checks a result: it has every row that existed when the round began.

        Exceptions are dropped partitions, limits, and another attempt's commit. For results that
        the coordinator accepts: a round that lost its claim may have planned from old offsets.
        """
        self.noted(result)
        if result.outcome not in ("committed", "nothing_new") or result.forced:
            return
        for bucket in self._living().keys() & self._ends.keys():
            held = result.offsets.get(_name(bucket), 0)
            if held < self._ends[bucket]:
                self._wrong(
                    f"{self._actor.name} succeeded with bucket {bucket} at {held}, but its log"
                    f" ended at {self._ends[bucket]} before: {result.notes}"
                )

    def noted(self, result: RoundResult) -> int:
        """Checks the notes on dropped partitions against the offsets; returns their number."""
        found = [match for note in result.notes if (match := _DROPPED.match(note))]
        living = {bucket.partition_id for bucket in self._living()}
        for note in result.notes:
            if living.intersection(map(int, _DROPPED_BEFORE.findall(note))):
                self._wrong(f"{self._actor.name} says of a partition that exists: {note}")
        for match in found:
            partition = int(match[1])
            if partition in living:
                self._wrong(f"{self._actor.name} left out a partition that exists: {match[0]}")
            for bucket, start in _OFFSETS.findall(match[2]):
                held = result.offsets.get(f"{partition}/{bucket}")
                if result.outcome != "already_landed" and held != (int(start) if start else None):
                    self._wrong(f"{self._actor.name} holds {held}, but says: {match[0]}")
        return len(found)

    def table_exists(self, error: SluiceError) -> None:
        """Checks that no round fails because its table was dropped, which is a lost claim."""
        texts = (type(error).__name__, reason_of(error).deepest_cause)
        if any("TableNotExist" in text for text in texts) and not self._actor.faults:
            self._wrong(f"{self._actor.name} failed with a dropped table: {error}")

    def failed(self, error: SluiceError, *, has_cause: bool = False) -> None:
        """Checks that a failure has a cause, and what was committed in spite of it.

        For failures that the coordinator counts. A round that lost its claim may read a log that
        other rounds have tiered, and retention has shortened since.

        :param has_cause: whether a damaged log is known to be the cause.
        """
        kind = type(error).__name__
        by_others = _REGISTERED_BY_OTHERS in str(error)
        by_others |= _REGISTERED_SINCE in str(error) and self.registered_since()
        if kind in _REFUSED and not by_others and self._met_only_rewrites():
            self._wrong(f"{self._actor.name} was starved by rewrites: {kind}: {error}")
        deleted = any(text in str(error) for text in _DELETED)
        if deleted and self.registered_since() and not self._gaps():
            return  # another try of the same claim has tiered those rows, and retention came
        if kind in _NEEDS_CAUSE and not (has_cause or self._actor.faults):
            self._wrong(f"{self._actor.name} failed without a cause: {kind}: {error}")
        if (committed := error.details.get("committed")) is not None:
            self.noted(committed)


def _name(bucket: TableBucket) -> str:
    partition = "" if bucket.partition_id is None else f"{bucket.partition_id}/"
    return f"{partition}{bucket.bucket}"
