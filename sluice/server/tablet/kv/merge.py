"""Merges a KV batch into the stored rows and writes its changelog.

See docs/fluss/kv-batches.md#changelog

Complete rows are merged all at once. With a merge engine or partial updates, a batch is processed
key by key, because each change depends on the one before; only row numbers move. Rows are decoded,
merged and assembled as columns.

Every row has a number, its *ref*: first the rows of the batch, then the stored rows, then the rows
that partial updates make. -1 is no row.
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
from sluice.formats.kv.kv_batch import KvBatch
from sluice.formats.kv.value_batch import stored_values
from sluice.model import TypeRoot
from sluice.server.tablet.kv.full_rows import NO_ROW, replacing
from sluice.server.tablet.kv.rows import (
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
"""Reads the stored values of keys; None for a missing key."""

Numbers = Callable[[int], np.ndarray]
"""Takes that many numbers for the auto-increment column of new rows."""

_KEYS_AT_ONCE = 256  # the number of rows that may be read beyond the limit


@dataclass(frozen=True, slots=True)
class RowBytesLimit:
    """Limits the bytes of stored rows that one batch may load into memory."""

    bucket: str
    bytes: int

    def check(self, size: int, batch_rows: int) -> None:
        """Checks a number of bytes.

        :raises RecordTooLarge: it exceeds the limit.
        """
        if size > self.bytes:
            raise RecordTooLarge(
                f"bucket {self.bucket}: a batch of {batch_rows} records changes at least {size}"
                f" bytes of stored rows, more than the limit of {self.bytes}: write fewer rows at"
                " once"
            )


@dataclass(slots=True)
class MergeResult:
    """The result of a merge: the changelog rows and the values to store."""

    change_types: bytes = b""
    rows: pa.RecordBatch | None = None
    """One row for each change type, in columns of the newest schema."""
    puts: list[tuple[bytes, bytes]] = field(default_factory=list)
    """Ordered by key, which is fastest for RocksDB."""
    deletes: list[bytes] = field(default_factory=list)


def merge(
    table: KvTable,
    batch: KvBatch,
    target_columns: Sequence[int],
    read: Read,
    limit: RowBytesLimit,
    numbers: Numbers,
    *,
    overwrite: bool,
) -> MergeResult:
    """Computes the changes of a batch without applying them.

    :param target_columns: column positions of a partial update; empty: complete rows.
    :param overwrite: whether to bypass the merge engine.
    :raises SchemaNotExist, CorruptRecord: the batch does not belong to this table.
    :raises DeletionDisabled, InvalidTargetColumn: the table does not allow it.
    :raises RecordTooLarge: the stored rows that it changes exceed the limit.
    """
    if not 0 <= batch.schema_id <= table.schema_id:
        raise SchemaNotExist(
            f"table {table.hosted.info.path} has no schema {batch.schema_id}; the newest is"
            f" {table.schema_id}"
        )
    return _Merge(table, batch, target_columns, read, limit, numbers, overwrite=overwrite).run()


class _Merge:
    """The merge of one batch.

    ``_batches`` holds the rows by ref as columns, the batch's own first, and ``_new`` the latter as
    stored values. In a merge key by key, ``_values`` holds all rows as stored values, and
    ``_current`` the ref of each key's row.
    """

    def __init__(
        self,
        table: KvTable,
        batch: KvBatch,
        target_columns: Sequence[int],
        read: Read,
        limit: RowBytesLimit,
        numbers: Numbers,
        *,
        overwrite: bool,
    ) -> None:
        self._table = table
        self._read, self._limit, self._numbers = read, limit, numbers
        self._engine = "" if overwrite else table.merge_engine
        self._behavior = ALLOW if overwrite else table.delete_behavior
        self._targets = self._checked_targets(target_columns)
        self._keys: pa.Array = batch.keys
        self._is_delete = _nulls(batch.rows)
        if self._behavior == DISABLE and self._is_delete.any():
            raise DeletionDisabled(
                f"table {table.hosted.info.path} does not allow deletes (table.delete.behavior ="
                f" DISABLE), but the batch deletes {int(self._is_delete.sum())} rows"
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
        self._stored: set[bytes] = set()  # keys in the store
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
        """Merges complete rows: the newest wins.

        With the WAL changelog image, only deletes need the stored rows.
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
        # RocksDB accepts single keys and values only, so objects are needed
        values = self._new.take(rows).to_pylist()
        merged.puts = list(zip(left.take(order).to_pylist(), values, strict=True))
        return merged

    def _stored_refs(self, keys: pa.Array, wanted: np.ndarray) -> np.ndarray:
        """Reads the requested keys; returns the ref of each key's stored row, if it has one.

        Keys are read in order, so that each block is read once.
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
        """Returns the rows of these refs."""
        own = self._batches[0]
        if len(refs) == own.num_rows and np.array_equal(refs, np.arange(len(refs))):
            return own  # only new rows
        return _take(pa.Table.from_batches(self._batches), refs)

    def _by_engine(self, keys: list[bytes], refs: list[int]) -> None:
        """Merges complete rows; the merge engine may keep the old row."""
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
        """Merges some columns; the others always keep their stored values.

        So two numbers identify an intermediate row: the stored row, and the batch's row with its
        target columns. All such rows are assembled at the end.
        """
        assert self._targets is not None
        stored = dict(self._current)
        others_null = self._others_null()
        names = {self._table.schema.columns[at].name for at in self._targets}
        only_key = names == set(self._table.schema.primary_key)
        is_numbered = self._table.auto_increment is not None
        made: list[tuple[int, int, int, int]] = []  # see _make
        first_stored, first_made = len(self._batches[0]), self._stored_to
        inserted: dict[bytes, tuple[int, int]] = {}  # the row with its key, its number
        for key, ref in zip(keys, refs, strict=True):
            old, base = self._current[key], stored[key]
            if (ref == NO_ROW and old == NO_ROW) or (ref != NO_ROW and only_key and old != NO_ROW):
                continue
            if is_numbered and old == NO_ROW:
                inserted[key] = ref, len(inserted)
            key_row, number = inserted.get(key, (NO_ROW, NO_ROW))
            is_delete = ref == NO_ROW and number == NO_ROW
            if is_delete and (base == NO_ROW or others_null[base - first_stored]):
                new = NO_ROW
            else:
                new = first_made + len(made)
                made.append((base, ref, key_row if ref == NO_ROW else ref, number))
            self._log(old, new)
            self._current[key] = new
        if made:
            self._make(np.array(made), self._numbers(len(inserted)) if inserted else None)

    def _others_null(self) -> np.ndarray:
        """For each stored row, whether all columns except the target columns are null."""
        rows = self._batches[1]
        result = np.ones(rows.num_rows, bool)
        for position, column in enumerate(rows.columns):
            if position not in (self._targets or ()):
                result &= _nulls(column)
        return result

    def _make(self, made: np.ndarray, numbers: np.ndarray | None) -> None:
        """Combines stored rows with the target columns of other rows; null for a missing row.

        One stored row may be used for many rows, so they are counted first.

        :param made: for each row the refs of its stored row, of its target columns and of its key,
            if it is not stored, and the position of its number.
        """
        sizes = np.array([len(value) for value in self._values], np.int64)
        stored = made[made[:, 0] != NO_ROW, 0]
        self._limit.check(int(sizes[stored].sum()), len(self._keys))
        schema, rows = self._table.schema, pa.Table.from_batches(self._batches)
        before, after = _take(rows, made[:, 0]), _take(rows, made[:, 1])
        keyed = _take(rows.select(schema.primary_key), made[:, 2])
        has_stored = pa.array(made[:, 0] != NO_ROW)
        columns = []
        for position, column in enumerate(schema.columns):
            old, new = before.column(position), after.column(position)
            if column.name in schema.primary_key:
                columns.append(pc.if_else(has_stored, old, keyed.column(column.name)))
            elif position == self._table.auto_increment and numbers is not None:
                given = pa.array(numbers[made[:, 3]]).cast(old.type)
                columns.append(pc.if_else(pa.array(made[:, 3] != NO_ROW), given, old))
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
        """Returns a function that decides whether the old row stays."""
        if self._engine == FIRST_ROW:
            return lambda _old, _new: True
        assert self._engine == VERSIONED, self._engine
        rows = pa.Table.from_batches(self._batches)
        versions = version_numbers(rows.column(self._table.version_column)).tolist()
        return lambda old, new: bool(versions[new] < versions[old])

    # -- parts

    def _take_stored(self, keys: Sequence[bytes]) -> None:
        """Assigns refs to the stored rows of these keys."""
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
        """Checks the target columns; returns None for complete rows.

        :raises InvalidTargetColumn: a column does not exist, a key column is missing, or the table
            does not support partial updates.
        """
        schema, path = self._table.schema, self._table.hosted.info.path
        numbered = self._table.auto_increment
        if numbered is not None and (not target_columns or numbered in target_columns):
            raise InvalidTargetColumn(
                f"table {path}: column {schema.names[numbered]!r} is an auto-increment column: name"
                " target columns without it"
            )
        if not target_columns:
            return None
        targets = frozenset(target_columns)
        if min(targets) < 0 or max(targets) >= len(schema.columns):
            raise InvalidTargetColumn(
                f"table {path} has {len(schema.columns)} columns, so target columns"
                f" {sorted(targets)} are not valid"
            )
        if self._engine:
            raise InvalidTargetColumn(
                f"table {path}: the merge engine {self._engine.lower()} does not support partial"
                " updates: write all columns"
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
                    f"table {path} does not support partial updates, because column"
                    f" {column.name!r} is NOT NULL: write all columns"
                )
        return targets

    def _check_keys(self, keys: pa.Array) -> None:
        """Checks that keys match their rows, because a recovery derives keys from rows."""
        expected = self._table.keys(self._batches[0])
        if not expected.equals(keys):
            row = pc.index(pc.equal(expected, keys), False).as_py()
            raise CorruptRecord(
                f"record {row} has the key {keys[row].as_py().hex()}, but the key of its row is"
                f" {expected[row].as_py().hex()}: encode keys by kv format"
                f" {self._table.hosted.info.descriptor.properties.get('table.kv.format-version')}"
            )


def version_numbers(column: pa.ChunkedArray) -> np.ndarray:
    """Converts versions to numbers of the same order; null is the oldest."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    return column.cast(pa.int64()).fill_null(_OLDEST).to_numpy()  # type: ignore[no-any-return]


def _take(rows: pa.Table, refs: np.ndarray) -> pa.RecordBatch:
    """Returns the rows of these refs as one batch; all nulls for -1."""
    indices = pa.array(refs, pa.int64(), mask=refs == NO_ROW)
    taken = rows.take(indices).combine_chunks()
    columns = [
        column.chunk(0) if column.num_chunks else pa.array([], column.type)
        for column in taken.columns
    ]
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)


def _nulls(array: pa.Array) -> np.ndarray:
    return array.is_null().to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]
