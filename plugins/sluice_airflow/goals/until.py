"""What a table sensor waits for, as a user writes it. Does not import Airflow."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sluice.errors import ConfigurationError

NOW = "now"
FORMS = (
    "use 'now', a time such as '2026-05-01T00:00:00Z', an end offset for each bucket such as"
    " {'0': 1200}, or the sum of all end offsets such as 1200"
)
_BUCKET = re.compile(r"(?:\d+/)?\d+", re.ASCII)
_OFFSET_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Until:
    """What must be in the lake. All None: what the logs hold when the sensor starts."""

    time_ms: int | None = None
    """Rows written before this time, in epoch milliseconds."""
    ends: Mapping[str, int] | None = None
    """Rows below an offset, by the bucket's name: ``BUCKET`` or ``PARTITION_ID/BUCKET``."""
    offsets_sum: int | None = None
    """So many offsets in all buckets together."""

    @classmethod
    def parse(cls, value: Any) -> Until:
        """Reads the argument ``until``, after its template was rendered.

        :raises ConfigurationError: names the value and the allowed forms.
        """
        if isinstance(value, datetime):
            return cls(time_ms=_epoch_ms(value))
        if isinstance(value, Mapping):
            return cls(ends=_ends(value))
        if isinstance(value, int) and not isinstance(value, bool):
            return cls(offsets_sum=_offset(value, value))
        if isinstance(value, str):
            return cls._of_text(value.strip())
        raise _refused(value)

    @classmethod
    def _of_text(cls, text: str) -> Until:
        if text == NOW:
            return cls()
        if text.isascii() and text.isdecimal():
            return cls(offsets_sum=_offset(text, text))
        if text.startswith("{"):  # a mapping that a template has printed
            try:
                return cls(ends=_ends(ast.literal_eval(text)))
            except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
                raise _refused(text) from None
        try:
            return cls(time_ms=_epoch_ms(datetime.fromisoformat(text)))
        except ValueError:
            raise _refused(text) from None

    def to_json(self) -> dict[str, Any]:
        ends = None if self.ends is None else dict(self.ends)
        return {"time_ms": self.time_ms, "ends": ends, "offsets_sum": self.offsets_sum}


def _epoch_ms(time: datetime) -> int:
    """Rounded up: a row of this millisecond may have been written before the time."""
    aware = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    return math.ceil(aware.timestamp() * 1000)


def _ends(value: Any) -> dict[str, int]:
    if not isinstance(value, Mapping) or not value:
        raise _refused(value)
    ends = {}
    for bucket, offset in value.items():
        name = str(bucket)
        if not _BUCKET.fullmatch(name):
            raise ConfigurationError(
                f"until: bucket {name[:80]!r} is not BUCKET or PARTITION_ID/BUCKET; {FORMS}"
            )
        ends[name] = _offset(offset, value)
    return ends


def _offset(offset: Any, value: Any) -> int:
    is_number = isinstance(offset, int) and not isinstance(offset, bool)
    if isinstance(offset, str) and offset.isascii() and offset.isdecimal() and len(offset) < 20:
        offset, is_number = int(offset), True
    if not is_number or not 0 <= offset <= _OFFSET_MAX:
        raise _refused(value)
    return int(offset)


def _refused(value: Any) -> ConfigurationError:
    return ConfigurationError(f"until: {str(value)[:200]!r} is not understood; {FORMS}")
