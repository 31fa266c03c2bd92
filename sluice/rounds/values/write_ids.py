"""Write ids: file names that prove by themselves whether a round can still commit the file.

    <base>-<table>-<unique>      for example  17-9f3a1c22d0e14b6f-5b1c6c1e-...

``base`` is the sequence number of the planned base, the newest tiering snapshot when the round was
planned (0 if there was none). ``table`` is the first 16 hex digits of the lake table's UUID.
``unique`` is a uuid5 of table id, epochs, attempt and a random number. The fence lets a round
commit only on its base. Once the newest tiering snapshot has a higher sequence number, the round is
dead, and its unreferenced files are orphans. The proof is in the file's name: it is created with
the file, cannot be lost, and needs no clock.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
from typing import NamedTuple

from sluice.model import Claim
from sluice.rounds.values.types import LakeSnapshot

_NAMESPACE = uuid.UUID("5f6c9f9e-5e0f-5f0c-9a63-1d8a8f1c7e11")
_TABLE_DIGITS = 16
_UUID5 = r"[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}"
_ID = rf"(\d{{1,19}})-([0-9a-f]{{{_TABLE_DIGITS}}})-({_UUID5})"
_PATTERN = re.compile(rf"(?<![0-9a-z]){_ID}(?![0-9a-z])")
_REWRITTEN = re.compile(r"-rewrite(\d+)")
_PART = re.compile(r"-part(\d+)")
_PLACE = re.compile(rf"(\d+)-\d+-{_ID}((?:-[a-z]+\d*)*)-(\d+)\.parquet")


class RowOrder(NamedTuple):
    """Where the rows of a log table's file come in the order of the log, by its name."""

    base: int
    """Sequence number of the base of the round that wrote the rows; -1: others wrote the file."""
    bucket: int
    part: int
    """Of a long window that was copied in parts."""
    counter: int
    name: str


@dataclass(frozen=True, slots=True)
class WriteId:
    """Identifies the attempt of a round that wrote a file, and its planned base."""

    base: int
    """Sequence number of the planned base; 0 if there was none."""
    table: str
    unique: str

    def __str__(self) -> str:
        return f"{self.base}-{self.table}-{self.unique}"

    def is_of(self, table_uuid: str) -> bool:
        """Whether it was written for this lake table, not an earlier one at the same location."""
        return self.table == short_uuid(table_uuid)


def new_write_id(claim: Claim, attempt: str, table_uuid: str, base: LakeSnapshot | None) -> WriteId:
    """Makes a new write id, different at each call.

    An engine such as YARN may start a driver again with the same attempt, when files of the first
    driver are already in the lake.
    """
    start = uuid.uuid4()
    text = f"{claim.table_id}/{claim.coordinator_epoch}/{claim.tiering_epoch}/{attempt}/{start}"
    unique = str(uuid.uuid5(_NAMESPACE, text))
    return WriteId(base.sequence_number if base else 0, short_uuid(table_uuid), unique)


def short_uuid(table_uuid: str) -> str:
    """The part of a lake table's UUID that is used in names."""
    return table_uuid.replace("-", "")[:_TABLE_DIGITS].rjust(_TABLE_DIGITS, "0")


def write_ids_in(text: str) -> list[WriteId]:
    """All write ids in a text: at most one in a file name, several in a snapshot summary."""
    return [WriteId(int(base), table, unique) for base, table, unique in _PATTERN.findall(text)]


def order_of(path: str) -> RowOrder:
    """The place of a log table's file: files in this order have the rows of a bucket in order.

    A compacted file takes the place of its oldest one. Fluss's own tiering gives its files no
    number of a round: their rows are older than those of Sluice.
    """
    name = path.rpartition("/")[2]
    found = _PLACE.fullmatch(name)
    if found is None:
        return RowOrder(-1, 0, 0, 0, name)
    bucket, base, _, _, suffix, counter = found.groups()
    rewritten, part = _REWRITTEN.search(suffix), _PART.search(suffix)
    since = int(rewritten[1] if rewritten else base)
    return RowOrder(since, int(bucket), int(part[1]) if part else 0, int(counter), name)
