"""Compares the lake of this process with the one that the cluster names for its tables.

See docs/fluss/types-and-options.md#options-of-the-lake
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping
from urllib.parse import SplitResult, urlsplit

from sluice.masking import mask
from sluice.model import TableInfo
from sluice.rounds.values.ports import Lake

LAKE_OPTIONS = "table.datalake.iceberg."
_SAME_SCHEMES = {"s3a": "s3", "s3n": "s3", "file": ""}
_SLASHES = re.compile("/+")


def other_lake(info: TableInfo, options: Mapping[str, str]) -> str:
    """Says how the lake that the cluster names differs from the one here; empty if it does not.

    Only options that tell lakes apart are compared, and only those that both sides have. Several
    texts for one place are equal: ``s3a://`` and ``s3://``, ``file:/x`` and ``/x``.

    :param options: the catalog's properties here (``datalake.iceberg.*``).
    """
    found = []
    for name, are_same in _COMPARED.items():
        there = info.descriptor.properties.get(LAKE_OPTIONS + name, "")
        here = options.get(name, "")
        if name == "uri" and options.get("type", "").lower() == "hadoop":
            continue  # its catalog is the warehouse
        if there and here and not are_same(there, here):
            found.append(f"datalake.iceberg.{name} is {mask(there)} there and {mask(here)} here")
    return f"the cluster names another lake: {', '.join(found)}" if found else ""


def other_lake_note(info: TableInfo, lake: Lake) -> str:
    """A note for a table that this lake is about to begin with; empty if there is none."""
    other = other_lake(info, lake.options)
    return other and (
        f"{other}. Readers such as Flink look for the table there. If both are one lake, nothing is"
        " wrong. If not, correct datalake.iceberg here or at the server"
    )


def lake_place(info: TableInfo, lake: Lake) -> str:
    """Names the lake of this process for an error, with the cluster's if that is another one."""
    other = other_lake(info, lake.options)
    return f"{lake.where} ({other})" if other else lake.where


def _same_word(there: str, here: str) -> bool:
    return there.lower() == here.lower()


def _same_place(there: str, here: str) -> bool:
    first, second = _place(there), _place(here)
    if first == second:
        return True
    # A local path may be relative to a folder that is not known here.
    shorter, longer = sorted((first, second), key=lambda place: place[2].startswith("/"))
    is_relative = not shorter[2].startswith("/") and longer[2].startswith("/")
    local = not any(shorter[:2]) and not any(longer[:2])
    return local and is_relative and longer[2].endswith(f"/{shorter[2]}")


def _place(text: str) -> tuple[str, str, str]:
    parts = _split(text)
    scheme = parts.scheme.lower()
    host = "" if scheme == "file" else parts.netloc.lower()
    path = _SLASHES.sub("/", parts.path) if parts.path else "/"
    return _SAME_SCHEMES.get(scheme, scheme), host, posixpath.normpath(path)


def _same_address(there: str, here: str) -> bool:
    return _address(there) == _address(here)


def _address(text: str) -> tuple[str, str, str]:
    parts = _split(text)
    return parts.scheme.lower(), parts.netloc.lower(), parts.path.rstrip("/")


def _split(text: str) -> SplitResult:
    """The parts of an address, or the text as a path if it has none."""
    try:
        return urlsplit(text.strip())
    except ValueError:
        return SplitResult("", "", text, "", "")


_COMPARED: Mapping[str, Callable[[str, str], bool]] = {
    "type": _same_word,
    "catalog-impl": str.__eq__,
    "warehouse": _same_place,
    "uri": _same_address,
}
