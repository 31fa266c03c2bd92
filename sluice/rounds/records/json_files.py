"""Small JSON files below ``work_uri``: each appears complete under its name, with a version."""

from __future__ import annotations

import contextlib
import glob
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sluice.errors import UnknownFileVersion
from sluice.json_text import json_of

VERSION = 1


def write_json(uri: str, content: dict[str, Any], *, private: bool = False) -> None:
    """Writes a JSON file, which appears under its name complete or not at all.

    :param private: on a local disk, only this user can read the file.
    :raises OSError: from the file system, with its path.
    """
    from sluice.storage import write_whole  # loads pyarrow, see file_system_of

    written = json.dumps(content, indent=2, sort_keys=True).encode()
    write_whole(*file_system_of(uri), written, private=private)


def delete_file(uri: str) -> None:
    """Deletes a file, unless it is gone already. :raises OSError: from the file system."""
    fs, path = file_system_of(uri)
    with contextlib.suppress(FileNotFoundError):
        fs.rm_file(path)


def read_json(uri: str) -> dict[str, Any] | None:
    """The content of a JSON file, or None if there is no such file.

    :raises ValueError: the file is not JSON. :raises UnknownFileVersion: it is not a JSON object.
    """
    fs, path = file_system_of(uri)
    try:
        with fs.open(path, "rb") as file:
            content = json_of(file.read())
    except FileNotFoundError:
        return None
    if not isinstance(content, dict):
        raise UnknownFileVersion(
            f"{uri} contains {str(content)[:80]!r}, which no round writes: delete the file"
        )
    return content


def epoch_ms(time: Any) -> int | None:
    if isinstance(time, datetime):
        time = time.timestamp()
    return round(time * 1000) if isinstance(time, int | float) else None


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file in a listing."""

    uri: str
    size_bytes: int
    modified_ms: int | None = None
    """Epoch milliseconds; None: the file system does not say."""


def listed(folder: str, pattern: str) -> list[ListedFile]:
    """Files that match, the oldest first if the file system reports their times.

    :raises OSError: the folder cannot be listed; one that does not exist has no files.
    """
    fs, path = file_system_of(folder)
    fs.invalidate_cache()  # another machine may have written since the last listing
    found = fs.glob(f"{glob.escape(path)}/{pattern}", detail=True)
    by_age = sorted(found, key=lambda name: (str(time_of(found[name])), name))
    return [
        ListedFile(
            fs.unstrip_protocol(name),
            int(found[name].get("size") or 0),
            epoch_ms(time_of(found[name])),
        )
        for name in by_age
    ]


def matching(folder: str, pattern: str) -> list[str]:
    return [one.uri for one in listed(folder, pattern)]


def file_system_of(uri: str) -> tuple[Any, str]:
    """The file system of a URI, configured by the environment, which Airflow and Spark share."""
    from sluice.storage import fsspec_file_system  # loads pyarrow, which a DAG file does not need

    return fsspec_file_system(uri, {})


def time_of(info: dict[str, Any]) -> Any:
    return info.get("mtime") or info.get("LastModified") or info.get("last_modified") or ""


def check_file_version(what: str, content: Mapping[str, Any], *versions: int) -> None:
    """:raises UnknownFileVersion: the file has another version."""
    known = versions or (VERSION,)
    if content.get("version") not in known:
        raise UnknownFileVersion(
            f"the {what} file has version {content.get('version')!r}, but this Sluice reads version"
            f" {' and '.join(map(str, known))}: install the same Sluice for Airflow and for Spark"
        )
