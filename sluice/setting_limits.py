"""Limits of settings: a value, or a pair of values, that cannot work is refused at the start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sluice.errors import ConfigurationError

CLAIM_TIMEOUT_MIN_MS = 3_000
"""Shortest time without a heartbeat after which a claim ends. Workers send three within it."""

_MESSAGE_MIN_BYTES = 64 * 1024
_MESSAGE_MAX_BYTES = 2**31 - 1
"""Fluss's protocol has lengths of 32 bits."""
_TIME_MAX_MS = 10**12
"""Longest time that the system can wait for, rounded down: about 30 years."""

_UNITS = {"ms": " of milliseconds", "bytes": " of bytes", "rows": " of rows"}
_LOCAL_PATHS = {"data_dir", "users_file", "tls_certificate", "tls_key", "tls_ca", "spill_dir"}
"""Settings of files and folders of this machine, whose names may have any bytes."""

_LEAST: Mapping[str, Mapping[str, int]] = {
    "client": {
        "request_timeout_ms": 1,
        "retry_timeout_ms": 1,
        "connect_timeout_ms": 1,
        "max_message_bytes": _MESSAGE_MIN_BYTES,
        "fetch_max_bytes": 1,
        "fetch_max_bytes_per_bucket": 1,
        "scan_max_bytes": 1,
        "scan_keep_alive_ms": 1,
        "writer_batch_bytes": 1,
        "writer_max_inflight": 1,
        "tiering_status_timeout_ms": 1,
    },
    "server": {
        "max_message_bytes": _MESSAGE_MIN_BYTES,
        "max_batch_rows": 1,
        "default_bucket_count": 1,
        "segment_bytes": 1,
        "sync_interval_ms": 1,
        "tiering_timeout_ms": CLAIM_TIMEOUT_MIN_MS,
        "tiering_check_interval_ms": 1,
        "auto_partition_check_interval_ms": 1,
        "kv_snapshot_num_retained": 1,
        "kv_snapshot_lease_check_interval_ms": 1,
        "kv_write_buffer_bytes": 1,
        "kv_max_open_tablets": 1,
        "kv_scanner_ttl_ms": 1,
        "kv_scanner_expiration_interval_ms": 1,
        "kv_scanner_max_per_bucket": 1,
        "kv_scanner_max_per_server": 1,
        "kv_scanner_max_batch_bytes": 1,
        "max_workers": 2,
        "idle_timeout_ms": 1,
    },
    "tiering": {
        "parallelism": 1,
        "row_group_rows": 1,
        "row_group_bytes": 1,
        "changes_memory_bytes": 1,
    },
}
_REASONS = {
    "tiering_timeout_ms": "workers send a heartbeat every second at most",
    "max_message_bytes": "smaller messages do not hold a batch",
    "max_workers": "one thread may wait for new rows",
}
_MOST: Mapping[str, Mapping[str, int]] = {
    "client": dict.fromkeys(
        ("max_message_bytes", "fetch_max_bytes", "fetch_max_bytes_per_bucket", "scan_max_bytes"),
        _MESSAGE_MAX_BYTES,
    ),
    "server": {"max_message_bytes": _MESSAGE_MAX_BYTES},
}
_AT_MOST_THE_OTHER = (
    (
        "server.tiering_check_interval_ms",
        "server.tiering_timeout_ms",
        "a lost worker would be noticed later than this timeout says",
    ),
    (
        "server.kv_scanner_expiration_interval_ms",
        "server.kv_scanner_ttl_ms",
        "a scan would be ended later than this time says",
    ),
)


def check_text(key: str, value: str, where: str) -> None:
    """Checks the characters of a value, which may be a secret and is not shown.

    :param key: the setting without its section.
    :param where: the start of the error message.
    :raises ConfigurationError: names the character, or the byte of an environment variable.
    """
    if "\0" in value:
        raise ConfigurationError(f"{where}: the value has a NUL character; remove it")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        if key in _LOCAL_PATHS:
            return
        at = len(value[: error.start].encode()) + 1
        byte = ord(value[error.start]) & 0xFF  # as `surrogateescape` has it
        raise ConfigurationError(
            f"{where}: byte {at} of the value (0x{byte:02x}) is not UTF-8; set it in UTF-8"
        ) from None


def lowered_defaults(section: str, given: Mapping[str, Any], defaults: object) -> dict[str, Any]:
    """The defaults of a section that must be lower, because a given setting limits them.

    :param given: the settings of the section that were given, by name.
    :param defaults: the section without given settings.
    """
    found = {}
    for small, large, _ in _AT_MOST_THE_OTHER:
        name, other = small.partition(".")[2], large.partition(".")[2]
        if small.startswith(f"{section}.") and name not in given and other in given:
            found[name] = min(getattr(defaults, name), given[other])
    return found


def check_limits(section: str, values: Mapping[str, Any]) -> None:
    """Checks the settings of a section against each other and on their own.

    :param values: all settings of the section by name.
    :raises ConfigurationError: a value, or a pair of values, cannot work.
    """
    least, most = _LEAST.get(section, {}), _MOST.get(section, {})
    for name, value in values.items():
        if not isinstance(value, int) or isinstance(value, bool):
            continue
        at_most = most.get(name, _TIME_MAX_MS if name.endswith("_ms") else 2**63 - 1)
        if value < least.get(name, 0):
            why = f": {_REASONS[name]}" if name in _REASONS else ""
            raise ConfigurationError(
                f"{section}.{name}: {value} is less than {least[name]}, the least that works{why}"
            )
        if value > at_most:
            raise ConfigurationError(
                f"{section}.{name}: {value} is more than {at_most}, the most that works"
            )
    for small, large, why in _AT_MOST_THE_OTHER:
        name, other = small.partition(".")[2], large.partition(".")[2]
        if small.startswith(f"{section}.") and values[name] > values[other]:
            raise ConfigurationError(
                f"{small}: {values[name]} is more than {large}, {values[other]}: {why}; lower"
                f" {name} or raise {other}"
            )


def check_lake_switch(lake_format: str, enabled: str) -> None:
    """Checks ``datalake.enabled``, which Fluss 1.0 has beside ``datalake.format``.

    :raises ConfigurationError: it is not true or false, or true without a format.
    """
    if enabled not in ("", "true", "false"):
        raise ConfigurationError(f"datalake.enabled is {enabled!r}: use true or false")
    if enabled == "true" and lake_format == "none":
        raise ConfigurationError(
            "datalake.enabled is true, but datalake.format is none: set a format, or remove one"
        )


def converted(value: Any, kind: type, where: str, key: str) -> Any:
    """A setting's value as its type.

    :param kind: bool, int or str. :param where: names the setting in an error.
    :raises ConfigurationError: it is no such value.
    """
    if kind is bool:
        if isinstance(value, bool):
            return value
        if str(value).lower() in ("true", "false"):
            return str(value).lower() == "true"
        raise ConfigurationError(f"{where}: expected true or false, found {value!r}")
    if kind is int:
        unit = _UNITS.get(key.rpartition("_")[2], "")
        wanted = f"expected a whole number{unit}, 0 or more"
        try:
            number = int(value)
        except (TypeError, ValueError):
            raise ConfigurationError(f"{where}: {wanted}, found {value!r}") from None
        if number < 0 or isinstance(value, float | bool):
            raise ConfigurationError(f"{where}: {wanted}, found {value!r}")
        return number
    if isinstance(value, list | dict):
        raise ConfigurationError(f"{where}: expected a text, found a {type(value).__name__}")
    return str(value)
