"""The lakes of the demo: a folder, or an Iceberg REST catalog on S3 that vends the keys."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from demo.airflow import ROOT
from demo.rest_servers import KEYS_LIVE_S
from demo.servers import Kind
from sluice.artifacts.iceberg import installed_iceberg
from tests.support.catalog_servers.aws_bundle import jars_with_s3
from tests.support.catalog_servers.iam_s3 import BUCKET
from tests.support.catalog_servers.nessie import JAVA_MIN, NESSIE
from tests.support.catalog_servers.newer_java import java_of

KINDS = ("folder", "rest")
REST = Kind(
    f"Start Nessie {NESSIE.version} and S3 (moto)",
    ("demo.rest_servers", "{folder}/rest"),
    r"(\{.*\})$",
    700,  # the first start downloads the jars
    {"PYTHONPATH": str(ROOT)},
)
REST_TITLE = (
    f"Lake: Iceberg REST catalog (Nessie {NESSIE.version}) on S3 (moto, bucket {BUCKET}), on"
    f" loopback.\nThe catalog gives each client keys that live {KEYS_LIVE_S // 60} minutes; no"
    " client has keys of its own."
)


@dataclass(frozen=True, slots=True)
class Lake:
    """A lake as its clients see it."""

    options: dict[str, str]
    """Iceberg's properties, without keys."""
    jars: tuple[Path, ...] = ()
    """Of Spark's class path; empty: Spark fetches Iceberg's runtime itself."""

    @property
    def datalake(self) -> dict[str, str]:
        """The options as Fluss and Sluice name them."""
        return {"format": "iceberg", **{f"iceberg.{k}": v for k, v in self.options.items()}}

    @property
    def jar_list(self) -> str:
        """The jars as Spark takes them."""
        return ",".join(map(str, self.jars))

    @property
    def jar_setting(self) -> dict[str, str]:
        """Airflow's setting of the jars; without jars, Airflow finds Iceberg's runtime itself."""
        return {"AIRFLOW__SLUICE__JARS": self.jar_list} if self.jars else {}


def folder_lake(folder: Path) -> Lake:
    """Iceberg's hadoop catalog in a folder."""
    jar = Path(jars_folder()) / installed_iceberg().name
    options = {"type": "hadoop", "warehouse": str(folder)}
    return Lake(options, (jar,) if jar.is_file() else ())


def rest_lake(options: dict[str, str]) -> Lake:
    """A REST catalog, whose files Iceberg's S3FileIO reads and writes.

    :raises ConfigurationError: its jar cannot be fetched.
    """
    return Lake(options, tuple(sorted(jars_with_s3().glob("*.jar"))))


def check(kind: str) -> None:
    """Checks what this kind of lake needs, before anything is started.

    :raises ConfigurationError: no Java is new enough; says what to install.
    """
    if kind == "rest":
        java_of(JAVA_MIN)


def jars_folder() -> str:
    return os.environ.get("SLUICE_TIERING_JARS") or str(ROOT / ".cache/jars")
