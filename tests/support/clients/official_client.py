"""pyfluss, the official client, in a process of its own: the independent reader and writer.

It may hold the GIL for good and abort when its interpreter ends, so that no test hosts it. One run
carries out a list of operations; rows travel in Arrow files.
"""

from __future__ import annotations

import asyncio
import faulthandler
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

BUCKET, OFFSET, CHANGE = "_bucket", "_offset", "_change"
"""Columns that ``scan`` adds; ``CHANGE`` only for primary-key tables (``+I``, ``-U``, ...)."""

_IDLE_POLLS = 240
"""After so many without records (60 s) a changelog has none left: its last batch may be empty, and
no record shows that one's offset."""
_FLUSH_S = 3
_FLUSH_ROWS = 250_000
"""pyfluss deadlocks when more than its 64 MiB of Arrow data are under way."""


class OfficialClient:
    """Each method is one process; ``run`` takes several operations in one."""

    def __init__(self, bootstrap: str, config: Mapping[str, str] | None = None) -> None:
        self.config = {"bootstrap.servers": bootstrap.removeprefix("fluss://")} | dict(config or {})

    def create_table(self, path: str, schema: pa.Schema, **options: Any) -> None:
        """:param options: primary_keys, and the keywords of ``fluss.TableDescriptor``."""
        self.run([{"op": "create", "path": path, "schema": schema, **options}])

    def append(self, path: str, rows: pa.Table) -> None:
        self.run([{"op": "append", "path": path, "rows": rows}])

    def upsert(self, path: str, rows: pa.Table) -> None:
        self.run([{"op": "upsert", "path": path, "rows": rows}])

    def delete(self, path: str, keys: pa.Table) -> None:
        self.run([{"op": "delete", "path": path, "rows": keys}])

    def scan(self, path: str) -> pa.Table:
        """Everything up to the latest offsets, sorted by bucket and offset."""
        [answer] = self.run([{"op": "scan", "path": path}])
        return answer

    def run(self, operations: list[dict[str, Any]], timeout_s: float = 200) -> list[Any]:
        """Carries out operations in order; answers what each returned."""
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            plain = [_to_files(o, folder, n) for n, o in enumerate(operations)]
            done = subprocess.run(
                [sys.executable, __file__, name, str(timeout_s)],
                input=json.dumps({"config": self.config, "operations": plain}),
                capture_output=True,
                text=True,
                timeout=timeout_s + 10,
                check=False,
            )
            result = folder / "result.json"
            assert result.exists(), f"pyfluss failed:\n{done.stdout}\n{done.stderr[-3000:]}"
            return [_from_file(answer) for answer in json.loads(result.read_text())]


def _to_files(operation: dict[str, Any], folder: Path, number: int) -> dict[str, Any]:
    plain = dict(operation)
    for key, value in operation.items():
        if isinstance(value, pa.Schema | pa.Table):
            table = value if isinstance(value, pa.Table) else value.empty_table()
            plain[key] = _write(table, folder / f"{number}-{key}.arrow")
    return plain


def _write(table: pa.Table, path: Path) -> dict[str, str]:
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table)
    return {"arrow": str(path)}


def _from_file(value: Any) -> Any:
    if isinstance(value, dict) and "arrow" in value:
        with pa.ipc.open_file(value["arrow"]) as reader:
            return reader.read_all()
    return value


class _Worker:
    """Runs in the process of its own."""

    def __init__(self, fluss: Any, connection: Any, config: Any, folder: Path) -> None:
        self.fluss = fluss
        self.config = config
        self.connection = connection
        self.folder = folder

    def path(self, text: str) -> Any:
        return self.fluss.TablePath(*text.split("."))

    async def table_to_write(self, path: str) -> Any:
        """By a new connection, once its buckets have leaders: else a flush may never end."""
        info = await self.connection.get_admin().get_table_info(self.path(path))
        while not info.is_partitioned():
            try:
                await self.offsets(path)
                break
            except self.fluss.FlussError:
                await asyncio.sleep(0.02)
        self.connection = await self.fluss.FlussConnection.create(self.config)
        return await self.connection.get_table(self.path(path))

    async def create(self, path: str, schema: pa.Table, **options: Any) -> None:
        admin = self.connection.get_admin()
        await admin.create_database(path.split(".")[0], ignore_if_exists=True)
        keys = options.pop("primary_keys", None)
        described = self.fluss.Schema(schema.schema, primary_keys=keys)
        descriptor = self.fluss.TableDescriptor(described, **options)
        await admin.create_table(self.path(path), descriptor, False)

    async def append(self, path: str, rows: pa.Table) -> None:
        table = await self.table_to_write(path)
        writer = table.new_append().create_writer()
        unflushed = 0
        for batch in rows.to_batches(max_chunksize=_FLUSH_ROWS):
            writer.write_arrow_batch(batch)
            unflushed += batch.num_rows
            if unflushed >= _FLUSH_ROWS:
                await flush(writer)
                unflushed = 0
        await flush(writer)

    async def append_rows(self, path: str, rows: pa.Table) -> None:
        table = await self.table_to_write(path)
        writer = table.new_append().create_writer()
        for row in rows.to_pylist():
            writer.append(row)
        await flush(writer)

    async def upsert(self, path: str, rows: pa.Table) -> None:
        table = await self.table_to_write(path)
        writer = table.new_upsert().create_writer()
        for row in rows.to_pylist():
            writer.upsert(row)
        await flush(writer)

    async def delete(self, path: str, rows: pa.Table) -> None:
        table = await self.table_to_write(path)
        writer = table.new_upsert().create_writer()
        for row in rows.to_pylist():
            writer.delete(row)
        await flush(writer)

    async def create_partition(self, path: str, values: dict[str, str]) -> None:
        await self.connection.get_admin().create_partition(self.path(path), values, True)

    async def lookup(self, path: str, rows: pa.Table) -> list[bool]:
        """Whether each key has a row."""
        table = await self.connection.get_table(self.path(path))
        lookuper = table.new_lookup().create_lookuper()
        return [await lookuper.lookup(row) is not None for row in rows.to_pylist()]

    async def limit_scan(self, path: str, limit: int) -> dict[str, str]:
        """Up to ``limit`` rows of bucket 0 as the key-value store has them."""
        table = await self.connection.get_table(self.path(path))
        bucket = self.fluss.TableBucket(table.get_table_info().table_id, 0)
        scanner = table.new_scan().limit(limit).create_bucket_batch_scanner(bucket)
        return _write(await scanner.to_arrow(), self._new())

    async def offsets(self, path: str) -> list[int]:
        info = await self.connection.get_admin().get_table_info(self.path(path))
        buckets = list(range(info.num_buckets))
        latest = self.fluss.OffsetSpec.latest()
        ends = await self.connection.get_admin().list_offsets(self.path(path), buckets, latest)
        return [ends[bucket] for bucket in buckets]

    async def scan(self, path: str) -> dict[str, str]:
        table = await self.connection.get_table(self.path(path))
        ends = dict(enumerate(await self.offsets(path)))
        keyed = table.has_primary_key()
        scan = table.new_scan()
        opened = scan.create_log_scanner() if keyed else scan.create_record_batch_log_scanner()
        scanner = await opened
        scanner.subscribe_buckets(dict.fromkeys(ends, 0))
        parts: list[pa.Table] = []
        seen = dict.fromkeys(ends, 0)
        idle = 0
        while any(seen[bucket] < end for bucket, end in ends.items()):
            found = await (self._records if keyed else self._batches)(scanner, table, seen)
            idle = 0 if found else idle + 1
            parts += found
            if keyed and idle == _IDLE_POLLS:
                break
        columns = [pa.field(BUCKET, pa.int32()), pa.field(OFFSET, pa.int64())]
        columns += [pa.field(CHANGE, pa.string())] if keyed else []
        empty = pa.schema(columns + list(table.arrow_schema)).empty_table()
        rows = pa.concat_tables(parts) if parts else empty
        return _write(rows.sort_by([(BUCKET, "ascending"), (OFFSET, "ascending")]), self._new())

    async def _batches(self, scanner: Any, table: Any, seen: dict[int, int]) -> list[pa.Table]:
        parts = []
        for found in await scanner.poll_record_batch(250):
            bucket, offset, rows = found.bucket.bucket_id, found.base_offset, found.batch
            added = pa.Table.from_batches([rows])
            added = added.add_column(
                0, OFFSET, pa.array(range(offset, offset + rows.num_rows), pa.int64())
            )
            numbers = pa.array([bucket] * rows.num_rows, pa.int32())
            parts.append(added.add_column(0, BUCKET, numbers))
            seen[bucket] = found.last_offset + 1
        return parts

    async def _records(self, scanner: Any, table: Any, seen: dict[int, int]) -> list[pa.Table]:
        parts = []
        for bucket, records in (await scanner.poll(250)).items():
            rows = pa.Table.from_pylist([r.row for r in records], schema=table.arrow_schema)
            change = pa.array([r.change_type.short_string() for r in records])
            offsets = pa.array([r.offset for r in records], pa.int64())
            numbers = pa.array([bucket.bucket_id] * len(records), pa.int32())
            rows = rows.add_column(0, CHANGE, change).add_column(0, OFFSET, offsets)
            parts.append(rows.add_column(0, BUCKET, numbers))
            seen[bucket.bucket_id] = records[-1].offset + 1
        return parts

    def _new(self) -> Path:
        return self.folder / f"answer-{len(list(self.folder.iterdir()))}.arrow"


async def flush(writer: Any) -> None:
    """Asks again when there is no answer: on a busy machine a flush of pyfluss may miss its end."""
    while True:
        try:
            return await asyncio.wait_for(writer.flush(), _FLUSH_S)
        except TimeoutError:
            continue


async def _work(folder: Path) -> None:
    import fluss

    todo = json.loads(sys.stdin.read())
    config = fluss.Config(todo["config"])
    connection = await fluss.FlussConnection.create(config)
    worker = _Worker(fluss, connection, config, folder)
    answers = []
    for operation in todo["operations"]:
        values = {key: _from_file(value) for key, value in operation.items()}
        name = values.pop("op")
        try:
            answer = getattr(worker, name)(**values)
            answers.append(await asyncio.wait_for(answer, 0.8 * float(sys.argv[2])))
        except TimeoutError:
            raise AssertionError(f"{name} of {operation['path']} did not end") from None
    (folder / "partial.json").write_text(json.dumps(answers))
    (folder / "partial.json").rename(folder / "result.json")


if __name__ == "__main__":
    faulthandler.dump_traceback_later(float(sys.argv[2]), exit=True)  # where it hangs
    asyncio.run(_work(Path(sys.argv[1])))
    os._exit(0)
