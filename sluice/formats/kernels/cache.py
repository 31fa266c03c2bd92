"""Cache of compiled kernels between processes: one file per source and kind of CPU.

The folder is ``NUMBA_CACHE_DIR``, or ``sluice`` below the user's cache folder, so the package may
be in a zip file or a read-only folder. A file's name covers everything that its content depends on,
and files appear by rename. So processes may compile at the same time, and a file is never outdated.
Without a writable folder, each process compiles for itself.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from importlib import metadata
from pathlib import Path

from llvmlite import binding

from sluice.cache_folder import cache_folder
from sluice.errors import ConfigurationError
from sluice.formats.kernels.objects import source_digest

_DIGEST_SIZE = 32

Symbols = dict[str, tuple[str, int]]


def folder() -> Path | None:
    """Returns the cache folder, which may be missing or read-only; None without a home folder."""
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    if chosen:
        return Path(chosen, "sluice")
    try:
        return cache_folder()
    except ConfigurationError:
        return None


def file_name() -> str:
    """Returns the cache file name, from the kernels' source, the compiler and the CPU."""
    parts = [
        source_digest(),
        compiler(),
        binding.get_process_triple(),
        binding.get_host_cpu_name(),
        binding.get_host_cpu_features().flatten(),
    ]
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part.encode())
    return f"kernels-{digest.hexdigest()[:40]}.bin"


def compiler() -> str:
    """Returns the installed versions of numba and llvmlite; "none" if one is missing."""
    return ", ".join(f"{name} {_version(name)}" for name in ("numba", "llvmlite"))


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "none"


def load(path: Path) -> tuple[Symbols, bytes] | None:
    """Reads symbols and object file; None if missing, damaged or owned by another user."""
    try:
        if path.stat().st_uid not in (os.getuid(), 0):
            return None
        content = path.read_bytes()
    except OSError:
        return None
    body = content[_DIGEST_SIZE:]
    if hashlib.sha256(body).digest() != content[:_DIGEST_SIZE]:
        return None
    head, _, code = body.partition(b"\n")
    return {name: (symbol, count) for name, (symbol, count) in json.loads(head).items()}, code


def save(path: Path, symbols: Symbols, code: bytes) -> bool:
    """Writes a cache file; returns whether that succeeded."""
    body = json.dumps(symbols).encode() + b"\n" + code
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    except OSError:
        return False
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(hashlib.sha256(body).digest() + body)
        # readable by others, so that root can fill the cache of an image
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        return False
    return True
