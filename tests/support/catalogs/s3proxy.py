"""s3proxy: an S3 that refuses the checksums that newer SDKs add to requests."""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sluice.artifacts.java import java
from tests.support.catalog_servers.catalog import Catalog
from tests.support.catalog_servers.iam_s3 import BUCKET, REGION
from tests.support.catalog_servers.keys import Keys
from tests.support.catalog_servers.maven import MavenJar, fetch_jars
from tests.support.catalog_servers.program import http_answers, running
from tests.support.catalogs.jdbc import sqlite
from tests.support.network.ports import kept_port

S3PROXY = MavenJar(
    "org.gaul",
    "s3proxy",
    "2.7.0",
    "f3ff95bd78a7afbbcd5da56f8f6180ef71ad00601392f7e2f5a220c97ad69eef",
    "jar-with-dependencies",
)
WITHOUT_CHECKSUMS = {
    "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",
    "AWS_RESPONSE_CHECKSUM_VALIDATION": "when_required",
}
"""With these variables, SDKs add no checksums; of pyarrow and of Iceberg's S3FileIO alike."""


@dataclass(frozen=True, slots=True)
class PlainStore:
    """A store with one bucket and one pair of keys."""

    endpoint: str
    keys: Keys

    def options(self) -> dict[str, str]:
        """Iceberg's properties for this store."""
        return {
            "s3.endpoint": self.endpoint,
            "s3.path-style-access": "true",
            "client.region": REGION,
            **self.keys.options(),
        }


@contextmanager
def s3proxy() -> Iterator[PlainStore]:
    """Runs s3proxy on a folder."""
    jar = fetch_jars([S3PROXY], "servers") / S3PROXY.name
    folder = Path(tempfile.mkdtemp(prefix="sluice-s3proxy-"))
    (folder / "stored" / BUCKET).mkdir(parents=True)
    keys = Keys("tester", secrets.token_urlsafe())
    try:
        with kept_port() as port:
            store = PlainStore(f"http://127.0.0.1:{port}", keys)
            settings = {
                "s3proxy.endpoint": store.endpoint,
                "s3proxy.authorization": "aws-v4",
                "s3proxy.identity": keys.access_key,
                "s3proxy.credential": keys.secret_key,
                "s3proxy.ignore-unknown-headers": "true",
                "jclouds.provider": "filesystem-nio2",
                "jclouds.identity": "unused",
                "jclouds.credential": "unused",
                "jclouds.filesystem.basedir": str(folder / "stored"),
            }
            file = folder / "s3proxy.conf"
            file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
            options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
            command = [java(), *options, "-jar", str(jar), "--properties", str(file)]
            with running(command, folder / "log", lambda: http_answers(store.endpoint)):
                yield store
    finally:
        shutil.rmtree(folder)


@contextmanager
def sqlite_on_s3proxy() -> Iterator[Catalog]:
    """A catalog in SQLite whose tables lie on s3proxy."""
    with s3proxy() as store, sqlite(store) as catalog:
        yield Catalog(catalog.options, catalog.jars, WITHOUT_CHECKSUMS)
