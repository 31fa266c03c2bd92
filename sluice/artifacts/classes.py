"""Which classes a jar has: its central directory, without the files themselves."""

from __future__ import annotations

import struct
from pathlib import Path

from sluice.errors import ConfigurationError

_END = b"PK\x05\x06"
_END_MAX = 22 + 0xFFFF
"""The record that ends a zip, with the longest comment."""


def has_class(directory: bytes, name: str) -> bool:
    """Whether a class is in a directory that :func:`read_central_directory` has read."""
    return name.replace(".", "/").encode() + b".class" in directory


def read_central_directory(jar: Path) -> bytes:
    """The end of a jar, which names all files in it. zipfile takes 100 ms to part 25 000 names.

    :raises ConfigurationError: it is no jar.
    :raises OSError: it cannot be read.
    """
    with jar.open("rb") as file:
        size = file.seek(0, 2)
        tail_at = max(0, size - _END_MAX)
        file.seek(tail_at)
        tail = file.read()
        at = tail.rfind(_END)
        if at < 0 or len(tail) < at + 22:
            raise ConfigurationError(f"{jar} is no jar: it does not end as a zip file does")
        length, offset = struct.unpack_from("<II", tail, at + 12)
        # Something may stand before the zip, or, in one of 64 bits, between directory and end.
        file.seek(max(0, min(offset, tail_at + at - length)))
        return file.read()
