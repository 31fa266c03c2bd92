"""Deletes the folders of finished runs in a work folder (their content: ``sluice.rounds.records``).

A run is finished when the coordinator holds none of its claims any more. Its files show how it
ended, so they are kept for some time. Other folders and files are never touched.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from sluice.errors import SluiceError
from sluice.failpoints import failpoint
from sluice.model import Claim
from sluice.rounds.records.json_files import epoch_ms, read_json, time_of
from sluice.rounds.records.plan_file import PlanFile
from sluice.storage import fsspec_file_system

_RUN = re.compile(r"sluice-[\w.-]+")
_NAME = r"(?:plan|started|ended|claimed-again|(?:result|failure|size|running|keys)-[^/]+)\.json"
_TEMPORARY = r"(?:\.[0-9a-f]{32}\.tmp)?"
_OF_RUN = r"(?:packs|maintenance)/[^/]+\.json|(?:run|lease-dropped)\.json"
_FILE = re.compile(rf"(?:\d+-\d+/{_NAME}|{_OF_RUN}){_TEMPORARY}")
_UNREADABLE = (OSError, SluiceError, ValueError, KeyError)


@dataclass(slots=True)
class RunFolder:
    """The files of one run of a job."""

    uri: str
    files: list[str] = field(default_factory=list)
    """Paths on their file system."""
    size_bytes: int = 0
    modified_ms: int | None = None
    """Time of the newest file, epoch milliseconds by the storage's clock; None if unknown."""
    reason: str = ""
    """Why it is kept; empty if it can be deleted."""
    error: str = ""
    """Why its deletion failed; empty if it did not. The next clean-up deletes what is left."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def run_folders(
    work_uri: str, keep_ms: int, now_ms: int, is_held: Callable[[Claim], bool]
) -> list[RunFolder]:
    """Lists the runs in a work folder; those without a ``reason`` can be deleted.

    :param keep_ms: keep runs younger than this.
    :param is_held: whether the coordinator still holds a claim. It is called for old runs only,
        because the request renews the claim.
    :raises OSError: the folder cannot be listed.
    """
    fs, root = fsspec_file_system(work_uri.rstrip("/"), {})
    fs.invalidate_cache()
    found: dict[str, RunFolder] = {}
    for path, info in sorted(fs.find(root, detail=True).items()):
        name, _, rest = path[len(root) :].lstrip("/").partition("/")
        if not _RUN.fullmatch(name) or not rest:
            continue
        run = found.setdefault(name, RunFolder(f"{work_uri.rstrip('/')}/{name}"))
        modified_ms = epoch_ms(time_of(info))
        if not _FILE.fullmatch(rest):
            run.reason = f"it contains a file that no round writes: {rest}"
        elif modified_ms is None:
            run.reason = f"the storage does not report the age of {rest}"
        run.files.append(path)
        run.size_bytes += int(info.get("size") or 0)
        if modified_ms is not None:
            run.modified_ms = max(run.modified_ms or 0, modified_ms)
    for run in found.values():
        run.reason = run.reason or _why_kept(fs, run, keep_ms, now_ms, is_held)
    return list(found.values())


def remove_run(run: RunFolder) -> None:
    """Deletes a run's files, its plans last, so that an interrupted deletion can be resumed.

    :raises OSError: from the file system, with its path.
    """
    fs, root = fsspec_file_system(run.uri, {})
    for path in sorted(run.files, key=lambda path: (path.endswith("/plan.json"), path)):
        failpoint("clean.run.file.before")
        with contextlib.suppress(FileNotFoundError):
            fs.rm_file(path)
    for folder in sorted({path.rpartition("/")[0] for path in run.files}):
        with contextlib.suppress(OSError):  # not empty, or the storage has no folders
            fs.rmdir(folder)
    with contextlib.suppress(OSError):
        fs.rmdir(root)


def _why_kept(
    fs: Any, run: RunFolder, keep_ms: int, now_ms: int, is_held: Callable[[Claim], bool]
) -> str:
    if run.modified_ms is None or now_ms - run.modified_ms < keep_ms:
        return "it is younger than --runs-older-than"
    try:
        held = [claim for claim in _claims(fs, run) if is_held(claim)]
    except _UNREADABLE as error:
        return f"one of its plan files cannot be checked: {type(error).__name__}: {error}"
    return f"the coordinator still holds its claim of table {held[0].path}" if held else ""


def _claims(fs: Any, run: RunFolder) -> Iterator[Claim]:
    for path in run.files:
        if path.endswith("/plan.json"):
            content = read_json(fs.unstrip_protocol(path))
            if content is not None:
                yield PlanFile.from_json(content).claim
