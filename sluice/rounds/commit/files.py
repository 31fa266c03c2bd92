"""The files of a round's commit, and how its deletes are made anew if others rewrite data files.

Positions hold only as long as their data files are the table's. If the lake refuses a commit
because others have changed some, only the buckets of these are looked up again, and only delete
files are written again. After two such tries the commit has equality deletes, which name no file.
The keys are in the lake until then, as equality deletes that no commit references.

Compactions are given up at the first refusal. The rows that the round itself has written are in
the lake until then, in files of their own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

from sluice.errors import ClaimLost, SluiceError
from sluice.failpoints import failpoint
from sluice.masking import cut
from sluice.model import TableBucket
from sluice.rounds.plan.position_lookups import with_lookups
from sluice.rounds.upkeep.compacted import CompactionReport
from sluice.rounds.values.lake_files import (
    NO_COMPACTION,
    DataFile,
    LiveFiles,
    PlannedCommit,
    WrittenCompaction,
    WrittenDeletes,
)
from sluice.rounds.values.limits import LookupBudget
from sluice.rounds.values.ports import LakeTable, SplitRunner
from sluice.rounds.values.reasons import reason_of
from sluice.rounds.values.types import Split, SplitFailure, SplitResult

DELETES_KEY = "sluice.deletes"
"""Key in a snapshot summary: how the commit deletes rows, and what it cost, as JSON."""
LOOKUPS_MAX = 3
"""The first look-up, and two more if others rewrite data files."""
_WHY_CHARS = 300
"""Iceberg names every data file that is missing."""


@dataclass(frozen=True, slots=True)
class Lookups:
    """What a round needs to look up rows again."""

    splits: Sequence[Split]
    """The splits that were copied."""
    live: LiveFiles
    budget: LookupBudget
    runner: SplitRunner


@dataclass(frozen=True, slots=True)
class DeletesReport:
    """How a round deletes rows, and what it cost."""

    position_buckets: int = 0
    equality_buckets: int = 0
    why_equality: str = ""
    """Why the first bucket with equality deletes has no positions. Names it if others differ."""
    files_read: int = 0
    bytes_read: int = 0
    seconds: float = 0.0
    """CPU seconds."""
    lookups: int = 0
    """How often rows were looked up; more than once if others have rewritten data files."""

    def __str__(self) -> str:
        """Returns ``positions``, ``equality deletes (WHY)``, both, or nothing without deletes."""
        why = f" ({self.why_equality})" if self.why_equality else ""
        if not self.equality_buckets:
            return "positions" if self.position_buckets else ""
        if not self.position_buckets:
            return f"equality deletes{why}"
        return (
            f"positions in {self.position_buckets} of"
            f" {self.position_buckets + self.equality_buckets} buckets, equality deletes in the"
            f" others{why}"
        )

    def summary(self) -> dict[str, str]:
        """The entry of the snapshot's summary; none without deletes."""
        if not self.position_buckets and not self.equality_buckets:
            return {}
        kinds = [
            *(["position"] if self.position_buckets else []),
            *(["equality"] if self.equality_buckets else []),
        ]
        content = {
            "kinds": kinds,
            "position-buckets": self.position_buckets,
            "equality-buckets": self.equality_buckets,
            "files-read": self.files_read,
            "bytes-read": self.bytes_read,
            "cpu-ms": round(self.seconds * 1000),
            "lookups": self.lookups,
        }
        return {DELETES_KEY: json.dumps(content)}


class RoundFiles:
    """The files of one round's commit. Used by the round's thread only."""

    def __init__(
        self,
        results: Sequence[SplitResult],
        lookups: Lookups | None = None,
        not_compacted: Sequence[WrittenCompaction] = (),
    ) -> None:
        """:param lookups: None: the round has looked up nothing.
        :param not_compacted: compactions that were left out, of buckets without a result.
        """
        self.results = list(results)
        self._not_compacted = tuple(not_compacted)
        self._lookups = lookups
        self._live = lookups.live if lookups is not None else None
        self._count = 1
        self._superseded: list[DataFile] = []
        self.notes: list[str] = []
        self.may_be_referenced = False
        """Whether a snapshot may reference the files, though the lake has refused their commit."""

    @property
    def files(self) -> list[DataFile]:
        """The files for the commit."""
        return [file for result in self.results for file in result.files]

    @property
    def unused(self) -> list[DataFile]:
        """Files that the commit does not reference: keys for another look-up, and older deletes.

        None if a snapshot may reference them: then `sluice clean` deletes them.
        """
        if self.may_be_referenced:
            return []
        spare = [
            file
            for result in self.results
            for file in (*result.deleted.spare, *result.compacted.spare)
        ]
        return [*spare, *self._superseded]

    @property
    def all(self) -> list[DataFile]:
        """All files that the round has written."""
        return [*self.files, *self.unused]

    @property
    def positions(self) -> PlannedCommit | None:
        """What the commit relies on; None: on no positions, and it has no compacted files."""
        found = [
            result
            for result in self.results
            if _is_by_position(result.deleted) or result.compacted.removed
        ]
        if not found or self._live is None:
            return None
        return PlannedCommit(
            self._live,
            tuple(one for result in found for one in result.deleted.replaced),
            tuple(path for result in found for path in result.compacted.removed),
        )

    @property
    def compacted(self) -> CompactionReport:
        """What the commit compacts."""
        return CompactionReport.of(
            [
                *(one.compacted for one in self.results if one.compacted != NO_COMPACTION),
                *self._not_compacted,
            ]
        )

    def report(self) -> DeletesReport:
        """How the commit deletes rows."""
        with_keys = [result for result in self.results if result.deleted.keys]
        equality = [result for result in with_keys if not _is_by_position(result.deleted)]
        why = ""
        if equality:
            first = equality[0]
            why = first.deleted.why_equality
            if why and any(result.deleted.why_equality != why for result in with_keys):
                why = f"bucket {first.bucket.name}: {why}"
        return DeletesReport(
            len(with_keys) - len(equality),
            len(equality),
            why,
            sum(result.deleted.files_read for result in with_keys),
            sum(result.deleted.bytes_read for result in with_keys),
            sum(result.deleted.seconds for result in with_keys),
            self._count if self._lookups is not None else 0,
        )

    def look_up_again(self, table: LakeTable, why: str) -> None:
        """Replaces the deletes of buckets whose data files others have changed.

        After two times, and if the lake cannot be read, all positions become equality deletes.

        :param why: the lake's word on what others have changed.
        :raises ClaimLost: the round was cancelled.
        """
        why = why if len(why) <= _WHY_CHARS else f"{cut(why, _WHY_CHARS)}..."
        assert self._lookups is not None
        failpoint("round.lookup_again.before")
        if given_up := self._give_up_compactions(why):
            self.notes += [f"the compaction was given up: {why}"]
        splits = [s for s in self._lookups.splits if s.bucket in self._by_position()]
        if not splits:
            return
        if self._count >= LOOKUPS_MAX:
            self._use_equality(f"the lake refused positions {self._count} times, at last: {why}")
        else:
            self._count += 1
            self.notes += [f"deleted rows were looked up again: {why}"]
            try:
                self._look_up(splits, table.live_files(splits), given_up)
            except ClaimLost:
                raise
            except SluiceError as error:
                why = reason_of(error).text
                self._use_equality(f"the rows could not be looked up again: {why}")
        failpoint("round.lookup_again.after")

    def _give_up_compactions(self, why: str) -> set[TableBucket]:
        """Puts the rows that the round has written in the place of compacted files."""
        found = set()
        for place, result in enumerate(self.results):
            compacted = result.compacted
            if not compacted.removed:
                continue
            found.add(result.bucket)
            self._superseded += compacted.files
            deleted = result.deleted
            deletes = list(deleted.files)
            if not _is_by_position(deleted):  # of earlier positions in files that are left
                tidied = [file for file in deleted.files if file.marks]
                self._superseded += tidied
                deletes = [file for file in deleted.files if not file.marks]
                deleted = replace(deleted, files=tuple(deletes), replaced=())
            given_up = replace(
                compacted,
                removed=(),
                files=(),
                spare=(),
                why_not=f"others have changed files meanwhile: {why}",
            )
            files = (*compacted.spare, *deletes)
            self.results[place] = replace(result, files=files, deleted=deleted, compacted=given_up)
        return found

    def _look_up(
        self, splits: Sequence[Split], live: LiveFiles, given_up: Set[TableBucket]
    ) -> None:
        """:param given_up: buckets whose compaction was given up in this try."""
        assert self._lookups is not None
        assert self._live is not None
        before = self._live.buckets
        changed = [
            s
            for s in splits
            if s.bucket in given_up or live.buckets[s.bucket] != before.get(s.bucket)
        ]
        changed = changed or list(splits)  # refused for another reason: nothing is trusted
        self._live = live
        again = with_lookups(changed, live, self._lookups.budget)
        spare = {result.bucket: result.deleted.spare for result in self.results}
        outcomes = self._lookups.runner([self._only_deletes(s, spare[s.bucket]) for s in again])
        for outcome in outcomes:  # one after the other, so that no file is forgotten at an error
            if isinstance(outcome, SplitFailure):
                why = outcome.reason.text
                if outcome.reason.kind == ClaimLost.__name__:
                    raise ClaimLost(why)
                self._use_equality(f"the look-up failed: {why}", {outcome.bucket})
            else:
                self._replace(outcome.bucket, outcome.deleted)

    def _only_deletes(self, split: Split, keys_of: Sequence[DataFile]) -> Split:
        """A split that copies nothing, and looks up the keys of equality deletes."""
        assert split.keyed is not None
        assert split.keyed.lookup is not None
        lookup = replace(split.keyed.lookup, keys_of=tuple(keys_of), number=self._count - 1)
        keyed = replace(split.keyed, lookup=lookup)
        stop = split.stop_offset
        return replace(
            split, start_offset=stop, stop_offset=stop, limit=None, keyed=keyed, compaction=None
        )

    def _use_equality(self, why: str, buckets: set[TableBucket] | None = None) -> None:
        """Commits the equality deletes that were kept for this case."""
        for result in list(self.results):
            if _is_by_position(result.deleted) and (buckets is None or result.bucket in buckets):
                spare = result.deleted.spare
                keys = result.deleted.keys
                self._replace(result.bucket, WrittenDeletes(keys, spare, why_equality=why))

    def _replace(self, bucket: TableBucket, deleted: WrittenDeletes) -> None:
        for place, result in enumerate(self.results):
            if result.bucket != bucket:
                continue
            old = result.deleted
            kept = {file.path for file in (*deleted.files, *deleted.spare)}
            self._superseded += [file for file in old.files if file.path not in kept]
            rows = tuple(file for file in result.files if not file.deletes)
            deleted = replace(
                deleted,
                keys=old.keys,
                files_read=old.files_read + deleted.files_read,
                bytes_read=old.bytes_read + deleted.bytes_read,
                seconds=old.seconds + deleted.seconds,
            )
            files = (*rows, *deleted.files)
            self.results[place] = replace(result, files=files, deleted=deleted)

    def _by_position(self) -> Mapping[TableBucket, WrittenDeletes]:
        found = {result.bucket: result.deleted for result in self.results}
        return {bucket: deleted for bucket, deleted in found.items() if _is_by_position(deleted)}


def _is_by_position(deleted: WrittenDeletes) -> bool:
    return deleted.keys > 0 and not deleted.why_equality
