"""What a round tells whoever watches it, such as a progress bar."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Called on the round's own thread, ``copied`` also on those that copy: return quickly."""

    def phase(self, name: str) -> None:
        """A phase begins: recover, plan, copy, prepare, lake_commit, fluss_commit."""

    def planned(self, splits: int, offsets: int) -> None:
        """That many splits will be copied, covering that many offsets (about: rows)."""

    def copied(self, rows: int) -> None:
        """So many rows more were copied."""


class NoProgress:
    """Tells nobody."""

    def phase(self, name: str) -> None: ...

    def planned(self, splits: int, offsets: int) -> None: ...

    def copied(self, rows: int) -> None: ...
