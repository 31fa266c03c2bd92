"""The same raw PutKv calls to the embedded server and to a real Fluss: every answer is the same."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from sluice.client import connect
from sluice.config import ServerConfig
from sluice.errors import FlussError
from sluice.model import TableDescriptor, TablePath
from sluice.server.cluster import EmbeddedCluster
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import Api, Role
from sluice.wire.native.transport import NativeTransport
from tests.support.fluss.real_fluss import RealFluss
from tests.support.fluss.table_creation import create_table
from tests.unit.server.kv_support import KEYED, KvCaller
from tests.unit.server.support import Caller

pytestmark = [pytest.mark.real_fluss, pytest.mark.slow]

VERSION = "table.merge-engine.versioned.ver-column"
OPTIONS: dict[str, dict[str, str]] = {
    "plain": {},
    "indexed": {"table.kv.format": "INDEXED"},
    "wal": {"table.changelog.image": "WAL"},
    "first row": {"table.merge-engine": "first_row"},
    "first row, wal": {"table.merge-engine": "first_row", "table.changelog.image": "WAL"},
    "versioned": {"table.merge-engine": "versioned", VERSION: "n"},
    "deletes ignored": {"table.delete.behavior": "IGNORE"},
    "deletes refused": {"table.delete.behavior": "DISABLE"},
}


class NativeCaller(Caller):
    """Calls over Fluss's own protocol, to the coordinator or to the one tablet server."""

    def __init__(self, bootstrap: str) -> None:
        self.address = bootstrap
        self._transports = {Role.COORDINATOR: _open(bootstrap)}
        answer = self.call(apis.GET_METADATA, pb.MetadataRequest(), Role.COORDINATOR)
        [tablet] = answer.tablet_servers
        self._transports[Role.TABLET] = _open(f"fluss://{tablet.host}:{tablet.port}")

    def call(self, api: Api, request: Any, role: Role | None = None) -> Any:
        role = role or (Role.COORDINATOR if Role.COORDINATOR in api.roles else Role.TABLET)
        return self._transports[role].call(role, api, request, 30_000)

    def close(self) -> None:
        for transport in self._transports.values():
            transport.close()


def _open(address: str) -> NativeTransport:
    parts = urlsplit(address)
    assert parts.hostname is not None
    assert parts.port is not None
    return NativeTransport(address, parts.hostname, parts.port, 64 << 20)


@pytest.fixture
def both(real_fluss: RealFluss, tmp_path: Path) -> Iterator[dict[str, NativeCaller]]:
    config = ServerConfig(data_dir=str(tmp_path / "data"), listen="fluss://127.0.0.1:0")
    with EmbeddedCluster(config) as cluster:
        callers = {
            "embedded": NativeCaller(cluster.address),
            "real": NativeCaller(real_fluss.bootstrap),
        }
        yield callers
        for caller in callers.values():
            caller.close()


def new_table(caller: NativeCaller, properties: dict[str, str]) -> KvCaller:
    path = TablePath("kv", f"t{uuid.uuid4().hex[:8]}")
    with connect(caller.address) as client:
        client.admin.create_database(path.database, ignore_if_exists=True)
        create_table(client, path, TableDescriptor(KEYED, bucket_count=1, properties=properties))
    return KvCaller(caller, path, create=False)


def outcome(call: Callable[[], object]) -> object:
    try:
        return call()
    except FlussError as error:
        return type(error).__name__


def play(kv: KvCaller) -> dict[str, object]:
    """What the server answers to changes of all kinds, and what is there in the end."""
    writer = kv.caller.init_writer()
    mixed = [(1, "a", 1), (1, "b", 2), (1,), (1, "c", 0), (4, "x", 1), (4,), (5, "y", None)]
    gone = [False, False, True, False, False, True, False]
    first = kv.records([(7, "w", 1), (8, "w", 2)], writer_id=writer, sequence=0)
    second = kv.records([(7, "v", 3)], writer_id=writer, sequence=1)
    calls: list[Callable[[], object]] = [
        lambda: kv.put((1, "a", 10), (2, "b", None), (3, None, 3)),
        lambda: kv.put((1, "a", 10)),
        lambda: kv.put((2, "c", None), (2, "d", 5), (2, "e", 5), (2, "f", 4)),
        lambda: kv.delete((2,), (9,)),
        lambda: kv.delete((9,)),
        lambda: kv.send(kv.records(mixed, gone)),
        lambda: kv.put((3, "p"), (6, "new"), targets=(0, 1)),
        lambda: kv.put((3,), (10,), targets=(0,)),
        lambda: kv.delete((3,), (6,), targets=(0, 1)),
        lambda: kv.delete((3,), targets=(0, 2)),
        lambda: kv.put((3, "z"), targets=(1, 2)),
        # of a row that is there: for a new one 0.9.1 and later versions differ in the WAL image
        lambda: kv.put((1, "z", 1), targets=(2, 1, 0)),
        lambda: kv.send(first),
        lambda: kv.send(first),
        lambda: kv.send(second),
        lambda: kv.send(first),
        lambda: kv.send(kv.records([(7, "u", 3)], writer_id=writer, sequence=4)),
        lambda: kv.send(kv.records([(1, "o", 1)]), agg_mode=0),
        lambda: kv.send(kv.records([])),
        lambda: kv.send(b"junk"),
        lambda: kv.put((1, "a", 1), bucket=5),
    ]
    said: dict[str, object] = {f"call {n}": outcome(call) for n, call in enumerate(calls)}
    keys = [(n,) for n in range(12)]
    said["rows"] = outcome(lambda: kv.lookup(*keys))
    said["first"] = outcome(lambda: kv.scan(3))
    said["all"] = outcome(kv.scan)
    said |= {f"changes {n}": changes for n, changes in enumerate(kv.batches())}
    said["end"] = outcome(kv.end)
    return said


@pytest.mark.parametrize("options", list(OPTIONS))
def test_puts_are_answered_alike(both: dict[str, NativeCaller], options: str) -> None:
    said = {name: play(new_table(caller, OPTIONS[options])) for name, caller in both.items()}
    assert said["embedded"].keys() == said["real"].keys()
    differ = [
        f"{question}: {ours!r} instead of {answer!r}"
        for question, answer in said["real"].items()
        if not _alike(ours := said["embedded"][question], answer)
    ]
    assert not differ, "\n".join(differ)


def _alike(ours: object, of_fluss: object) -> bool:
    """Where Fluss has no better word than code -1, ours may be any error."""
    return ours == of_fluss or (of_fluss == "UnknownServerError" and isinstance(ours, str))
