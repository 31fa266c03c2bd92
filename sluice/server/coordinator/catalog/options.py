"""Fluss's table options: names, defaults, and which ones may change.

See docs/fluss/types-and-options.md#table-options
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from sluice.did_you_mean import did_you_mean
from sluice.errors import InvalidConfig
from sluice.formats.log.log_format import LOG_FORMAT
from sluice.iceberg_rules.lake_tables import NAME_OPTIONS
from sluice.model.durations import duration_ms

DATALAKE_ENABLED = "table.datalake.enabled"
DATALAKE_FORMAT = "table.datalake.format"
DATALAKE_FRESHNESS = "table.datalake.freshness"
REPLICATION_FACTOR = "table.replication.factor"
AUTO_INCREMENT_CACHE_SIZE = "table.auto-increment.cache-size"
AUTO_PARTITION_ENABLED = "table.auto-partition.enabled"
AUTO_PARTITION_KEY = "table.auto-partition.key"
AUTO_PARTITION_TIME_UNIT = "table.auto-partition.time-unit"
AUTO_PARTITION_TIME_ZONE = "table.auto-partition.time-zone"
AUTO_PARTITION_PRECREATE = "table.auto-partition.num-precreate"
AUTO_PARTITION_RETENTION = "table.auto-partition.num-retention"
_ALIKE = 0.8
_INT_MIN, _INT_MAX = -(2**31), 2**31 - 1

DURATIONS = frozenset({DATALAKE_FRESHNESS, "table.log.ttl", "table.log.local-ttl"})
BOOLEANS = frozenset(
    {
        DATALAKE_ENABLED,
        "table.datalake.auto-compaction",
        "table.datalake.auto-expire-snapshot",
        "table.datalake.historical-partition.enabled",
        AUTO_PARTITION_ENABLED,
        "table.kv.standby-replica.enabled",
    }
)
NUMBERS = frozenset(
    {
        REPLICATION_FACTOR,
        "table.log.arrow.compression.zstd.level",
        "table.log.tiered.local-segments",
        "table.kv.format-version",
        AUTO_PARTITION_PRECREATE,
        AUTO_PARTITION_RETENTION,
        AUTO_INCREMENT_CACHE_SIZE,
    }
)
RANGES: Mapping[str, tuple[int, int]] = {
    "table.log.arrow.compression.zstd.level": (1, 22),
    "table.log.tiered.local-segments": (1, _INT_MAX),
    AUTO_PARTITION_PRECREATE: (_INT_MIN, _INT_MAX),
    AUTO_PARTITION_RETENTION: (_INT_MIN, _INT_MAX),
}
"""The smallest and the largest value of numbers that Fluss limits."""
CHOICES: Mapping[str, tuple[str, ...]] = {
    LOG_FORMAT: ("ARROW", "INDEXED", "COMPACTED"),
    "table.log.arrow.compression.type": ("ZSTD", "NONE", "LZ4_FRAME"),
    "table.kv.format": ("COMPACTED", "INDEXED"),
    DATALAKE_FORMAT: ("paimon", "iceberg", "lance", "hudi"),
    "table.merge-engine": ("first_row", "versioned", "aggregation"),
    "table.delete.behavior": ("ALLOW", "IGNORE", "DISABLE"),
    "table.changelog.image": ("FULL", "WAL"),
    AUTO_PARTITION_TIME_UNIT: ("HOUR", "DAY", "MONTH", "QUARTER", "YEAR"),
}
TEXTS = frozenset(
    {
        *NAME_OPTIONS,
        "table.merge-engine.versioned.ver-column",
        "table.statistics.columns",
        AUTO_PARTITION_KEY,
        AUTO_PARTITION_TIME_ZONE,
    }
)
KNOWN = DURATIONS | BOOLEANS | NUMBERS | frozenset(CHOICES) | TEXTS

ALTERABLE = frozenset(
    {
        DATALAKE_ENABLED,
        DATALAKE_FRESHNESS,
        "table.datalake.auto-compaction",
        "table.datalake.auto-expire-snapshot",
        "table.log.ttl",
        "table.log.tiered.local-segments",
    }
)
"""Options that ALTER_TABLE may change; custom properties may always change."""


def checked_option(key: str, value: str) -> str:
    """Checks an option and returns its stored value, with booleans in lower case.

    :raises InvalidConfig: the option is unknown to Fluss, or the value is not allowed.
    """
    if key not in KNOWN:
        raise InvalidConfig(
            f"unknown table option {key!r}: Fluss has no such option; put your own options and"
            " those of the lake (iceberg.*) in custom_properties, without the prefix 'table.'"
            f"{did_you_mean(key, KNOWN, cutoff=_ALIKE)}"
        )
    if key in DURATIONS:
        duration_ms(key, value)
    elif key in BOOLEANS and value.lower() not in ("true", "false"):
        raise InvalidConfig(f"{key} = {value!r}: expected true or false")
    elif key in NUMBERS and not re.fullmatch(r"-?\d{1,19}", value):
        raise InvalidConfig(f"{key} = {value[:40]!r}: expected a whole number of at most 19 digits")
    elif key in RANGES and not RANGES[key][0] <= int(value) <= RANGES[key][1]:
        smallest, largest = RANGES[key]
        raise InvalidConfig(f"{key} = {value}: expected a number from {smallest} to {largest}")
    elif key in CHOICES and value.upper() not in {choice.upper() for choice in CHOICES[key]}:
        raise InvalidConfig(f"{key} = {value!r}: expected one of {', '.join(CHOICES[key])}")
    return value.lower() if key in BOOLEANS else value
