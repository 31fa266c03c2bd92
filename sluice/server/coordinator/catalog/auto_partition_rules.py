"""Which partitions a table gets and loses by time: Fluss's rules, without clock and store.

See docs/fluss/types-and-options.md#automatic-partitions. Deliberate differences from Fluss: an
unknown time zone is refused, where Fluss takes GMT; a table by days gets its next partition at
once, where Fluss waits up to 23 hours so that many tables do not get theirs at midnight.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

from sluice.errors import InvalidConfig, InvalidTable
from sluice.model import TablePath
from sluice.server.coordinator.catalog.options import (
    AUTO_PARTITION_ENABLED,
    AUTO_PARTITION_KEY,
    AUTO_PARTITION_PRECREATE,
    AUTO_PARTITION_RETENTION,
    AUTO_PARTITION_TIME_UNIT,
    AUTO_PARTITION_TIME_ZONE,
)

_UNIT, _PRECREATE, _RETENTION = "DAY", "2", "7"
_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
_OFFSET = re.compile(r"GMT([+-])(\d{1,2})(?::?([0-5]\d))?")
"""Zones that Java knows besides those of the time zone database."""


@dataclass(frozen=True, slots=True)
class AutoPartitions:
    """How a table is partitioned by time."""

    key: int
    """The position of the time's column among the partition keys."""
    unit: str
    """HOUR, DAY, MONTH, QUARTER or YEAR."""
    zone: tzinfo | None
    """None: the zone of the server."""
    precreate: int
    """How many partitions exist from the current one on."""
    retention: int
    """How many partitions before the current one are kept; negative: all."""

    def wanted(self, now_ms: int, most: int) -> list[str]:
        """The values of the partitions that must exist, the current one first.

        :param most: more are not returned.
        """
        names = (self._value(now_ms, ahead) for ahead in range(min(self.precreate, most)))
        return [name for name in names if name is not None]

    def expired(self, now_ms: int, value: str) -> bool:
        """Whether a partition with this value of the time is older than those to keep.

        Values are compared as texts, as in Fluss, so other values than times may count as old.
        """
        oldest = None if self.retention < 0 else self._value(now_ms, -self.retention)
        return oldest is not None and value < oldest

    def _value(self, now_ms: int, ahead: int) -> str | None:
        """The value of the partition that many units after the current one; None: no such year."""
        try:
            now = datetime.fromtimestamp(now_ms / 1000, self.zone)
            if self.unit == "HOUR":
                later = datetime.fromtimestamp(now_ms / 1000 + 3600 * ahead, self.zone)
                return f"{later.year:04}{later.month:02}{later.day:02}{later.hour:02}"
            if self.unit == "DAY":
                day = now.date() + timedelta(days=ahead)
                return f"{day.year:04}{day.month:02}{day.day:02}"
        except (ValueError, OverflowError, OSError):
            return None
        year, month = divmod(now.year * 12 + now.month - 1 + ahead * _MONTHS[self.unit], 12)
        if not 1 <= year <= 9999:
            return None
        within = {"MONTH": f"{month + 1:02}", "QUARTER": f"{month // 3 + 1}", "YEAR": ""}
        return f"{year:04}{within[self.unit]}"


def auto_partitions(
    properties: Mapping[str, str], partition_keys: Sequence[str]
) -> AutoPartitions | None:
    """How a table of these checked properties is partitioned by time; None: it is not.

    :raises InvalidConfig: this machine does not know the time zone.
    """
    if properties.get(AUTO_PARTITION_ENABLED, "false") != "true":
        return None
    key = properties.get(AUTO_PARTITION_KEY, "")
    return AutoPartitions(
        partition_keys.index(key) if len(partition_keys) > 1 else 0,
        properties.get(AUTO_PARTITION_TIME_UNIT, _UNIT).upper(),
        _zone_of(properties.get(AUTO_PARTITION_TIME_ZONE)),
        int(properties.get(AUTO_PARTITION_PRECREATE, _PRECREATE)),
        int(properties.get(AUTO_PARTITION_RETENTION, _RETENTION)),
    )


def check_auto_partitions(
    path: TablePath, properties: Mapping[str, str], partition_keys: Sequence[str]
) -> None:
    """:raises InvalidConfig, InvalidTable: as Fluss, if the options do not fit the table."""
    if properties.get(AUTO_PARTITION_ENABLED, "false") != "true":
        return
    if not partition_keys:
        raise InvalidConfig(
            f"table {path}: {AUTO_PARTITION_ENABLED} needs a partition key: give the table one, or"
            " remove the option"
        )
    key = properties.get(AUTO_PARTITION_KEY, "")
    if len(partition_keys) > 1:
        if key not in partition_keys:
            raise InvalidTable(
                f"table {path}: {AUTO_PARTITION_KEY} = {key!r}: name the partition key that has the"
                f" time, one of {', '.join(partition_keys)}"
            )
        if int(properties.get(AUTO_PARTITION_PRECREATE, "0")) > 0:
            raise InvalidTable(
                f"table {path}: {AUTO_PARTITION_PRECREATE} must be 0 with several partition keys,"
                " because the values of the others are not known"
            )
    auto_partitions(properties, partition_keys)


def _zone_of(name: str | None) -> tzinfo | None:
    if name is None:
        return None
    if name in ("UTC", "GMT", "Z"):
        return UTC
    if found := _OFFSET.fullmatch(name):
        sign, hours, minutes = found.groups()
        if int(hours) < 24:
            offset = timedelta(hours=int(hours), minutes=int(minutes or 0))
            return timezone(-offset if sign == "-" else offset)
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise InvalidConfig(
            f"{AUTO_PARTITION_TIME_ZONE} = {name!r}: this server does not know the time zone; use a"
            " name such as Europe/Berlin, UTC or GMT+08:00"
        ) from None
