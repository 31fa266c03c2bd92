"""A file of rows, the table that it is appended to, and commands that are killed meanwhile."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from sluice.client import connect
from sluice.model import TableBucket, TablePath
from tests.support.harness.findings import finding
from tests.support.programs.forked_command import ForkedCommand

ROWS = 60_000
SCHEMA = "id BIGINT NOT NULL, region STRING NOT NULL, note STRING"
CONTINUES = re.compile(
    r"The first ([\d,]+) of 60,000 rows of \S+ are acknowledged\."
    r"(?: Up to ([\d,]+) rows? after them may be stored, too: .*)? Continue with:\n(sluice .*)"
)
LAYOUTS = {
    "plain": ("--buckets", "1"),
    "round": ("--buckets", "3"),
    "keyed": ("--buckets", "3", "--bucket-key", "id"),
    "primary": ("--buckets", "3", "--primary-key", "id"),
    "parted": ("--buckets", "2", "--partition-by", "region"),
}


class Appending:
    """A table of a cluster, and files."""

    def __init__(self, home: Path, address: Callable[[], str], database: str = "shop") -> None:
        """:param address: of the cluster, as it is now."""
        self.home = home
        self.address = address
        self.table = TablePath(database, "orders")

    def create(self, layout: str) -> None:
        words = ("create-table", str(self.table), "--schema", SCHEMA, *LAYOUTS[layout])
        assert self.run(*words).wait() == 0

    def file(self, name: str) -> Path:
        """60,000 rows of some 100 bytes, which make about 80 batches."""
        ids = np.arange(ROWS)
        regions = np.array(["eu", "us", "asia"])[np.random.default_rng(7).integers(0, 3, ROWS)]
        notes = np.char.add("note, with a quoted comma " * 3, ids.astype(str))
        data = pa.table({"id": ids, "region": regions, "note": notes})
        path = self.home / name
        if path.suffix == ".csv":
            pyarrow.csv.write_csv(data, path)
        elif path.suffix == ".jsonl":
            path.write_text("".join(json.dumps(row) + "\n" for row in data.to_pylist()))
        else:
            pq.write_table(data, path, row_group_size=20_000)
        return path

    def run(self, *arguments: str, failpoints: str = "") -> ForkedCommand:
        """A command that has ended, or was killed."""
        command = self.begin(*arguments, failpoints=failpoints)
        command.wait()
        return command

    def begin(self, *arguments: str, failpoints: str = "") -> ForkedCommand:
        env = {
            "SLUICE_CLIENT_BOOTSTRAP": self.address(),
            "SLUICE_CLIENT_RETRY_TIMEOUT_MS": "300",
            "SLUICE_CLIENT_REQUEST_TIMEOUT_MS": "5000",
            "SLUICE_CLIENT_WRITER_BATCH_BYTES": "100000",
        }
        return ForkedCommand(self.home, *arguments, env=env, failpoints=failpoints)

    def append(self, path: Path, failpoints: str = "") -> ForkedCommand:
        return self.run(*self.words(path), failpoints=failpoints)

    def words(self, path: Path) -> tuple[str, ...]:
        return ("append", str(self.table), str(path), "--create-partitions")

    def ids(self) -> list[int]:
        found: list[int] = []
        with connect(self.address()) as client:
            info = client.admin.table_info(self.table)
            parts = client.admin.partitions(self.table) if info.is_partitioned else [None]
            if info.has_primary_key:
                rows: list[int] = client.limit_scan(self.table, 2 * ROWS).column("id").to_pylist()
                return rows
            reader = client.log_reader(self.table)
            for part in parts:
                for number in range(info.bucket_count):
                    bucket = TableBucket(info.table_id, part and part.partition_id, number)
                    for records in reader.read(bucket):
                        found += records.batch.column("id").to_pylist()
        return found

    @finding()
    def check_whole(self, doubles_max: int = 0) -> None:
        """Each row of the file is there, and at most so many rows twice."""
        found = self.ids()
        assert set(found) == set(range(ROWS))
        assert len(found) <= ROWS + doubles_max

    @finding()
    def check_first(self, stored: int) -> None:
        """What is told to be stored is."""
        assert set(range(stored)) <= set(self.ids())


def told(text: str) -> tuple[int, int, tuple[str, ...]]:
    """How many rows are acknowledged, how many more may be stored, and the next command's words."""
    found = CONTINUES.search(text)
    assert found, text
    stored, doubtful = (int((number or "0").replace(",", "")) for number in found.groups()[:2])
    return stored, doubtful, tuple(shlex.split(found[3])[1:])
