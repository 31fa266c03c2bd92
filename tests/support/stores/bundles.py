"""Iceberg's FileIOs for the stores, for our JVM: folders with the runtime and a bundle of clients.

The bundles have the clients of the stores only; the FileIOs themselves are in the runtime. Newer
versions of these two could not be had from Maven.
"""

from __future__ import annotations

from pathlib import Path

from sluice.artifacts.jars import Jar
from tests.support.catalog_servers.aws_bundle import jars_with_bundles

GCP = Jar(
    "org.apache.iceberg",
    "iceberg-gcp-bundle",
    "1.11.0",
    "d9248fc76d94d232e153bf760631229cd3b7c6bc3b20f47d4b2caffe011a8a2f",
    64,
)
AZURE = Jar(
    "org.apache.iceberg",
    "iceberg-azure-bundle",
    "1.10.0",
    "f143be94b94bb380e76d1c45ee9a63e143f4a7f813c6aa1ed72f5bfd44f52d05",
    19,
)


def jars_with(*bundles: Jar) -> Path:
    """The folder; for ``tiering.jars``."""
    name = "-".join(["jars", *(jar.artifact.split("-")[1] for jar in bundles)])
    return jars_with_bundles(name, *bundles)
