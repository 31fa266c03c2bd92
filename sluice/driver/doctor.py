"""Looks at everything that tiering needs, one thing after the other, and says what is wrong."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from sluice import __version__
from sluice.artifacts.java import java
from sluice.client import connect
from sluice.config import Config
from sluice.driver.jvm import iceberg_jar
from sluice.driver.local import check_lake
from sluice.errors import SluiceError
from sluice.masking import mask, reason_text, secrets_of
from sluice.model import ServerInfo
from sluice.storage import fsspec_file_system

_CONTENT = b"sluice doctor was here"


@dataclass(frozen=True, slots=True)
class Finding:
    """What was looked at, whether all is well (None: it was not looked at), and what was seen."""

    what: str
    ok: bool | None
    seen: str


def examine(config: Config, work_uri: str = "") -> Iterator[Finding]:
    """One finding after the other: cluster, versions, lake, work folder.

    :param work_uri: where Airflow and Spark exchange files, as the Airflow connection names it.
    """
    yield from _cluster(config)
    yield _looked("lake configured", config, lambda: _lake(config))
    yield _looked("Java and jars", config, lambda: _java(config))
    iceberg = config.datalake.iceberg
    warehouse = iceberg.get("warehouse", "")
    if "/" in warehouse or iceberg.get("type") == "hadoop":
        yield _looked(
            f"write to the lake, {warehouse}", config, lambda: write_and_remove(warehouse, iceberg)
        )
    else:
        yield Finding("write to the lake", None, "the catalog decides where: not tried")
    if work_uri:
        yield _looked(
            f"write to work_uri, {work_uri}",
            config,
            lambda: write_and_remove(work_uri, {}),
            secrets_of(work_uri),
        )
    else:
        yield Finding("write to work_uri", None, "give --work-uri URI to have it tried")


def write_and_remove(folder: str, options: Mapping[str, str]) -> str:
    """Writes a file into a folder, reads it, and removes it; a folder that it made goes too.

    :raises OSError, ValueError, ImportError, SluiceError: what the storage has against it.
    """
    fs, path = fsspec_file_system(folder.rstrip("/"), options)
    # An object is there once it is written; it needs no folder.
    is_new = not folder.startswith(("s3:", "s3a:", "s3n:")) and not fs.exists(path)
    name = f"{path}/_sluice-doctor-{uuid.uuid4().hex}"
    if is_new:
        fs.makedirs(path, exist_ok=True)
    try:
        fs.pipe_file(name, _CONTENT)
        try:
            if fs.cat_file(name) != _CONTENT:
                raise OSError(f"{name}: what was written is not what is read")
        finally:
            fs.rm_file(name)
    finally:
        if is_new and fs.exists(path) and not fs.ls(path):
            fs.rmdir(path)
    return "a file was written, read and removed"


def _looked(
    what: str, config: Config, look: Callable[[], str], secrets: Iterable[str] = ()
) -> Finding:
    hidden = (*config.secrets(), *secrets)
    shown = mask(what, hidden)
    try:
        return Finding(shown, True, look())
    except (SluiceError, OSError, ValueError, ImportError) as error:
        return Finding(shown, False, reason_text(f"{type(error).__name__}: {error}", hidden))


def _cluster(config: Config) -> Iterator[Finding]:
    """One finding for each server, or one for a cluster that is not there."""
    what = mask(f"cluster {config.client.bootstrap}", config.secrets())
    try:
        with connect(config.client) as client:
            servers = client.admin.servers()
            databases = len(client.admin.list_databases())
    except SluiceError as error:
        yield Finding(
            what, False, reason_text(f"{type(error).__name__}: {error}", config.secrets())
        )
        return
    plural = "" if databases == 1 else "s"
    yield Finding(what, True, f"answers; {databases} database{plural}")
    for server in servers:
        yield Finding(f"{server.role} {server.address}", True, _versions(server))


def _versions(server: ServerInfo) -> str:
    theirs = f"sluice {server.version}" if server.version else "Apache Fluss (tells no version)"
    both = f"here sluice {__version__}, there {theirs}"
    if not server.lacks:
        return f"{both}; it offers every call"
    return f"{both}; it does not offer {', '.join(server.lacks)}"


def _lake(config: Config) -> str:
    check_lake(config)
    iceberg = config.datalake.iceberg
    where = iceberg.get("uri") or iceberg.get("warehouse", "")
    return reason_text(f"iceberg, catalog {iceberg.get('type', 'of its own class')} at {where}")


def _java(config: Config) -> str:
    """:raises ConfigurationError: no Spark or no Iceberg runtime."""
    return f"{java()}; {iceberg_jar(config.tiering.jars).name}"
