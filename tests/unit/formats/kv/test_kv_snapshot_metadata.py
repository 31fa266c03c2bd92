"""``_METADATA`` of KV snapshots, as Fluss's own servers write it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from sluice.errors import CorruptMessage
from sluice.formats.kv.snapshot_metadata import (
    KvFile,
    KvSnapshot,
    kv_snapshot_from_json,
    kv_snapshot_to_json,
)
from sluice.model import TableBucket
from tests.golden.files import read

SNAPSHOT = KvSnapshot(
    TableBucket(1, 10, 1),
    1,
    "oss://bucket/snapshot",
    (KvFile("oss://bucket/snapshot/shared/t1.sst", 1, "localPath1"),),
    (KvFile("oss://bucket/snapshot/snapshot1/t3", 3, "localPath3"),),
    5,
    10,
)
# the shape of Fluss's own test of this file
TEXT = (
    '{"version":1,"table_id":1,"partition_id":10,"bucket_id":1,"snapshot_id":1,'
    '"snapshot_location":"oss://bucket/snapshot","kv_snapshot_handle":{"shared_file_handles":'
    '[{"kv_file_handle":{"path":"oss://bucket/snapshot/shared/t1.sst","size":1},'
    '"local_path":"localPath1"}],"private_file_handles":[{"kv_file_handle":'
    '{"path":"oss://bucket/snapshot/snapshot1/t3","size":3},"local_path":"localPath3"}],'
    '"snapshot_incremental_size":5},"log_offset":10}'
)


def test_it_is_written_as_fluss_writes_it() -> None:
    assert kv_snapshot_to_json(SNAPSHOT).decode() == TEXT
    assert kv_snapshot_from_json(TEXT.encode()) == SNAPSHOT
    counted, text = replace(SNAPSHOT, row_count=1234), TEXT[:-1] + ',"row_count":1234}'
    assert kv_snapshot_to_json(counted).decode() == text
    assert kv_snapshot_from_json(text.encode()) == counted


def test_one_of_a_real_server_is_read() -> None:
    content = read("kv_snapshot/snap-0/_METADATA")
    snapshot = kv_snapshot_from_json(content)
    assert snapshot.row_count == 7
    assert json.loads(kv_snapshot_to_json(snapshot)) == json.loads(content)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"7",
        b'{"version":1}',
        TEXT.replace('"version":1', '"version":2').encode(),
        TEXT.replace('"size":1', '"size":"x"').encode(),
        TEXT.replace('"log_offset":10', '"log_offset":10,"row_count":"many"').encode(),
        TEXT.replace("shared_file_handles", "other").encode(),
    ],
)
def test_what_is_none_is_refused(content: bytes) -> None:
    with pytest.raises(CorruptMessage, match="metadata"):
        kv_snapshot_from_json(content)
