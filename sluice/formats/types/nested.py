"""What is inside nested columns."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc


def leaves(array: pa.Array) -> Iterator[pa.Array]:
    """The columns inside a column, at any depth, that are not nested; or the column itself.

    They have the values below a null of a ROW, too.
    """
    kind = array.type
    if pa.types.is_struct(kind):
        for index in range(kind.num_fields):
            yield from leaves(array.field(index))
    elif pa.types.is_map(kind):
        for entries in _map_entries(array):
            yield from leaves(entries)
    elif pa.types.is_list(kind):
        yield from leaves(array.flatten())
    else:
        yield array


def forbidden_null(field: pa.Field, array: pa.Array) -> str:
    """The name of a NOT NULL field with a null, at any depth; empty: there is none."""
    if array.null_count and not field.nullable:
        return repr(field.name)
    for child, values in children(field.type, array):
        if inner := forbidden_null(child, values):
            return f"{field.name!r}.{inner}"
    return ""


def children(data_type: pa.DataType, array: pa.Array) -> Iterator[tuple[pa.Field, pa.Array]]:
    """The fields inside a nested column, with those of their values that belong to a row."""
    if not pa.types.is_nested(data_type):
        return
    if array.null_count:
        array = pc.drop_null(array)  # below a null, any values may stand
    if pa.types.is_struct(data_type):
        yield from ((data_type.field(i), array.field(i)) for i in range(data_type.num_fields))
    elif pa.types.is_map(data_type):
        keys, values = _map_entries(array)
        yield data_type.key_field, keys
        yield data_type.item_field, values
    else:
        yield data_type.value_field, array.flatten()


def _map_entries(array: pa.MapArray) -> tuple[pa.Array, pa.Array]:
    """The keys and values of a map column; of a slice, only those of its rows."""
    if not len(array):
        return array.keys[:0], array.items[:0]
    start, stop = array.offsets[0].as_py(), array.offsets[-1].as_py()
    return array.keys[start:stop], array.items[start:stop]
