"""Nessie as an Iceberg REST catalog, with static keys or with session keys that it vends."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.catalog_servers.aws_bundle import jars_with_s3
from tests.support.catalog_servers.catalog import Catalog
from tests.support.catalog_servers.iam_s3 import BUCKET, REGION, ROLE, IamS3
from tests.support.catalog_servers.maven import MavenJar, fetch_jars
from tests.support.catalog_servers.newer_java import java_of
from tests.support.catalog_servers.program import http_answers, running
from tests.support.network.ports import kept_port

NESSIE = MavenJar(
    "org.projectnessie.nessie",
    "nessie-quarkus",
    "0.99.0",
    "ce9fa33e2878bf5ea3981876b9e6204cabc0362b3dd82326b10e47271a78c417",
    "runner",
)
JAVA_MIN = 21
_S3 = "nessie.catalog.service.s3.default-options"


@contextmanager
def nessie(store: IamS3, *, vended_life_s: int | None = None) -> Iterator[Catalog]:
    """Runs Nessie over a store; clients get the owner's keys in their options.

    :param vended_life_s: clients get session keys of that life with each table instead. Nessie
        refuses keys that end before the duration that it asked for, so the store may not cap them.
    """
    command = java_of(JAVA_MIN)
    jar = fetch_jars([NESSIE], "servers") / NESSIE.name
    folder = Path(tempfile.mkdtemp(prefix="sluice-nessie-"))
    try:
        with kept_port() as port:
            settings = folder / "application.properties"
            lines = _settings(store, port) | _vending(vended_life_s)
            settings.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
            words = [
                "-Xmx512m",
                "-XX:+UseSerialGC",
                "-XX:TieredStopAtLevel=1",
                f"-Dquarkus.config.locations={settings}",
            ]
            uri = f"http://127.0.0.1:{port}/iceberg/"
            options = {"type": "rest", "uri": uri}
            if vended_life_s is None:
                options |= {**store.options(), "io-impl": "org.apache.iceberg.aws.s3.S3FileIO"}
            with running(
                [command, *words, "-jar", str(jar)],
                folder / "log",
                lambda: http_answers(f"{uri}v1/config"),
            ):
                yield Catalog(options, jars_with_s3())
    finally:
        shutil.rmtree(folder)


def _settings(store: IamS3, port: int) -> dict[str, str]:
    return {
        "quarkus.http.host": "127.0.0.1",
        "quarkus.http.port": str(port),
        "quarkus.management.host": "127.0.0.1",
        "quarkus.management.port": "0",
        "quarkus.otel.sdk.disabled": "true",
        "quarkus.log.level": "WARN",
        "nessie.version.store.type": "IN_MEMORY",
        "nessie.catalog.default-warehouse": "warehouse",
        "nessie.catalog.warehouses.warehouse.location": f"s3://{BUCKET}/nessie/",
        f"{_S3}.endpoint": store.endpoint,
        f"{_S3}.sts-endpoint": store.endpoint,
        f"{_S3}.region": REGION,
        f"{_S3}.path-style-access": "true",
        f"{_S3}.request-signing-enabled": "false",
        f"{_S3}.access-key": "urn:nessie-secret:quarkus:store.keys",
        "store.keys.name": store.owner.access_key,
        "store.keys.secret": store.owner.secret_key,
    }


def _vending(life_s: int | None) -> dict[str, str]:
    if life_s is None:
        return {}
    return {
        f"{_S3}.client-iam.enabled": "true",
        f"{_S3}.client-iam.assume-role": ROLE,
        f"{_S3}.client-iam.session-duration": f"PT{life_s}S",
    }
