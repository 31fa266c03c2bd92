"""Encodes the primary keys of a KV store (docs/fluss/keys-and-buckets.md#key-encoders)."""

from __future__ import annotations

import pyarrow as pa

from sluice.errors import InvalidConfig
from sluice.formats.bucketing import bucket_keys
from sluice.formats.keys import encode_key
from sluice.model import TableInfo

KV_FORMAT_VERSION = "table.kv.format-version"


def physical_primary_key(info: TableInfo) -> tuple[str, ...]:
    """The primary key without the partition keys, in its own order."""
    partition_keys = info.descriptor.partition_keys
    return tuple(name for name in info.schema.primary_key if name not in partition_keys)


def primary_keys(batch: pa.RecordBatch, info: TableInfo) -> pa.Array:
    """The primary key bytes of each row, a binary array; ``batch`` needs the key columns only.

    :raises InvalidConfig: for a KV format version that is not known.
    :raises InvalidTable: for a null key. :raises UnsupportedType: as ``encode_key``.
    """
    return encode_key(batch, physical_primary_key(info), info.schema, key_format(info))


def has_key_of_its_own(info: TableInfo) -> bool:
    """Whether the keys are such as clients before version 1 of PutKv and the look-ups do not know.

    Those take the encoder of the lake format for every table.
    """
    version = info.descriptor.properties.get(KV_FORMAT_VERSION)
    is_default = bucket_keys(info) == physical_primary_key(info)
    return info.datalake_format is not None and version == "2" and not is_default


def key_format(info: TableInfo) -> str | None:
    """The lake format whose encoder makes the primary key; None is Fluss's own, Compacted.

    Version 2 takes Fluss's own where the bucket key is a part of the primary key, because a look-up
    by prefix needs the one's bytes to begin the other's. Hudi's would not tell keys apart.

    :raises InvalidConfig: for a KV format version that is not known.
    """
    lake = info.datalake_format
    if (lake or "").lower() == "hudi":
        return None
    version = info.descriptor.properties.get(KV_FORMAT_VERSION, "1")
    if version == "1":
        return lake
    if version != "2":
        raise InvalidConfig(f"{KV_FORMAT_VERSION} {version!r} of {info.path}: known are 1 and 2")
    return lake if bucket_keys(info) == physical_primary_key(info) else None
