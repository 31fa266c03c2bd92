"""Which properties a lake table may have, and their values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sluice.errors import UnsupportedLakeOption
from sluice.model import TableInfo

_PROPERTY_PREFIX = "iceberg."
"""A property of a Fluss table that becomes one of its lake table, without this prefix."""
_CODEC, _LEVEL = "write.parquet.compression-codec", "write.parquet.compression-level"
_LEVELS = {"zstd": (1, 22), "gzip": (1, 9), "brotli": (0, 11)}
_MODES = ("write.delete.mode", "write.update.mode", "write.merge.mode")
_REFUSED = {
    "location": "is not supported: the catalog chooses the location of a table; to store its data"
    " elsewhere, set iceberg.write.data.path",
    "encryption.key-id": "is not supported: Sluice writes no encrypted tables; remove it",
}
_ALLOWED = {
    "write.format.default": ("parquet",),
    "write.delete.format.default": ("parquet",),
    _CODEC: ("zstd", "snappy", "gzip", "brotli", "lz4", "lz4_raw", "uncompressed", "none"),
    "write.parquet.page-version": ("v1", "v2", "parquet_1_0", "parquet_2_0"),
    "gc.enabled": ("true", "false"),
}
_NUMBERS = (
    "write.target-file-size-bytes",
    "write.parquet.row-group-size-bytes",
    "write.parquet.page-size-bytes",
    "write.parquet.page-row-limit",
    "write.parquet.dict-size-bytes",
    "commit.manifest.target-size-bytes",
    "commit.manifest.min-count-to-merge",
    "history.expire.max-snapshot-age-ms",
    "history.expire.min-snapshots-to-keep",
    "history.expire.max-ref-age-ms",
)


def check_lake_properties(info: TableInfo) -> None:
    """Checks the lake table's properties that decide what is written, before it is created.

    :raises UnsupportedLakeOption: names a property that Sluice cannot honour, and what to set.
    """
    descriptor = info.descriptor
    for options in (descriptor.properties, descriptor.custom_properties):
        for key, value in options.items():
            if not key.startswith(_PROPERTY_PREFIX):
                continue
            name = key.removeprefix(_PROPERTY_PREFIX)
            why = _why_refused(name, value, options, is_keyed=info.has_primary_key)
            if why:
                raise UnsupportedLakeOption(f"table {info.path}: property {key}={value!r} {why}")


def _why_refused(name: str, value: str, options: Mapping[str, str], *, is_keyed: bool) -> str:
    """Why a property of the lake table is refused; empty if it is not."""
    if name in _REFUSED:
        return _REFUSED[name]
    if (allowed := _ALLOWED.get(name)) is not None and value.lower() not in allowed:
        return f"is not supported: use {_listed(allowed)}"
    if name == "format-version":
        versions = ("2", "3") if is_keyed else ("1", "2", "3")
        return "" if value in versions else f"is not supported: use {_listed(versions)}"
    if name in _MODES and is_keyed:
        return "" if value == "merge-on-read" else "is not supported: remove it"
    if name == _LEVEL:
        codec = options.get(_PROPERTY_PREFIX + _CODEC, "zstd").lower()
        return _why_no_level(codec, value)
    if name in _NUMBERS and not (value.isascii() and value.isdecimal() and int(value) > 0):
        return "is not a whole number above 0"
    return ""


def _why_no_level(codec: str, value: str) -> str:
    bounds = _LEVELS.get(codec)
    if bounds is None:
        return f"is not supported: {codec} has no levels; remove it"
    try:
        level = int(value)
    except ValueError:
        level = bounds[1] + 1
    if bounds[0] <= level <= bounds[1]:
        return ""
    return f"is not supported: {codec} has the levels {bounds[0]} to {bounds[1]}"


def _listed(values: Iterable[str]) -> str:
    return " or ".join(filter(None, (", ".join([*values][:-1]), [*values][-1])))
