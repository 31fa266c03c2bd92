"""The splits of a round, copied one after the other in this thread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sluice.rounds.copy.split import copy_split
from sluice.rounds.values.ports import LogSource, SplitRunner, SplitWriterFactory
from sluice.rounds.values.types import Split, SplitFailure, SplitResult


def in_turn(source: LogSource, writers: SplitWriterFactory) -> SplitRunner:
    """Runs the splits that it is given, each to its end."""

    def run(splits: Sequence[Split]) -> Iterator[SplitResult | SplitFailure]:
        for split in splits:
            yield copy_split(split, source, writers)

    return run
