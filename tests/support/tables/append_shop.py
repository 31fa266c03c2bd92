"""A server, its one table, files, and `sluice append` in the process of the test."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from click.testing import CliRunner, Result

from sluice.cli.main import cli
from sluice.client import connect
from sluice.model import TableBucket, TablePath

CONTINUES = re.compile(
    r"The first ([\d,]+) of 20,000 rows of rows.csv are acknowledged\..* Continue with:\n"
)
ROWS = 20_000
ORDERS = "id BIGINT NOT NULL, note STRING"


class Shop:
    """A server and its one table, and the commands."""

    def __init__(self, address: str, home: Path) -> None:
        self.address = address
        self.home = home
        self.table = TablePath("shop", home.name)

    def run(self, *arguments: str, fails: int = 0, **env: str) -> str:
        settings = {
            "SLUICE_CLIENT_BOOTSTRAP": self.address,
            "SLUICE_CLIENT_WRITER_BATCH_BYTES": "20000",
        }
        done: Result = CliRunner().invoke(cli, arguments, env={**settings, **env})
        assert done.exit_code == fails, done.output
        assert "Traceback" not in done.output
        return done.output

    def create(self, schema: str, *options: str) -> None:
        self.run("create-table", str(self.table), "--schema", schema, *options)

    def append(self, path: Path, *options: str, fails: int = 0, **env: str) -> str:
        return self.run("append", str(self.table), str(path), *options, fails=fails, **env)

    def file(self, rows: int = ROWS, name: str = "rows.csv") -> Path:
        path = self.home / name
        path.write_text("id,note\n" + "".join(f"{i},{i:0100}\n" for i in range(rows)))
        return path

    def ids(self) -> list[int]:
        with connect(self.address) as client:
            info = client.admin.table_info(self.table)
            reader, found = client.log_reader(self.table), list[int]()
            for number in range(info.bucket_count):
                for records in reader.read(TableBucket(info.table_id, None, number)):
                    found += records.batch.column("id").to_pylist()
            return found

    def keys(self) -> list[int]:
        with connect(self.address) as client:
            return sorted(client.limit_scan(self.table, 100_000).column("id").to_pylist())


def command_of(said: str) -> list[str]:
    """The words of the command at the end of what was said, as a shell reads them."""
    _text, found, command = said.rpartition("Continue with:\nsluice ")
    assert found, said
    return shlex.split(command)


def stored_of(said: str) -> int:
    found = CONTINUES.search(said)
    assert found, said
    return int(found[1].replace(",", ""))
