"""The layout of a column's plan and the error codes, shared by Python and the compiled kernels.

Kernels are compiled from numbers alone: this module imports nothing.
"""

from __future__ import annotations

WORDS = 16
"""Words of a column; the next constants are positions among them."""
IN_ROW, IN_ARROW, SIZE, TIMES, BY, LIMIT = range(6)
VALUES, VALID, BIT, OFFSETS, NULLS, CURSOR = range(6, 12)

# IN_ROW: the form of a value in a row; SLOT_: array elements of varying length
(
    ROW_8,
    ROW_16,
    ROW_32,
    ROW_64,
    ROW_VARINT32,
    ROW_VARINT64,
    ROW_STAMP,
    ROW_STAMP_VARINT,
    ROW_SIZED,
    ROW_LISTED,
    ROW_PADDED,
    SLOT_STAMP,
    SLOT_DECIMAL,
    SLOT_BYTES,
    SLOT_NESTED,
) = range(15)
# IN_ARROW: its form in Arrow's buffers
(
    ARROW_BIT,
    ARROW_8,
    ARROW_16,
    ARROW_32,
    ARROW_64,
    ARROW_TIME32,
    ARROW_TIME64,
    ARROW_STAMP,
    ARROW_DECIMAL64,
    ARROW_DECIMAL128,
    ARROW_BYTES,
    ARROW_FIXED,
) = range(12)

# Error codes, which a kernel returns instead of a position or a size; all below zero
ENDS_EARLY, VARINT_TOO_LONG, BAD_LENGTH, BAD_NANOS, OUT_OF_RANGE, TOO_LONG, BYTES_LEFT, BAD_SLOT = (
    range(-8, 0)
)

NANOS_PER_MILLI = 1_000_000
MILLIS_PER_DAY = 86_400_000
MAX_MILLIS_US, REST_US = divmod(2**63 - 1, 1000)
MAX_MILLIS_NS, REST_NS = divmod(2**63 - 1, 1_000_000)
