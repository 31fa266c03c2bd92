"""What a file is that is neither Parquet nor CSV in UTF-8, by its first and last bytes."""

from __future__ import annotations

from pathlib import Path

_PARQUET = b"PAR1"
_SIGNATURES = (
    (b"PK\x03\x04", "the file is an Excel workbook or a zip archive; export its rows as CSV"),
    (b"\xd0\xcf\x11\xe0", "the file is an Excel workbook; export its rows as CSV"),
    (b"\x1f\x8b", "the file is compressed with gzip; unpack it first"),
    (b"\x28\xb5\x2f\xfd", "the file is compressed with zstd; unpack it first"),
    (b"\xff\xfe", "the file is UTF-16 text; save it as UTF-8"),
    (b"\xfe\xff", "the file is UTF-16 text; save it as UTF-8"),
)
_READ_BYTES = 4096


def why_not_csv(path: Path) -> str:
    """Why a file cannot be CSV, and what to do; empty if it can be."""
    start, end = _ends(path)
    if start.startswith(_PARQUET) and end == _PARQUET:
        return "the file is a Parquet file; give it the suffix .parquet"
    return _by_signature(start)


def why_not_parquet(path: Path) -> str:
    """Why a file cannot be Parquet, and what to do; empty if it can be."""
    start, end = _ends(path)
    if not start:
        return "the file is empty"
    if start.startswith(_PARQUET):
        is_cut = end != _PARQUET
        return "the file is cut off: a Parquet file ends with 'PAR1'; copy it again" * is_cut
    if reason := _by_signature(start):
        return reason
    if b"\0" not in start and _is_text(start):
        return "the file is text, not Parquet; give a CSV file the suffix .csv"
    return "the file is not Parquet: it does not start with 'PAR1'"


def _ends(path: Path) -> tuple[bytes, bytes]:
    """The first bytes of a file and the last four."""
    with path.open("rb") as file:
        start = file.read(_READ_BYTES)
        size = file.seek(0, 2)
        file.seek(max(0, size - len(_PARQUET)))
        return start, file.read()


def _by_signature(start: bytes) -> str:
    return next((reason for sign, reason in _SIGNATURES if start.startswith(sign)), "")


def _is_text(start: bytes) -> bool:
    try:
        start.decode()
    except UnicodeDecodeError as error:
        return error.start > len(start) - 4  # a character that is cut off
    return True
