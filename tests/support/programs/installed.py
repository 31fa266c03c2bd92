"""What the wheel does once installed: a server of its own, and a table's way into the lake."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.support.programs.built_wheel import ROOT, Environment
from tests.support.programs.processes import ServerProcess

_VECTORS_TABLE = """
import os, sys
from sluice.client import connect
from sluice.model import Column, Schema, TableDescriptor, TablePath, types as t

columns = (Column("id", t.BIGINT.not_null(), 0), Column("item", t.STRING, 1))
table = TableDescriptor(
    Schema(columns, ("id",)),
    bucket_keys=("id",),
    bucket_count=1,
    properties={"table.datalake.enabled": "true", "table.datalake.format": "iceberg"},
    custom_properties={"iceberg.format-version": "3"},
)
with connect(os.environ["SLUICE_CLIENT_BOOTSTRAP"]) as client:
    client.admin.create_table(TablePath.parse(sys.argv[1]), table)
"""
JARS = os.environ.get("SLUICE_TIERING_JARS") or str(ROOT / ".cache/jars")


class InstalledServer(ServerProcess):
    """``sluice serve`` of another environment."""

    def __init__(self, environment: Environment, data_dir: Path) -> None:
        super().__init__(data_dir, environment.variables)
        self.command = (str(environment.home / "bin/sluice"), "serve")

    def variables(self, more: Mapping[str, str]) -> dict[str, str]:
        """Those of the environment: a PYTHONPATH of this process would name another Sluice."""
        return {**self.env, **more}


class Installed:
    """The commands of an environment, on its own server."""

    def __init__(self, environment: Environment, address: str, cwd: Path, **more: str) -> None:
        """:param more: variables of each command."""
        self._environment, self._cwd = environment, cwd
        self._more = {"SLUICE_CLIENT_BOOTSTRAP": address, "SLUICE_TIERING_JARS": JARS, **more}

    def sluice(self, *words: str) -> str:
        """What a command prints; it has to succeed."""
        done = self._environment.run("sluice", *words, cwd=self._cwd, **self._more)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def tier_a_table(self, name: str, schema: str) -> None:
        """Makes a table of two rows and has them in the lake."""
        self.sluice("create-table", name, "--schema", schema)
        (self._cwd / "rows.csv").write_text("id,item\n1,pen\n2,ink\n")
        self.sluice("append", name, "rows.csv")
        assert "committed to the lake" in self.sluice("tier", name, "--warehouse", "lake")
        found = json.loads(self.sluice("status", "--format", "json"))
        [ours] = [status for status in found if status["path"] == name]
        assert (ours["lag_rows"], ours["failures"]) == (0, 0)

    def change_with_vectors(self, name: str) -> None:
        """Tiers a table with deletion vectors, all of whose rows change in each of four rounds."""
        done = self._environment.run(
            "python", "-c", _VECTORS_TABLE, name, cwd=self._cwd, **self._more
        )
        assert done.returncode == 0, done.stderr
        for number in range(5):
            rows = "".join(f"{key},{number}\n" for key in range(20))
            (self._cwd / "rows.csv").write_text(f"id,item\n{rows}")
            self.sluice("append", name, "rows.csv")
            self.sluice("tier", name, "--warehouse", "lake", "--now")
        query = f"SELECT count(*), min(item), max(item) FROM lake.{name}"
        found = self.sluice("sql", query, "--warehouse", "lake", "--format", "csv")
        assert found.splitlines()[-1] == "20,4,4"


@contextmanager
def installed(environment: Environment, folder: Path, **more: str) -> Iterator[Installed]:
    """Starts the environment's server; its commands run in ``folder``."""
    server = InstalledServer(environment, folder / "data")
    try:
        yield Installed(environment, server.start(), folder, **more)
    finally:
        server.kill()
