"""What a test gets of a running catalog."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tests.support.catalog_servers.aws_bundle import jars_with_s3
from tests.support.catalog_servers.maven import MavenJar, fetch_jars


class Store(Protocol):
    """A store of files that a catalog's tables may lie on."""

    def options(self) -> dict[str, str]:
        """Iceberg's properties for the store, with keys."""


@dataclass(frozen=True, slots=True)
class Catalog:
    """A catalog as clients see it."""

    options: dict[str, str]
    """Iceberg's properties, as ``datalake.iceberg.*`` has them without that prefix."""
    jars: Path
    """For ``tiering.jars``."""
    env: dict[str, str] = field(default_factory=dict)
    """Environment variables of all processes that open it, where options do not suffice."""


def jars_with(folder: str, *more: MavenJar, base: Path | None = None) -> Path:
    """A folder for ``tiering.jars``: Iceberg, its S3FileIO, and more jars.

    :param folder: its name in the cache; each set of jars has one of its own.
    :param base: a folder of the cache with Iceberg and the FileIO of another store.
    """
    place = fetch_jars(more, folder)
    for jar in (base or jars_with_s3()).glob("*.jar"):
        if not (place / jar.name).exists():
            new = place / f"{jar.name}.{os.getpid()}"
            new.hardlink_to(jar)  # both lie in the cache
            new.replace(place / jar.name)
    return place
