"""What of one log is damaged, and which offsets a user has given up.

Damage makes the log refuse reads and writes. Offsets that were given up are lost for ever: readers
get an error that names them, and no batch gets one of them again. An empty file
``<start>-<stop>.lost`` in the folder of the log says so.
"""

from __future__ import annotations

from pathlib import Path

import structlog

from sluice.errors import CorruptRecord, LogOffsetOutOfRange, OutOfOrderSequence
from sluice.server.data_dir import sync_folder
from sluice.server.tablet.logs.segment import Damage

_log = structlog.get_logger("sluice.log")


class LogDamage:
    """The damage of one log, in order. The lock of the log guards it."""

    def __init__(self, name: str, place: str, folder: Path) -> None:
        """:param place: table and bucket as a user names them."""
        self._name = name
        self._place = place
        self._folder = folder
        self.found: list[Damage] = []
        self._lost: list[tuple[int, int]] = []
        for path in folder.glob("*.lost"):
            start, _, stop = path.stem.partition("-")
            self._lose(int(start), int(stop))

    @property
    def end(self) -> int:
        """An offset that all damage is below, as far as that is known; 0 without any."""
        return max((one.stop or one.start for one in self.found), default=0)

    @property
    def is_end_known(self) -> bool:
        """Whether it is known where the log goes on."""
        return all(one.stop is not None for one in self.found)

    @property
    def lost_end(self) -> int:
        """The offset after all that was given up; 0 if nothing was."""
        return self._lost[-1][1] if self._lost else 0

    def add(self, damage: Damage) -> None:
        """Adds damage, unless a user has given it up."""
        is_new = damage.start not in [one.start for one in self.found]
        stop = damage.stop
        if is_new and (stop is None or not self._is_lost(damage.start, stop)):
            self.found = sorted([*self.found, damage], key=lambda one: one.start)
            _log.error("a log is damaged", problem=self.text(damage))

    def text(self, damage: Damage) -> str:
        """What is damaged, and what to do."""
        text = f"bucket {self._name} is damaged and refuses reads and writes: {damage.problem}"
        restore = "Restore the file from a backup while the server is stopped"
        if damage.stop is None:
            return (
                f"{text}. The damage begins at offset {damage.start}, and no file tells where the"
                f" log goes on. {restore}, or drop the table or partition"
            )
        return (
            f"{text}. {restore}, or give the offsets {damage.start} to {damage.stop - 1} up:"
            f" `sluice skip-damaged {self._place}:{damage.start}`"
        )

    def check(self) -> None:
        """:raises CorruptRecord: there is damage."""
        if self.found:
            raise CorruptRecord(self.text(self.found[0]))

    def check_offset(self, offset: int) -> int | None:
        """Where the next range begins that was given up; None without any.

        :raises CorruptRecord: the offset was given up. The details have the range, as
            ``base_offset`` and ``next_offset``.
        """
        for start, stop in self._lost:
            if offset < start:
                return start
            if offset < stop:
                problem = (
                    f"offsets {start} to {stop - 1} are lost: they were damaged on the server's"
                    f" disk and given up. The log goes on at offset {stop}"
                )
                text = f"bucket {self._name}: {problem}"
                raise CorruptRecord(text, base_offset=start, next_offset=stop, problem=problem)
        return None

    def check_kept(self, writer_id: int, sequence: int, base: int) -> None:
        """:raises OutOfOrderSequence: the stored copy of a repeated batch was given up.

        Its writer has the rows, and clients report this error to their user at once.
        """
        if self._is_lost(base, base + 1):
            raise OutOfOrderSequence(
                f"bucket {self._name}: writer {writer_id}: its batch {sequence} was stored at"
                f" offset {base}, was damaged since, and a user has given it up: send its rows"
                " again with a new writer"
            )

    def check_found(self, start: int, stop: int) -> None:
        """:raises LogOffsetOutOfRange: exactly these offsets are not damaged."""
        if (start, stop) not in [(one.start, one.stop) for one in self.found]:
            raise LogOffsetOutOfRange(
                f"bucket {self._name}: offsets {start} to {stop - 1} are not damaged: there is"
                " nothing to give up"
            )

    def give_up(self, start: int, stop: int) -> None:
        """Stores, durably, that a damaged range is lost. :raises OSError: it is not stored."""
        (self._folder / f"{start:020d}-{stop:020d}.lost").touch()
        sync_folder(self._folder)
        self._lose(start, stop)
        self.found = [one for one in self.found if not _is_within(one, start, stop)]
        _log.warning("damaged offsets were given up", bucket=self._name, start=start, stop=stop)

    def forget_before(self, offset: int) -> None:
        """Forgets damage that is no part of the log any more, which begins there."""
        self.found = [one for one in self.found if one.stop is None or one.stop > offset]
        self._lost = [(max(start, offset), stop) for start, stop in self._lost if stop > offset]

    def _lose(self, start: int, stop: int) -> None:
        """Adds a range; ranges that touch become one."""
        apart = [one for one in self._lost if one[1] < start or stop < one[0]]
        start = min([start, *(one[0] for one in self._lost if one not in apart)])
        stop = max([stop, *(one[1] for one in self._lost if one not in apart)])
        self._lost = sorted([*apart, (start, stop)])

    def _is_lost(self, start: int, stop: int) -> bool:
        return any(first <= start and stop <= end for first, end in self._lost)


def _is_within(damage: Damage, start: int, stop: int) -> bool:
    return damage.stop is not None and start <= damage.start and damage.stop <= stop
