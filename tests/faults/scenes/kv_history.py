"""Writers that change rows of the same keys at once, and what must be there in the end.

An acknowledged put says which log offset its bucket has reached by it. These offsets order all
puts of a bucket, whoever sent them, so that a dictionary can be made of them.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from sluice.errors import FlussError, NetworkError, UnknownServerError
from sluice.model import TablePath
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.error_codes import raise_in_body
from tests.support.harness.findings import finding
from tests.support.programs.forked_server import ForkedServer
from tests.unit.server.kv_support import KvCaller, Row, replayed, row_count, snapshot_rows
from tests.unit.server.support import Caller

IMAGES = {"FULL": TablePath("db", "full"), "WAL": TablePath("db", "wal")}
"""A table for each image of the changelog."""
BUCKETS = 2
KEYS = 40
TIMEOUT_MS = 180_000
_CONNECT_S = 180.0
TARGETS = ((), (0, 1), (0, 2))
"""Columns of a put: all, or the key and one of the two others."""


class Place(NamedTuple):
    """A bucket of a table, which is called by its image."""

    image: str
    bucket: int


PLACES = [Place(image, bucket) for image in IMAGES for bucket in range(BUCKETS)]


@dataclass(frozen=True)
class Put:
    """One batch. ``changes``: key, text, n, whether it is a delete."""

    place: Place
    targets: tuple[int, ...]
    changes: list[tuple[int, str | None, int | None, bool]]
    records: bytes


@dataclass
class Model:
    """What the buckets hold after all acknowledged puts; ``lock`` guards all of it."""

    rows: dict[Place, dict[int, Row]] = field(default_factory=lambda: {p: {} for p in PLACES})
    ends: dict[Place, int] = field(default_factory=lambda: dict.fromkeys(PLACES, 0))
    acknowledged: dict[Place, list[tuple[int, Put]]] = field(
        default_factory=lambda: {p: [] for p in PLACES}
    )
    seen: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def acknowledge(self, put: Put, end: int) -> None:
        with self.lock:
            self.acknowledged[put.place].append((end, put))

    def count(self, what: str) -> None:
        with self.lock:
            self.seen[what] += 1

    def fold(self) -> None:
        """Takes over what was acknowledged since the last time; nothing may be on its way."""
        for place, puts in self.acknowledged.items():
            for end, put in sorted(puts, key=lambda each: each[0]):
                assert end > self.ends[place], f"{place}: two puts ended at log offset {end}"
                self.ends[place] = end
                for change in put.changes:
                    self._change(self.rows[place], put.targets, *change)
            puts.clear()

    def _change(
        self,
        rows: dict[int, Row],
        targets: tuple[int, ...],
        key: int,
        text: str | None,
        number: int | None,
        is_delete: bool,
    ) -> None:
        kind = f"partial {'delete' if is_delete else 'update'}" if targets else "whole row"
        old, new, columns = rows.get(key), (key, text, number), targets or (0, 1, 2)
        if not is_delete:
            base = old or (key, None, None)
            rows[key] = tuple(new[i] if i in columns else base[i] for i in range(3))
            self.seen[kind if old else "insert"] += 1
        elif old is not None:
            left = tuple(old[i] if not i or i not in columns else None for i in range(3))
            if any(left[i] is not None for i in range(3) if i not in columns):
                rows[key] = left
                self.seen[kind] += 1
            else:
                del rows[key]
                self.seen["delete"] += 1


class Writer:
    """Puts under its own writer id. ``pending``: what may be stored, but is not acknowledged."""

    def __init__(self, model: Model, server: ForkedServer, seed: int) -> None:
        self._model = model
        self._server = server
        self._random = random.Random(seed)
        self._sequences = dict.fromkeys(PLACES, 0)
        self.pending: list[Put] = []
        self.connect()
        self._id = self._caller.init_writer()

    def connect(self) -> None:
        """To the server as it is now, which may be slow to take a connection."""
        deadline = time.monotonic() + _CONNECT_S
        while True:
            self._caller = Caller(self._server.address, timeout_ms=TIMEOUT_MS)
            try:
                self.tables = {
                    image: KvCaller(self._caller, path, create=False)
                    for image, path in IMAGES.items()
                }
                return
            except NetworkError:
                self._caller.transport.close()
                if not self._server.runs or time.monotonic() > deadline:
                    raise

    def close(self) -> None:
        self._caller.transport.close()

    def put_until_dead(self, failed: Callable[[], None]) -> None:
        """Puts one request after the other.

        :param failed: called when a put failed on a server that lives on; it is sent again.
        """
        while True:
            try:
                if self.pending:
                    self.send_again()
                else:
                    self.pending = self._made()
                    self._send(self.pending)
            except UnknownServerError:  # of a failpoint; what became of the put nobody knows
                self._model.count("failed")
                failed()
            except FlussError:
                assert self._server.wait_until_dead() == -9
                return

    def send_again(self) -> None:
        """What is pending, until all of it is acknowledged. :raises FlussError: it is not."""
        for put in list(self.pending):
            before = self.tables[put.place.image].end(put.place.bucket)
            end = self._send([put])
            self._model.count("stored before" if end <= before else "not stored before")

    def _send(self, puts: list[Put]) -> int:
        """One request; the end offset of its last put."""
        request = pb.PutKvRequest(
            acks=-1,
            table_id=self.tables[puts[0].place.image].table_id,
            timeout_ms=TIMEOUT_MS,
            target_columns=puts[0].targets,
        )
        for put in puts:
            request.buckets_req.add(bucket_id=put.place.bucket, records=put.records)
        answers = self._caller.call(apis.PUT_KV, request).buckets_resp
        end = -1
        for put, answer in zip(list(puts), answers, strict=True):
            raise_in_body(answer)
            end = int(answer.log_end_offset)
            self._model.acknowledge(put, end)
            self._sequences[put.place] += 1
            self.pending.remove(put)
        return end

    def _made(self) -> list[Put]:
        """A put for one bucket of a table, or for both."""
        rand = self._random
        image, targets = rand.choice(list(IMAGES)), rand.choice(TARGETS)
        buckets = rand.sample(range(BUCKETS), rand.randrange(1, BUCKETS + 1))
        return [self._put(Place(image, bucket), targets) for bucket in buckets]

    def _put(self, place: Place, targets: tuple[int, ...]) -> Put:
        rand, count = self._random, self._random.randrange(1, 12)
        # In a partial update a key comes once: what it does twice, the model of rows cannot say.
        keys = rand.sample(range(KEYS), count) if targets else rand.choices(range(KEYS), k=count)
        changes = []
        for key in keys:
            number = rand.randrange(1000)
            text = "x" * rand.randrange(300) + str(number)
            changes.append((key, text, number, rand.random() < 0.3))
        records = self.tables[place.image].records(
            [change[:3] for change in changes],
            [change[3] for change in changes],
            writer_id=self._id,
            sequence=self._sequences[place],
        )
        return Put(place, targets, changes, records)


class Checker:
    """Compares what a server has with the model; ``folder`` takes files of snapshots."""

    def __init__(self, model: Model, folder: Path) -> None:
        self._model = model
        self._folder = folder
        self._known: dict[Place, tuple[int, Mapping[Any, Row]]] = {p: (0, {}) for p in PLACES}
        self._snapshots: dict[Place, int] = {}

    @finding()
    def check(self, tables: Mapping[str, KvCaller], *, whole: bool = False) -> None:
        """Tables, changelogs and newest snapshots. Nobody may write meanwhile.

        :param whole: replays the changelogs from their beginning, not from the last check.
        :raises FlussError: the server does not answer.
        """
        self._model.fold()
        for place in PLACES:
            kv, rows = tables[place.image], self._model.rows[place]
            _compare(f"{place}: table", kv.table(place.bucket), rows)
            assert kv.end(place.bucket) == self._model.ends[place]
            start, before = (0, {}) if whole else self._known[place]
            replay = self._replayed(kv, place, start, before)
            _compare(f"{place}: changelog from {start}", replay, rows)
            self._known[place] = self._model.ends[place], dict(rows)
            self._check_snapshot(kv, place)
        self._model.count("check")

    def _check_snapshot(self, kv: KvCaller, place: Place) -> None:
        newest = kv.snapshots().get(place.bucket)
        if newest is None:
            return
        snapshot_id, log_offset = newest
        before = snapshot_rows(kv, snapshot_id, self._folder / "snapshot", place.bucket)
        counted = row_count(kv, snapshot_id, place.bucket)
        assert counted == (len(before) if place.image == "FULL" else None)
        replay = self._replayed(kv, place, log_offset, before)
        _compare(f"{place}: snapshot {snapshot_id}", replay, self._model.rows[place])
        if snapshot_id > self._snapshots.get(place, -1):
            self._model.count("new snapshot")
        self._snapshots[place] = snapshot_id

    def _replayed(
        self, kv: KvCaller, place: Place, start: int, before: Mapping[Any, Row]
    ) -> Mapping[Any, Row]:
        changes = kv.changelog(place.bucket, start)
        if place.image == "WAL":
            assert all(kind != "-U" for kind, _ in changes)
        return replayed(changes, before)


def _compare(what: str, found: Mapping[Any, Row], expected: Mapping[Any, Row]) -> None:
    keys = sorted(found.keys() | expected.keys())
    wrong = [(found.get(k), expected.get(k)) for k in keys if found.get(k) != expected.get(k)]
    assert not wrong, f"{what}: {len(wrong)} rows are wrong; found and expected: {wrong[:5]}"
