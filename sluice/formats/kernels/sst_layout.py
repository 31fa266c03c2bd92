"""The state of a merge of SST files, shared by Python and the compiled kernels: 64-bit words."""

from __future__ import annotations

ENDS_EARLY = -1
NO_ENTRY = -2
KEY_TOO_LONG = -3
BAD_ORDER = -4
UNKNOWN_TYPE = -5
NO_HANDLE = -6
PROBLEMS = {
    ENDS_EARLY: "a block ends within an entry",
    NO_ENTRY: "a block has an invalid entry",
    KEY_TOO_LONG: "a key exceeds the supported length",
    BAD_ORDER: "keys are not in order",
    UNKNOWN_TYPE: "the file has entries other than puts and deletes",
    NO_HANDLE: "a block position in the index is not valid",
}

# of a source: its blocks (address and size of each), its position in them, its entry
(
    BLOCKS,
    BLOCK_COUNT,
    NEXT_BLOCK,
    AT,
    END,
    KEY,
    KEY_CAPACITY,
    KEY_SIZE,
    VALUE,
    VALUE_SIZE,
    READ,
) = range(11)
SOURCE_WORDS = 11

# of a merge; followed by the sources that have an entry, smallest first
LIVE, LAST, LAST_SIZE, ROWS, BYTES, EMPTY = range(6)
MERGE_WORDS = 6
NO_KEY = -1
"""Size of the last key before there is one."""

DONE = 0
FULL = 1
NEEDS_BLOCKS = 2
"""Results of a merge: all is written, the target is full, source EMPTY needs its next blocks."""
