"""What clients send is stored only if readers can decode it; nobody else is disturbed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sluice.client import Client, connect
from sluice.errors import CorruptRecord, FlussError, RecordTooLarge
from sluice.formats.keys.primary_keys import primary_keys
from sluice.formats.kv.kv_batch import build_kv_batch
from sluice.formats.kv.value_batch import decode_values
from sluice.formats.log.batch import encode_log_batch, read_header
from sluice.formats.rows.arrays import encode_rows
from sluice.formats.types.types import arrow_schema
from sluice.model import Schema, TableBucket, TableDescriptor, TablePath
from sluice.server.tablet.logs.batch_checker import LARGE_BYTES, BatchChecker
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.error_codes import raise_in_body
from tests.golden import tables
from tests.support.network.bystander import Bystander
from tests.support.tables.forged_batches import changed_bytes, forged, sealed_again
from tests.unit.server.kv_support import KvCaller
from tests.unit.server.support import Caller, Node, batch

GOOD = batch("a", "bb", "ccc")
MESSAGE_AT = 48


def changed(at: int, *values: int) -> bytes:
    content = bytearray(GOOD)
    content[at : at + len(values)] = bytes(values)
    return sealed_again(bytes(content))


def rows_of(count: int) -> bytes:
    """A header that says other rows than its Arrow part has."""
    content = bytearray(GOOD)
    content[28:32], content[44:48] = (n.to_bytes(4, "little") for n in (count - 1, count))
    return sealed_again(bytes(content))


def of(columns: dict[str, Any]) -> bytes:
    return encode_log_batch(pa.RecordBatch.from_pydict(columns), 1)


FORGED = {
    "no Arrow": sealed_again(GOOD[:MESSAGE_AT] + b"not an Arrow message"),
    "nothing": sealed_again(GOOD[:MESSAGE_AT]),
    "not a record batch": changed(MESSAGE_AT + 8, 0xFF, 0xFF, 0xFF, 0x7F),
    "cut": sealed_again(GOOD[:-30]),
    "a damaged buffer": changed(len(GOOD) - 20, *[0xA5] * 12),
    "other rows": rows_of(4),
    "other columns": of({"id": [1]}),
    "other types": of({"id": ["1"], "text": ["a"]}),
    "more columns": of({"id": [1], "text": ["a"], "x": [1]}),
    "no text": of({"id": [1], "text": pa.array([b"\xff"]).view(pa.string())}),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_batch_that_no_reader_can_decode_is_not_stored(caller: Caller, name: str) -> None:
    table = caller.create_table()
    assert caller.produce(table, GOOD) == 0
    with pytest.raises(CorruptRecord, match=r"table db\.t, bucket .*: .*"):
        caller.produce(table, FORGED[name])
    assert caller.offsets(table) == [3]
    assert caller.produce(table, GOOD) == 3
    assert [base for base, _ in caller.read_all(table)] == [0, 3]


def zeros(size: int) -> bytes:
    """A batch that becomes ``size`` bytes."""
    column = pa.array(np.zeros(size // 8, np.int64))
    texts = pa.nulls(len(column), pa.string())
    return encode_log_batch(pa.RecordBatch.from_arrays([column, texts], ["id", "text"]), 1)


def test_a_batch_that_would_become_too_large_is_refused(start: Callable[..., Node]) -> None:
    caller = start(max_message_bytes=1 << 20, max_batch_rows=1 << 30).caller
    table = caller.create_table()
    with pytest.raises(RecordTooLarge, match=r"uncompressed, more than the limit of 4,194,304"):
        caller.produce(table, zeros(5 << 20))
    assert caller.produce(table, zeros(2 << 20)) == 0


def test_large_batches_are_checked_one_after_the_other(caller: Caller, node: Node) -> None:
    """Small ones become large, in as many requests as there are threads."""
    hosted = node.cluster._parts.catalog.find(caller.create_table())  # type: ignore[union-attr]
    assert hosted is not None
    checker = BatchChecker(64 << 20)
    size = 4 * LARGE_BYTES
    bomb, peak, done = zeros(size), [0], threading.Event()
    assert len(bomb) < size // 100
    header, begun = read_header(bomb), pa.total_allocated_bytes()

    def watch() -> None:
        while not done.is_set():
            peak[0] = max(peak[0], pa.total_allocated_bytes() - begun)

    watcher = threading.Thread(target=watch)
    watcher.start()
    with ThreadPoolExecutor(6) as pool:
        for result in [pool.submit(checker.check, hosted, header, bomb) for _ in range(12)]:
            result.result()
    done.set()
    watcher.join()
    assert size // 2 < peak[0] < 2 * size


def test_others_write_and_read_on_while_one_sends_what_is_large_or_broken(
    start: Callable[..., Node],
) -> None:
    node = start(max_batch_rows=1 << 30)
    caller = node.caller
    table, attacked = caller.create_table(), caller.create_table(TablePath("db", "attacked"))
    bad = [zeros(30 << 20), *FORGED.values()]

    def write_and_read() -> None:
        base = caller.produce(table, GOOD)
        assert caller.fetch(table, base).records

    def attack() -> None:
        own = Caller(caller.address)
        with closing(own.transport):
            for content in bad * 3:
                with suppress(CorruptRecord, RecordTooLarge):
                    own.produce(attacked, content)

    bystander = Bystander(write_and_read)
    with bystander.beside(), ThreadPoolExecutor(4) as pool:
        for result in [pool.submit(attack) for _ in range(4)]:
            result.result()
    bystander.assert_served()


# ---- random changes, on a server and by its clients


@dataclass
class Place:
    """A server with a table, and a reader of it."""

    caller: Caller
    client: Client

    def reads(self, path: TablePath, table_id: int, base: int) -> pa.RecordBatch:
        bucket = TableBucket(table_id, None, 0)
        [records] = self.client.log_reader(path).read(bucket, base)
        return records.batch


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    node = Node(tmp_path_factory.mktemp("forged"), max_batch_rows=10_000)
    with connect(node.cluster.address) as client:
        yield Place(node.caller, client)
    node.stop()


def _log_of(place: Place, name: str, schema: Schema) -> tuple[TablePath, int]:
    path = TablePath("db", name)
    try:
        return path, place.caller.table_info(path).table_id
    except FlussError:
        return path, place.caller.create_table(path, TableDescriptor(schema))


def produce_or_refuse(place: Place, name: str, schema: Schema, content: bytes) -> bool:
    """Whether the server has stored it, and then its client can read it."""
    path, table_id = _log_of(place, name, schema)
    end = place.caller.offsets(table_id)[0]
    try:
        base = place.caller.produce(table_id, content)
    except FlussError:
        assert place.caller.offsets(table_id) == [end]
        return False
    assert base == end
    assert place.reads(path, table_id, base).num_rows == read_header(content).record_count
    return True


WIDE = {
    compression: encode_log_batch(
        tables.rows(tables.NOT_NULL, nulls=False).to_batches()[0], 1, compression=compression
    )
    for compression in tables.COMPRESSIONS
}


@settings(max_examples=50, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.sampled_from(tables.COMPRESSIONS), st.data())
def test_a_changed_batch_is_refused_or_its_readers_read_it(
    place: Place, compression: str, data: st.DataObject
) -> None:
    content = data.draw(forged(WIDE[compression]))
    produce_or_refuse(place, "wide", tables.NOT_NULL, content)


@pytest.mark.long
@pytest.mark.parametrize("compression", tables.COMPRESSIONS)
def test_a_changed_batch_is_refused_or_its_readers_read_it_many_times(
    place: Place, compression: str
) -> None:
    outcomes = set()

    @settings(max_examples=2_000, suppress_health_check=list(HealthCheck), deadline=None)
    @given(forged(WIDE[compression]))
    def run(content: bytes) -> None:
        outcomes.add(produce_or_refuse(place, f"wide_{compression}", tables.NOT_NULL, content))

    run()
    assert outcomes == {False, True}


# ---- rows of primary-key tables


KEYED = Schema((tables.NOT_NULL.columns[0], *tables.NULLABLE.columns[1:]), ("id",))


@dataclass
class Puts:
    """A primary-key table of every type, and the rows that are changed before they are put."""

    kv: KvCaller
    place: Place

    def put(self, row: int, content: bytes) -> bool:
        """Whether the server has stored it, and then everybody can read it.

        :param content: the bytes of one row; none would be a delete.
        """
        rows = self.rows()
        rows[row] = content
        batch = tables.rows(tables.NULLABLE, nulls=True).to_batches()[0]
        keys = primary_keys(batch.cast(arrow_schema(KEYED)), self.kv.info)
        end = self.kv.end()
        try:
            self.kv.send(build_kv_batch(keys, pa.array(rows, pa.binary()), 1))
        except FlussError:
            assert self.kv.end() == end
            return False
        changes = self.place.reads(self.kv.path, self.kv.table_id, end)
        assert changes.num_rows >= len(rows)
        [value] = self._stored(keys.to_pylist()[row])
        decode_values(pa.array([value]), {1: KEYED}, KEYED, self.row_format).validate(full=True)
        return True

    @property
    def row_format(self) -> str:
        return self.kv.info.descriptor.properties["table.kv.format"]

    def rows(self) -> list[bytes]:
        batch = tables.rows(tables.NULLABLE, nulls=True).to_batches()[0]
        types = [column.data_type for column in KEYED.columns]
        return encode_rows(batch, types, self.row_format).to_pylist()

    def _stored(self, key: bytes) -> list[bytes]:
        request = pb.LookupRequest(table_id=self.kv.table_id)
        request.buckets_req.add(bucket_id=0, keys=[key])
        (answer,) = self.kv.caller.call(apis.LOOKUP, request).buckets_resp
        raise_in_body(answer)
        return [each.values for each in answer.values]


@pytest.fixture(scope="module", params=["COMPACTED", "INDEXED"])
def puts(place: Place, request: pytest.FixtureRequest) -> Puts:
    path = TablePath("db", f"kv_{request.param.lower()}")
    properties = {"table.kv.format": request.param}
    return Puts(KvCaller(place.caller, path, schema=KEYED, properties=properties), place)


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.integers(0, 7), st.data())
def test_a_changed_row_is_refused_or_its_readers_read_it(
    puts: Puts, row: int, data: st.DataObject
) -> None:
    puts.put(row, data.draw(changed_bytes(puts.rows()[row]).filter(bool)))


@pytest.mark.long
def test_a_changed_row_is_refused_or_its_readers_read_it_many_times(puts: Puts) -> None:
    outcomes = set()

    @settings(max_examples=2_000, suppress_health_check=list(HealthCheck), deadline=None)
    @given(st.integers(0, 7), st.data())
    def run(row: int, data: st.DataObject) -> None:
        outcomes.add(puts.put(row, data.draw(changed_bytes(puts.rows()[row]).filter(bool))))

    run()
    assert outcomes == {False, True}
