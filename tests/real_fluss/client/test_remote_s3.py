"""Remote segments that a real Fluss keeps on S3, read with the token that it hands out."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import fs

from sluice.client import connect
from sluice.config import ClientConfig
from sluice.errors import StorageError
from sluice.formats.types.types import schema_from_arrow
from sluice.model import TableBucket, TableDescriptor, TablePath
from tests.support.clusters.s3_server import S3Server
from tests.support.fluss.s3_fluss import CLUSTER_KEY, S3Fluss
from tests.support.fluss.table_creation import create_table

pytestmark = [pytest.mark.real_fluss, pytest.mark.long]
SCHEMA = pa.schema([("id", pa.int64()), ("value", pa.float64())])
ROWS = 160_000


def test_segments_on_s3_are_read_with_the_clusters_token(tmp_path: Path) -> None:
    path = TablePath("remote", "events")
    with S3Server() as s3:
        owner = s3.bucket("fluss")
        with S3Fluss(tmp_path / "fluss", s3, "fluss") as fluss, connect(fluss.bootstrap) as client:
            client.admin.create_database(path.database)
            described = TableDescriptor(
                schema_from_arrow(SCHEMA),
                bucket_count=1,
                properties={"table.log.tiered.local-segments": "1"},
            )
            create_table(client, path, described)
            bucket = TableBucket(client.admin.table_info(path).table_id, None, 0)
            for first in range(0, ROWS, 20_000):
                ids = np.arange(first, first + 20_000)
                values = np.random.default_rng(first).random(20_000)
                with client.log_writer(path) as writer:
                    writer.write(pa.table([ids, values], schema=SCHEMA))
            wait_for_segments(owner, 4)

            def ids_of(reader: ClientConfig) -> list[int]:
                with connect(reader) as other:
                    rows = other.log_reader(path).read(bucket)
                    return [i for r in rows for i in r.batch["id"].to_pylist()]

            plain = ClientConfig(fluss.bootstrap)
            deadline = time.monotonic() + 60
            while not {key for key in s3.seen if key and key != CLUSTER_KEY} - {"tester"}:
                # The server still has them for a moment after they were copied.
                assert ids_of(plain) == list(range(ROWS))
                assert time.monotonic() < deadline, set(s3.seen)
            del s3.seen[:]
            mine = ClientConfig(
                fluss.bootstrap, fs={"s3.access-key": "mine", "s3.secret-key": "secret"}
            )
            assert ids_of(mine) == list(range(ROWS))
            assert "mine" in s3.seen
            for file in log_files(owner):
                owner.delete_file(file)
            with pytest.raises(StorageError, match=r"s3://fluss/remote/.* cannot be read: FileNot"):
                ids_of(plain)


def log_files(owner: fs.S3FileSystem) -> list[str]:
    found = owner.get_file_info(fs.FileSelector("fluss", recursive=True))
    return [info.path for info in found if info.path.endswith(".log")]


def wait_for_segments(owner: fs.S3FileSystem, count: int) -> None:
    deadline = time.monotonic() + 60
    while len(log_files(owner)) < count:
        assert time.monotonic() < deadline, log_files(owner)
        time.sleep(0.2)
