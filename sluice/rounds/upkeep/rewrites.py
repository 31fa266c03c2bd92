"""Compacts the small files of a log table in its rounds.

The rows stay the same, so it is a commit of its own, just before that of the round: readers of
appended rows ignore such a commit. It has the fence of the round, because clean-up may have deleted
the new files of a dead one. Its failure is no failure of the round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sluice.errors import (
    LakeCommitOutcomeUnknown,
    LakeCommitRefused,
    LakeFilesChanged,
    LakeNotWritable,
    SluiceError,
)
from sluice.rounds.upkeep.compacted import CompactionReport
from sluice.rounds.upkeep.compaction import (
    NOTHING_CHOSEN,
    Choice,
    CompactionOptions,
    with_compactions,
)
from sluice.rounds.values.discard import discard
from sluice.rounds.values.lake_files import (
    Compaction,
    DataFile,
    LiveFile,
    LiveFiles,
    PlannedCommit,
    StoredMarks,
    WrittenCompaction,
)
from sluice.rounds.values.ports import LakeTable
from sluice.rounds.values.reasons import reason_of
from sluice.rounds.values.types import LakeSnapshot, Split, SplitFailure, SplitResult
from sluice.rounds.values.write_ids import order_of

REWRITE_KEY = "sluice.rewrite"
"""Key in the summary of a snapshot that compacts a log table: the write id of its round."""
Outcome = SplitResult | SplitFailure


class Rewrites:
    """The compaction of a log table in one round. Used by the round's thread."""

    def __init__(
        self,
        splits: Sequence[Split] = (),
        live: LiveFiles | None = None,
        choice: Choice = NOTHING_CHOSEN,
    ) -> None:
        """:param splits: those that rewrite files.
        :param live: what they are planned from.
        :param choice: what is rewritten.
        """
        self.splits, self.live, self.choice = tuple(splits), live, choice
        self._written: list[WrittenCompaction] = []
        self._is_tried = False
        self.report = CompactionReport()
        self.notes: list[str] = []

    @classmethod
    def planned(
        cls, table: LakeTable, splits: Sequence[Split], options: CompactionOptions
    ) -> Rewrites:
        """Chooses files of the buckets that a round of a log table copies.

        If the files cannot be listed, nothing is compacted, and a note says why.
        """
        if not splits or options.bytes_max <= 0:
            return cls()
        only = [
            replace(one, start_offset=one.stop_offset, part=None, skipped=(), copies=False)
            for one in splits
        ]
        try:
            live = table.live_files(only)
        except SluiceError as error:
            return cls._nothing(reason_of(error).text)
        if unusable := next((b.unusable for b in live.buckets.values() if b.unusable), ""):
            return cls._nothing(unusable)
        planned, choice = with_compactions(only, live, options)
        found = [
            replace(split, compaction=_in_order(one))
            for split in planned
            if (one := split.compaction) is not None
        ]
        return cls(found, live, choice)

    @classmethod
    def _nothing(cls, why: str) -> Rewrites:
        found = cls(choice=Choice({}, left=1))
        found.notes.append(f"no small files were compacted: {why}")
        return found

    def take(self, outcomes: Sequence[Outcome]) -> list[Outcome]:
        """Takes the outcomes of its splits, and returns those of all others."""
        for one in outcomes:
            if isinstance(one, SplitResult) and one.is_rewrite:
                self._written.append(one.compacted)
            elif one.is_rewrite:
                assert isinstance(one, SplitFailure)
                self._written.append(WrittenCompaction(why_not=one.reason.text))
        self.report = CompactionReport.of(self._written)
        return [one for one in outcomes if not one.is_rewrite]

    @property
    def files(self) -> list[DataFile]:
        """The new files; none if all rows were deleted."""
        return [file for one in self._written for file in one.files]

    @property
    def is_done(self) -> bool:
        """Whether files were rewritten."""
        return any(one.removed for one in self._written)

    def commit(self, table: LakeTable, base: LakeSnapshot | None, write_id: str) -> None:
        """Commits the new files; if that fails, the report says why.

        Files of a commit that may have landed are left to clean-up.
        """
        if not self.is_done or self.live is None:
            return
        files, self._written = self.files, [one for one in self._written if one.removed]
        self._is_tried = True
        removed = tuple(path for one in self._written for path in one.removed)
        summary = {REWRITE_KEY: write_id, **self.report.summary()}
        planned = PlannedCommit(self.live, _vectors_of(self.live, removed), removed)
        try:
            table.rewrite(files, base, summary, planned)
        except (LakeFilesChanged, LakeNotWritable) as error:
            self._give_up(error)
            self.notes += discard(table, files)
        except (LakeCommitRefused, LakeCommitOutcomeUnknown) as error:
            self._give_up(error)

    def discard(self, table: LakeTable) -> None:
        """Deletes the new files if their commit was not tried."""
        if not self._is_tried:
            self.notes += discard(table, self.files)
            self._written.clear()

    def _give_up(self, error: SluiceError) -> None:
        why = f"the commit of the compaction: {reason_of(error).text}"
        self.report = CompactionReport.of(
            [replace(one, removed=(), files=(), why_not=why) for one in self._written]
        )


def _vectors_of(live: LiveFiles, removed: Sequence[str]) -> tuple[StoredMarks, ...]:
    """What marks rows of these data files only."""
    gone = set(removed)
    return tuple(
        one for bucket in live.buckets.values() for one in bucket.marks if one.data_file in gone
    )


def _in_order(compaction: Compaction) -> Compaction:
    """The files in the order of their rows: by offset, if the lake stores it, else by name."""
    files = tuple(
        sorted(compaction.files, key=lambda one: (_first_offset(one), order_of(one.path)))
    )
    since = min((order_of(one.path).base for one in files), default=0)
    return replace(compaction, files=files, since=max(0, since))


def _first_offset(file: LiveFile) -> int:
    lower = file.bounds[0][0] if file.bounds else None
    return -1 if lower is None else int.from_bytes(lower, "little", signed=True)
