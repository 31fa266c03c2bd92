"""The id of the lease of `sluice tier`: the same for all rounds of a table by one installation.

So a round takes over the lease of a killed one. A lock file decides which living process has the
id; the kernel unlocks the file when the process ends, however it ends.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sluice.state_folder import state_folder

_LOG = logging.getLogger(__name__)

TIER_LEASE_MS = 10 * 60 * 1000
"""How long the lease lasts after a renewal; the snapshots of a killed round are kept that long."""

_LOCK = re.compile(r"(sluice-tier-[0-9a-f-]{36}-(\d+)(?:\.\d+)?)\.lock")


def stored_tier_leases() -> dict[int, list[str]]:
    """Lease ids of this installation's rounds by table id: of living processes and killed ones.

    Table ids of several clusters may be the same.
    """
    found: dict[int, list[str]] = {}
    for path in sorted(state_folder().glob("*.lock")):
        if match := _LOCK.fullmatch(path.name):
            found.setdefault(int(match[2]), []).append(match[1])
    return found


@contextmanager
def tier_lease_id(table_id: int) -> Iterator[str]:
    """A lease id that no other living process of this installation uses inside the block.

    A second process that tiers the table at the same time gets the id with ``.2``, and so on. If
    the state folder cannot be written, the id is a random one.
    """
    path: Path | None = None
    try:
        path, lock = _locked(table_id)
    except OSError as error:
        _LOG.debug("table id %d: the lease gets a random id: %s", table_id, error)
    try:
        yield random_lease_id() if path is None else path.stem
    finally:
        if path is not None:
            with suppress(OSError):
                path.unlink()
            os.close(lock)


def random_lease_id() -> str:
    """A lease id that nobody can know before the lease exists."""
    return f"sluice-tier-{uuid.uuid4()}"


def _locked(table_id: int) -> tuple[Path, int]:
    """Locks the first free file: ``ID.lock``, ``ID.2.lock`` if a process has locked that, ...

    :raises OSError: a file cannot be created or locked.
    """
    folder = state_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    name, number = f"sluice-tier-{_installation_id(folder)}-{table_id}", 1
    while True:
        path = folder / (f"{name}.lock" if number == 1 else f"{name}.{number}.lock")
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file), path.stat()):
                    return path, file
        except BlockingIOError:
            number += 1
        except BaseException:
            os.close(file)
            raise
        os.close(file)  # locked by another process, or deleted by it in the meantime


def _installation_id(folder: Path) -> uuid.UUID:
    """The id of this user's installation, created at the first use.

    :raises OSError: it cannot be read or stored.
    """
    with (folder / "installation").open("a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        try:
            return uuid.UUID(file.read().decode())
        except ValueError:  # the file is new, or a process was killed while it wrote it
            made = uuid.uuid4()
            file.truncate(0)
            file.write(str(made).encode())
            return made
