"""Encodes the primary keys of a KV store (docs/fluss/keys-and-buckets.md#key-encoders)."""

from __future__ import annotations

import pyarrow as pa

from sluice.errors import InvalidConfig
from sluice.formats.keys.bucketing import bucket_keys
from sluice.formats.keys.keys import encode_key
from sluice.model import TableInfo

KV_FORMAT_VERSION = "table.kv.format-version"


def physical_primary_key(info: TableInfo) -> tuple[str, ...]:
    """Returns the primary key without the partition keys, in its own order."""
    partition_keys = info.descriptor.partition_keys
    return tuple(name for name in info.schema.primary_key if name not in partition_keys)


def primary_keys(batch: pa.RecordBatch, info: TableInfo) -> pa.Array:
    """Returns the primary key of each row as a binary array; ``batch`` needs only key columns.

    :raises InvalidConfig: the KV format version is not supported.
    :raises InvalidTable: a key is null. :raises UnsupportedType: see ``encode_key``.
    """
    return encode_key(batch, physical_primary_key(info), info.schema, key_format(info))


def has_key_of_its_own(info: TableInfo) -> bool:
    """Returns whether clients before version 1 of PutKv and look-ups cannot encode these keys.

    Such clients use the encoder of the lake format for every table.
    """
    version = info.descriptor.properties.get(KV_FORMAT_VERSION)
    is_default = bucket_keys(info) == physical_primary_key(info)
    return info.datalake_format is not None and version == "2" and not is_default


def key_format(info: TableInfo) -> str | None:
    """Returns the lake format that selects the key encoder; None is Fluss's own, Compacted.

    Version 2 uses Fluss's own encoder if the bucket key is a part of the primary key, because a
    look-up by prefix needs key bytes that start with the bucket key's. Hudi's is ambiguous.

    :raises InvalidConfig: the KV format version is not supported.
    """
    lake = info.datalake_format
    if (lake or "").lower() == "hudi":
        return None
    version = info.descriptor.properties.get(KV_FORMAT_VERSION, "1")
    if version == "1":
        return lake
    if version != "2":
        raise InvalidConfig(
            f"table {info.path}: {KV_FORMAT_VERSION} {version!r} is not supported, only 1 and 2"
        )
    return lake if bucket_keys(info) == physical_primary_key(info) else None
