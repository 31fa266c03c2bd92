"""Has all splits of a round copied; after an error, deletes the files of those that were."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass

from sluice.rounds.commit.files import Lookups
from sluice.rounds.commit.options import RoundOptions
from sluice.rounds.commit.outcomes import SplitOutcomes, sort_outcomes
from sluice.rounds.plan.plan import RoundPlan
from sluice.rounds.upkeep.rewrites import Rewrites
from sluice.rounds.values.attempt import Attempt
from sluice.rounds.values.discard import discard
from sluice.rounds.values.lake_files import LiveFiles
from sluice.rounds.values.ports import LakeTable
from sluice.rounds.values.types import SplitFailure, SplitResult


@dataclass(frozen=True, slots=True)
class Copied:
    """What became of the splits of a round."""

    outcomes: SplitOutcomes
    lookups: Lookups | None = None
    """None: the round looks up no rows."""


def copy_splits(
    attempt: Attempt,
    plan: RoundPlan,
    table: LakeTable,
    write_id: str,
    options: RoundOptions,
    judge: Callable[[SplitOutcomes], None],
    live: LiveFiles | None = None,
    rewrites: Rewrites | None = None,
) -> Copied:
    """Copies all splits.

    :param judge: raises if nothing of these outcomes is to be committed.
    :param live: the files in which deleted rows are looked up.
    :param rewrites: the compaction of a log table: its splits run beside the others.
    """
    rewrites = rewrites or Rewrites()
    splits = [*plan.splits, *rewrites.splits]
    if not splits:
        return Copied(SplitOutcomes(plan, (), ()))
    attempt.progress.planned(len(splits), plan.offsets)
    arrived: list[SplitResult | SplitFailure] = []
    outcomes: Iterator[SplitResult | SplitFailure] = iter(())
    lookups = None
    try:
        with attempt.phases("copy"):
            writers = table.writer_factory(write_id, splits)
            parts = options.parts.divide(plan.splits)
            runner = attempt.ports.make_runner(plan.info, writers)
            if live is not None:
                lookups = Lookups(plan.splits, live, options.keyed.lookups, runner)
            outcomes = runner([*parts, *rewrites.splits])
            arrived.extend(outcomes)  # to the end: a failed split does not end the others
            joined = options.parts.join(parts, rewrites.take(arrived))
            found = sort_outcomes(plan, attempt.cluster, joined.results, joined.failures)
            judge(found)
    except BaseException:  # also an error of the engine, or Ctrl-C: nothing was committed
        if isinstance(outcomes, Generator):
            outcomes.close()  # running splits end before files of others are deleted
        done = [outcome for outcome in arrived if isinstance(outcome, SplitResult)]
        discard(table, [file for result in done for file in result.all_files])
        raise
    if joined.unused:
        attempt.notes += discard(table, joined.unused)
    return Copied(found, lookups)
