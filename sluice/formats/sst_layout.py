"""What Python and the compiled kernels agree on when SST files are merged: words of 64 bits."""

from __future__ import annotations

ENDS_EARLY = -1
NO_ENTRY = -2
KEY_TOO_LONG = -3
BAD_ORDER = -4
UNKNOWN_TYPE = -5
NO_HANDLE = -6
PROBLEMS = {
    ENDS_EARLY: "a block ends within an entry",
    NO_ENTRY: "a block has an entry that cannot be",
    KEY_TOO_LONG: "a key is longer than is read here",
    BAD_ORDER: "keys are not in their order",
    UNKNOWN_TYPE: "there is more than puts and deletes",
    NO_HANDLE: "an index has more blocks than it has room for",
}

# of a source: its blocks (address and size of each), its place among them, its entry
BLOCKS, BLOCK_COUNT, NEXT_BLOCK, AT, END, KEY, KEY_ROOM, KEY_SIZE, VALUE, VALUE_SIZE, READ = range(
    11
)
SOURCE_WORDS = 11

# of a merge; behind them stand the sources that have an entry, smallest first
LIVE, LAST, LAST_SIZE, ROWS, BYTES, EMPTY = range(6)
MERGE_WORDS = 6
NO_KEY = -1
"""Size of the last key before the first."""

DONE = 0
FULL = 1
NEEDS_BLOCKS = 2
"""Answers of a merge: nothing is left, there is no room, source EMPTY needs its next blocks."""
