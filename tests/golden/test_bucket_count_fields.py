"""Fields of bucket counts, in bytes that the messages of Fluss's Java client 1.0.0 have written."""

from __future__ import annotations

from typing import Any

import pytest

from sluice.wire import fluss_api_pb2 as pb

_SPEC = pb.PbPartitionSpec(partition_key_values=[pb.PbKeyValue(key="day", value="d1")])
_PATH = pb.PbTablePath(database_name="db", table_name="t")
_TABLE = {"table_id": 3, "schema_id": 1, "table_json": b"{}", "bucket_count_epoch": 2}
_TIMES = {"created_time": 5, "modified_time": 6}
_BUCKET = {"partition_id": 7, "bucket_id": 1, "routing_bucket_count": 4}

MESSAGES: list[tuple[Any, str]] = [
    (
        pb.PbPartitionInfo(partition_id=7, partition_spec=_SPEC, bucket_count=4),
        "0807120b0a090a03646179120264312004",
    ),
    (
        pb.PbPartitionMetadata(table_id=3, partition_name="d1", partition_id=7, bucket_count=4),
        "08031202643118072804",
    ),
    (
        pb.PbTableMetadata(table_path=_PATH, **_TABLE, **_TIMES),
        "0a070a0264621201741003180122027b7d300538064802",
    ),
    (pb.GetTableInfoResponse(**_TABLE, **_TIMES), "080310011a027b7d200528063802"),
    (pb.PbProduceLogReqForBucket(records=b"r", **_BUCKET), "080710011a01722804"),
    (pb.PbPutKvReqForBucket(records=b"r", **_BUCKET), "080710011a01722804"),
    (
        pb.PbFetchLogReqForBucket(fetch_offset=9, max_fetch_bytes=10, **_BUCKET),
        "080710011809200a2804",
    ),
    (pb.PbLookupReqForBucket(keys=[b"k"], **_BUCKET), "080710011a016b2804"),
    (pb.PbPrefixLookupReqForBucket(keys=[b"k"], **_BUCKET), "080710011a016b2004"),
    (pb.LimitScanRequest(table_id=3, limit=9, **_BUCKET), "10031807200128093004"),
    (pb.PbScanReqForBucket(table_id=3, limit=9, **_BUCKET), "08031007180120092804"),
    (
        pb.ListOffsetsRequest(
            follower_server_id=-1,
            offset_type=1,
            table_id=3,
            partition_id=7,
            bucket_id=[1],
            routing_bucket_count=4,
        ),
        "08ffffffffffffffffff011001180320072a01013804",
    ),
    (pb.PbTableStatsReqForBucket(**_BUCKET), "080710011804"),
    (
        pb.AlterTableRequest(
            table_path=_PATH,
            ignore_if_not_exists=False,
            modify_bucket_count=pb.PbModifyBucketCount(new_bucket_count=4),
        ),
        "0a070a026462120174100042020804",
    ),
]


@pytest.mark.parametrize(("message", "hexed"), MESSAGES, ids=lambda one: type(one).__name__)
def test_the_bytes_are_those_of_fluss_1(message: Any, hexed: str) -> None:
    assert message.SerializeToString().hex() == hexed
    assert type(message).FromString(bytes.fromhex(hexed)) == message
