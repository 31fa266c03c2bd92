"""Merges a KV batch into the stored rows and writes its changelog.

See docs/fluss/kv-batches.md#changelog

Whole rows are merged all at once. With a merge engine, or in a partial update, a batch is gone
through key by key, since there each change depends on the one before; all that moves are numbers.
Rows are decoded, merged and put together as columns.

Every row that takes part has a number, its *ref*: the batch's own rows first, then the rows that
the store held, then rows that partial updates made. -1 is no row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sluice.errors import (
    CorruptRecord,
    DeletionDisabled,
    InvalidTargetColumn,
    RecordTooLarge,
    SchemaNotExist,
)
from sluice.formats.kv_batch import KvBatch
from sluice.formats.value_batch import stored_values
from sluice.model import TypeRoot
from sluice.server.tablet.kv_full_rows import NO_ROW, replacing
from sluice.server.tablet.kv_rows import (
    ALLOW,
    DELETE,
    DISABLE,
    FIRST_ROW,
    IGNORE,
    INSERT,
    UPDATE_AFTER,
    UPDATE_BEFORE,
    VERSIONED,
    KvTable,
)

_OLDEST = -(2**63)  # the version of a row that has none
_VERSIONS = (TypeRoot.INT, TypeRoot.BIGINT, TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)

Read = Callable[[list[bytes]], list[bytes | None]]
"""The stored values of keys, None where there is none."""

_KEYS_AT_ONCE = 256  # so many rows may be read beyond the limit


@dataclass(frozen=True, slots=True)
class RowBytesLimit:
    """How many bytes of rows one batch may bring into memory, beside its own."""

    bucket: str
    bytes: int

    def check(self, size: int, batch_rows: int) -> None:
        """:raises RecordTooLarge: these are more."""
        if size > self.bytes:
            raise RecordTooLarge(
                f"bucket {self.bucket}: the stored rows that a batch of {batch_rows} records"
                f" changes take {size} bytes or more; at most {self.bytes} are read for one batch:"
                " write fewer rows at once"
            )


@dataclass(slots=True)
class MergeResult:
    """The outcome: what to log, and what to store."""

    change_types: bytes = b""
    rows: pa.RecordBatch | None = None
    """A row for each change type, in columns of the newest schema."""
    puts: list[tuple[bytes, bytes]] = field(default_factory=list)
    """In the order of their keys, in which RocksDB takes them fastest."""
    deletes: list[bytes] = field(default_factory=list)


def merge(
    table: KvTable,
    batch: KvBatch,
    target_columns: Sequence[int],
    read: Read,
    limit: RowBytesLimit,
    *,
    overwrite: bool,
) -> MergeResult:
    """Works out the changes of a batch; nothing is changed yet.

    :param target_columns: positions for a partial update; none: whole rows.
    :param overwrite: past the merge engine.
    :raises SchemaNotExist, CorruptRecord: the batch is not one of this table.
    :raises DeletionDisabled, InvalidTargetColumn: the table does not allow it.
    :raises RecordTooLarge: the rows that it changes take more than the limit.
    """
    if not 0 <= batch.schema_id <= table.schema_id:
        raise SchemaNotExist(
            f"schema {batch.schema_id}: the newest of table {table.hosted.info.path} is"
            f" {table.schema_id}"
        )
    return _Merge(table, batch, target_columns, read, limit, overwrite=overwrite).run()


class _Merge:
    """One batch on its way.

    ``_batches`` hold the rows by ref as columns, the batch's own first; ``_new`` has those as the
    store takes them. Where a batch is gone through key by key, ``_values`` has all rows as the
    store takes them, and ``_current`` the ref of each key's row.
    """

    def __init__(
        self,
        table: KvTable,
        batch: KvBatch,
        target_columns: Sequence[int],
        read: Read,
        limit: RowBytesLimit,
        *,
        overwrite: bool,
    ) -> None:
        self._table = table
        self._read, self._limit = read, limit
        self._engine = "" if overwrite else table.merge_engine
        self._behavior = ALLOW if overwrite else table.delete_behavior
        self._targets = self._checked_targets(target_columns)
        self._keys: pa.Array = batch.keys
        self._is_delete = _nulls(batch.rows)
        if self._behavior == DISABLE and self._is_delete.any():
            raise DeletionDisabled(
                f"table {table.hosted.info.path}: table.delete.behavior is DISABLE, but the batch"
                f" deletes {int(self._is_delete.sum())} rows"
            )
        rows, keys = batch.rows, batch.keys
        if rows.null_count:
            there = pa.array(~self._is_delete)
            rows, keys = rows.filter(there), keys.filter(there)
        self._new: pa.Array = stored_values(rows, batch.schema_id)
        self._batches = [table.decode(self._new)]
        self._check_keys(keys)
        self._values: list[bytes] = []
        self._current: dict[bytes, int] = {}
        self._stored: set[bytes] = set()  # keys that the store holds
        self._types = bytearray()
        self._logged: list[int] = []

    def run(self) -> MergeResult:
        refs = np.full(len(self._keys), NO_ROW)
        refs[~self._is_delete] = np.arange(len(self._new))
        if self._behavior == IGNORE:
            kept = refs != NO_ROW
            self._keys, refs = self._keys.filter(pa.array(kept)), refs[kept]
        if self._targets is None and not self._engine:
            return self._replace(refs)
        # From here on each key is an object of its own.
        keys, self._values = self._keys.to_pylist(), self._new.to_pylist()
        self._take_stored(keys)
        if self._targets is not None:
            self._partial(keys, refs.tolist())
        else:
            self._by_engine(keys, refs.tolist())
        return self._outcome()

    # -- the ways to merge

    def _replace(self, refs: np.ndarray) -> MergeResult:
        """Whole rows, of which the newest stays.

        With the image WAL only deletes must know what is there.
        """
        encoded = self._keys.dictionary_encode()
        codes, keys = encoded.indices.to_numpy(), encoded.dictionary
        wanted = np.full(len(keys), not self._table.is_wal)
        wanted[codes[refs == NO_ROW]] = True
        stored = self._stored_refs(keys, wanted)
        changes = replacing(codes, refs, stored, is_wal=self._table.is_wal)
        merged = MergeResult(changes.types.tobytes())
        if len(changes.rows):
            merged.rows = self._columns(changes.rows)
        gone = (changes.last == NO_ROW) & (stored != NO_ROW)
        merged.deletes = keys.filter(pa.array(gone)).to_pylist()
        left = keys.filter(pa.array(changes.last != NO_ROW))
        order = pc.array_sort_indices(left)
        rows = pa.array(changes.last[changes.last != NO_ROW]).take(order)
        # RocksDB takes single keys and values: no way round objects here
        values = self._new.take(rows).to_pylist()
        merged.puts = list(zip(left.take(order).to_pylist(), values, strict=True))
        return merged

    def _stored_refs(self, keys: pa.Array, wanted: np.ndarray) -> np.ndarray:
        """Reads the wanted keys; the ref of each key's stored row, if it has one.

        They are read in their order, so that those of one block come together.
        """
        stored = np.full(len(keys), NO_ROW)
        asked = np.nonzero(wanted)[0]
        asked = asked[pc.array_sort_indices(keys.take(pa.array(asked))).to_numpy()]
        in_order = keys.take(pa.array(asked))
        found = pa.array(self._read_bounded(in_order.to_pylist()), pa.binary())
        if found.null_count == len(found):
            return stored
        there = found.is_valid().to_numpy(zero_copy_only=False)
        stored[asked[there]] = len(self._new) + np.arange(int(there.sum()))
        self._batches.append(self._table.decode(found.drop_null()))
        return stored

    def _columns(self, refs: np.ndarray) -> pa.RecordBatch:
        """The rows of these refs."""
        own = self._batches[0]
        if len(refs) == own.num_rows and np.array_equal(refs, np.arange(len(refs))):
            return own  # nothing but new rows
        return _take(pa.Table.from_batches(self._batches), refs)

    def _by_engine(self, keys: list[bytes], refs: list[int]) -> None:
        """Whole rows, of which the merge engine may keep the old one."""
        current = self._current
        keeps = self._keeper()
        for key, ref in zip(keys, refs, strict=True):
            old = current[key]
            if ref == NO_ROW:
                if old == NO_ROW:
                    continue
            elif old != NO_ROW and keeps(old, ref):
                continue
            self._log(old, ref)
            current[key] = ref

    def _partial(self, keys: list[bytes], refs: list[int]) -> None:
        """Some columns. The others are those that the store held, whatever happens in the batch.

        So a row on its way is told by two numbers: the stored row, and the batch's row that its
        target columns come from. Those that come up are made all at once in the end.
        """
        assert self._targets is not None
        stored = dict(self._current)
        others_null = self._others_null()
        names = {self._table.schema.columns[at].name for at in self._targets}
        only_key = names == set(self._table.schema.primary_key)
        made: list[tuple[int, int]] = []  # stored row, row of the target columns
        first_stored, first_made = len(self._batches[0]), self._stored_to
        for key, ref in zip(keys, refs, strict=True):
            old, base = self._current[key], stored[key]
            if (ref == NO_ROW and old == NO_ROW) or (ref != NO_ROW and only_key and old != NO_ROW):
                continue
            if ref == NO_ROW and (base == NO_ROW or others_null[base - first_stored]):
                new = NO_ROW
            else:
                new = first_made + len(made)
                made.append((base, ref))
            self._log(old, new)
            self._current[key] = new
        if made:
            self._make(np.array(made))

    def _others_null(self) -> np.ndarray:
        """Of each stored row, whether it has no value but in the target columns."""
        rows = self._batches[1]
        result = np.ones(rows.num_rows, bool)
        for position, column in enumerate(rows.columns):
            if position not in (self._targets or ()):
                result &= _nulls(column)
        return result

    def _make(self, made: np.ndarray) -> None:
        """Makes rows of stored ones with the target columns of others; null where there is none.

        One stored row may go into many, so they are counted before.
        """
        sizes = np.array([len(value) for value in self._values], np.int64)
        stored = made[made[:, 0] != NO_ROW, 0]
        self._limit.check(int(sizes[stored].sum()), len(self._keys))
        schema, rows = self._table.schema, pa.Table.from_batches(self._batches)
        before, after = _take(rows, made[:, 0]), _take(rows, made[:, 1])
        has_stored = pa.array(made[:, 0] != NO_ROW)
        columns = []
        for position, column in enumerate(schema.columns):
            old, new = before.column(position), after.column(position)
            if column.name in schema.primary_key:
                columns.append(pc.if_else(has_stored, old, new))
            else:
                columns.append(new if position in (self._targets or ()) else old)
        batch = pa.RecordBatch.from_arrays(columns, schema=rows.schema)
        self._values += self._table.encode(batch, self._table.schema_id, schema).to_pylist()
        self._batches.append(batch)

    def _log(self, old: int, new: int) -> None:
        if new == NO_ROW:
            self._types.append(DELETE)
            self._logged.append(old)
            return
        if old != NO_ROW and not self._table.is_wal:
            self._types.append(UPDATE_BEFORE)
            self._logged.append(old)
        self._types.append(INSERT if old == NO_ROW else UPDATE_AFTER)
        self._logged.append(new)

    def _keeper(self) -> Callable[[int, int], bool]:
        """Whether the old row stays."""
        if self._engine == FIRST_ROW:
            return lambda _old, _new: True
        assert self._engine == VERSIONED, self._engine
        rows = pa.Table.from_batches(self._batches)
        versions = version_numbers(rows.column(self._table.version_column)).tolist()
        return lambda old, new: bool(versions[new] < versions[old])

    # -- parts

    def _take_stored(self, keys: Sequence[bytes]) -> None:
        """Gives the rows that the store holds under these keys their refs."""
        wanted = list(dict.fromkeys(keys))
        found = self._read_bounded(wanted)
        stored = [value for value in found if value is not None]
        ref = len(self._values)
        for key, value in zip(wanted, found, strict=True):
            if value is None:
                self._current[key] = NO_ROW
            else:
                self._current[key] = ref
                self._stored.add(key)
                ref += 1
        self._stored_to = ref
        self._values += stored
        self._batches.append(self._table.decode(pa.array(stored, pa.binary())))

    def _read_bounded(self, keys: list[bytes]) -> list[bytes | None]:
        values, size = list[bytes | None](), 0
        for start in range(0, len(keys), _KEYS_AT_ONCE):
            found = self._read(keys[start : start + _KEYS_AT_ONCE])
            size += sum(map(len, filter(None, found)))
            self._limit.check(size, len(self._keys))
            values += found
        return values

    def _outcome(self) -> MergeResult:
        merged = MergeResult(bytes(self._types))
        if self._logged:
            merged.rows = self._columns(np.array(self._logged))
        first = len(self._batches[0])
        for key, ref in self._current.items():
            if ref == NO_ROW:
                if key in self._stored:
                    merged.deletes.append(key)
            elif not first <= ref < self._stored_to:  # else as it was stored
                merged.puts.append((key, self._values[ref]))
        merged.puts.sort(key=itemgetter(0))
        return merged

    def _checked_targets(self, target_columns: Sequence[int]) -> frozenset[int] | None:
        """None for whole rows.

        :raises InvalidTargetColumn: no such column, a key is missing, or the table cannot.
        """
        if not target_columns:
            return None
        schema, path = self._table.schema, self._table.hosted.info.path
        targets = frozenset(target_columns)
        if min(targets) < 0 or max(targets) >= len(schema.columns):
            raise InvalidTargetColumn(
                f"table {path} has {len(schema.columns)} columns; target columns are"
                f" {sorted(targets)}"
            )
        if self._engine:
            raise InvalidTargetColumn(
                f"table {path}: the merge engine {self._engine.lower()} takes whole rows only"
            )
        if len(targets) == len(schema.columns):
            return None
        for position, column in enumerate(schema.columns):
            if column.name in schema.primary_key:
                if position not in targets:
                    raise InvalidTargetColumn(
                        f"table {path}: the target columns lack the key column {column.name!r}"
                    )
            elif not column.data_type.nullable:
                raise InvalidTargetColumn(
                    f"table {path}: column {column.name!r} is NOT NULL; only a table whose other"
                    " columns may all be null takes partial updates"
                )
        return targets

    def _check_keys(self, keys: pa.Array) -> None:
        """A recovery takes the keys from the rows, so they must agree."""
        expected = self._table.keys(self._batches[0])
        if not expected.equals(keys):
            row = pc.index(pc.equal(expected, keys), False).as_py()
            raise CorruptRecord(
                f"record {row} has the key {keys[row].as_py().hex()}, but its row's columns make"
                f" {expected[row].as_py().hex()}: encode keys by kv format"
                f" {self._table.hosted.info.descriptor.properties.get('table.kv.format-version')}"
            )


def version_numbers(column: pa.ChunkedArray) -> np.ndarray:
    """Versions as numbers that compare as they do; one that is null is older than any."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    return column.cast(pa.int64()).fill_null(_OLDEST).to_numpy()  # type: ignore[no-any-return]


def _take(rows: pa.Table, refs: np.ndarray) -> pa.RecordBatch:
    """The rows of these refs as one batch; all null for none."""
    indices = pa.array(refs, pa.int64(), mask=refs == NO_ROW)
    taken = rows.take(indices).combine_chunks()
    columns = [
        column.chunk(0) if column.num_chunks else pa.array([], column.type)
        for column in taken.columns
    ]
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)


def _nulls(array: pa.Array) -> np.ndarray:
    return array.is_null().to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]
