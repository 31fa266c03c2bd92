"""Finds out which classes a jar has, from its central directory alone."""

from __future__ import annotations

import struct
from pathlib import Path

from sluice.errors import ConfigurationError

_END = b"PK\x05\x06"
_END_MAX = 22 + 0xFFFF
"""The record that ends a zip, with the longest comment."""


def has_class(directory: bytes, name: str) -> bool:
    """Whether a class is in a directory from :func:`read_central_directory`."""
    return name.replace(".", "/").encode() + b".class" in directory


def read_central_directory(jar: Path) -> bytes:
    """The central directory of a jar. The zipfile module needs 100 ms to parse 25,000 names.

    :raises ConfigurationError: the file is not a jar.
    :raises OSError: the file cannot be read.
    """
    with jar.open("rb") as file:
        size = file.seek(0, 2)
        tail_at = max(0, size - _END_MAX)
        file.seek(tail_at)
        tail = file.read()
        at = tail.rfind(_END)
        if at < 0 or len(tail) < at + 22:
            raise ConfigurationError(f"{jar} is not a jar: it does not end like a zip file")
        length, offset = struct.unpack_from("<II", tail, at + 12)
        # Something may stand before the zip, or, in one of 64 bits, between directory and end.
        file.seek(max(0, min(offset, tail_at + at - length)))
        return file.read()
