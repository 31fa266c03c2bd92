"""Names for what one try of a round writes, which say by themselves when nothing can commit it.

    <base>-<table>-<unique>      for example  17-9f3a1c22d0e14b6f-5b1c6c1e-...

``base`` is the sequence number of the planned base, our newest snapshot when the round was
planned (0 if there was none), ``table`` the first 16 hex digits of the lake table's own uuid,
``unique`` a uuid5 of table id, epochs, attempt and start. The fence lets a round commit only on its
base. So once the newest snapshot of ours has a higher sequence number, the round is dead, and a
file of that name which no snapshot references is nobody's. The proof stands in the name: it appears
with the file, cannot be lost, and needs no clock.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass

from sluice.model import Claim
from sluice.rounds.types import LakeSnapshot

_NAMESPACE = uuid.UUID("5f6c9f9e-5e0f-5f0c-9a63-1d8a8f1c7e11")
_TABLE_DIGITS = 16
_UUID5 = r"[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}"
_PATTERN = re.compile(
    rf"(?<![0-9a-z])(\d{{1,19}})-([0-9a-f]{{{_TABLE_DIGITS}}})-({_UUID5})(?![0-9a-z])"
)


@dataclass(frozen=True, slots=True)
class WriteId:
    """Which try of which round has written a file, and what that try was planned from."""

    base: int
    """Sequence number of the planned base; 0 if there was none."""
    table: str
    unique: str

    def __str__(self) -> str:
        return f"{self.base}-{self.table}-{self.unique}"

    def is_of(self, table_uuid: str) -> bool:
        """Whether it was written for that lake table, and not for one before it at its place."""
        return self.table == short_uuid(table_uuid)


def new_write_id(claim: Claim, attempt: str, table_uuid: str, base: LakeSnapshot | None) -> WriteId:
    """Another one at every call.

    An engine may start a driver again with the same attempt (YARN does): the files of the first
    one may be in the lake by then.
    """
    start = uuid.uuid4()
    text = f"{claim.table_id}/{claim.coordinator_epoch}/{claim.tiering_epoch}/{attempt}/{start}"
    unique = str(uuid.uuid5(_NAMESPACE, text))
    return WriteId(base.sequence_number if base else 0, short_uuid(table_uuid), unique)


def short_uuid(table_uuid: str) -> str:
    """The part of a lake table's uuid that stands in names."""
    return table_uuid.replace("-", "")[:_TABLE_DIGITS].rjust(_TABLE_DIGITS, "0")


def write_ids_in(text: str) -> list[WriteId]:
    """All that stand in a text: in a file's name at most one, in a snapshot's summary several."""
    return [WriteId(int(base), table, unique) for base, table, unique in _PATTERN.findall(text)]
