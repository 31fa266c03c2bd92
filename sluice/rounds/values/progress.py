"""The progress of a round, reported to an observer such as a progress bar."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Receives progress on the round's thread, ``copied`` also on copying threads. Return
    quickly.
    """

    def phase(self, name: str) -> None:
        """A phase starts: recover, plan, copy, prepare, lake_commit, fluss_commit."""

    def planned(self, splits: int, offsets: int) -> None:
        """The round will copy this number of splits and offsets (about the number of rows)."""

    def copied(self, rows: int) -> None:
        """This number of further rows was copied."""


class NoProgress:
    """Ignores all progress."""

    def phase(self, name: str) -> None: ...

    def planned(self, splits: int, offsets: int) -> None: ...

    def copied(self, rows: int) -> None: ...
