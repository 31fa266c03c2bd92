"""Hive Metastore 3 and 4 with an in-memory Derby, and the client jars with which each works.

Spark's own Hive client 2.3 works with Metastore 3. Metastore 4 no longer has the call ``get_table``
that it sends; there the client of Hive 4 has to come before Spark's jars.
"""

from __future__ import annotations

import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sluice.artifacts.java import java, pyspark_jars
from tests.support.catalog_servers.aws_bundle import jars_with_s3
from tests.support.catalog_servers.catalog import Catalog, jars_with
from tests.support.catalog_servers.iam_s3 import BUCKET, IamS3
from tests.support.catalog_servers.maven import MavenJar, fetch_jars, pinned
from tests.support.catalog_servers.program import running
from tests.support.network.ports import kept_port

HERE = Path(__file__).parent
CLIENT_4 = MavenJar(
    "org.apache.hive",
    "hive-standalone-metastore-common",
    "4.0.1",
    "f74d06e29a18d6a6b215b4e7b0445ef5c8bf7c73d5be4ab7eaed3f185cf000f8",
)
"""All that Iceberg needs of the client of Hive 4; it has to come before Spark's jars."""
_JARS_3 = {jar.artifact: jar for jar in pinned(HERE / "hive3_jars.txt")}
CLIENT_3 = (_JARS_3["hive-standalone-metastore"], _JARS_3["libthrift"])
"""The same of Hive 3, with the Thrift that it was made for. It works with both metastores."""
_OF_SPARK = (
    "hadoop-client-api-*",
    "hadoop-client-runtime-*",
    "derby*",
    "jcl-over-slf4j-*",
    "commons-cli-*",
    "commons-lang-2*",
    "jackson-core-2*",
    "jackson-databind-2*",
    "jackson-annotations-2*",
)
_OPEN = ("lang", "lang.reflect", "util", "util.concurrent", "io", "net", "nio")
STRICT = "metastore.disallow.incompatible.col.type.changes"
_LOGGING = """status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{HH:mm:ss.SSS} %-5p %c{1} %m%n%ex{8}
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
"""


@dataclass(frozen=True, slots=True)
class _Version:
    program: str
    jars: str


_VERSIONS = {
    3: _Version("Metastore3.java", "hive3_jars.txt"),
    4: _Version("Metastore4.java", "hive4_jars.txt"),
}


@contextmanager
def hive3(store: IamS3) -> Iterator[Catalog]:
    """Metastore 3.1.3 and Spark's own client.

    By default it refuses a new column in front of others, as Sluice adds them.
    """
    with metastore(3, {STRICT: "false"}) as uri:
        yield Catalog(hive_options(store, uri), jars_with_s3())


@contextmanager
def hive4(store: IamS3) -> Iterator[Catalog]:
    """Metastore 4.0.1 and the client of Hive 4.

    It takes a new column in front of others if the table has Hive's class of Iceberg tables.
    """
    with metastore(4) as uri:
        options = {
            **hive_options(store, uri),
            "warehouse": f"s3://{BUCKET}/hive4",  # the other metastore's tables have the same names
            "hadoop.iceberg.engine.hive.enabled": "true",
        }
        yield Catalog(options, jars_with("jars-hive4", CLIENT_4))


@contextmanager
def metastore(version: int, settings: dict[str, str] | None = None) -> Iterator[str]:
    """Runs a metastore on folders of its own; its address.

    :param settings: of ``metastore-site.xml``, beside those that it needs.
    """
    folder = Path(tempfile.mkdtemp(prefix="sluice-hive-"))
    found = _VERSIONS[version]
    own = fetch_jars(pinned(HERE / found.jars), f"hive{version}")
    others = [jar for name in _OF_SPARK for jar in sorted(pyspark_jars().glob(f"{name}.jar"))]
    class_path = ":".join([str(folder), f"{own}/*", *map(str, others)])
    try:
        with kept_port() as port:
            _configure(folder, port, settings or {})
            command = [
                java(), "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
                *(f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in _OPEN),
                f"-Dderby.stream.error.file={folder}/derby.log", f"-Djava.io.tmpdir={folder}",
                f"-Dlog4j2.configurationFile={folder}/log4j2.properties",
                "-cp", class_path, str(HERE / found.program), "-p", str(port),
            ]  # fmt: skip
            with running(command, folder / "log", lambda: _answers(port), cwd=folder):
                yield f"thrift://127.0.0.1:{port}"
    finally:
        shutil.rmtree(folder)


def hive_options(store: IamS3, uri: str) -> dict[str, str]:
    """A client's properties, with the owner's keys."""
    return {
        "type": "hive",
        "uri": uri,
        "warehouse": f"s3://{BUCKET}/hive",
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        **store.options(),
    }


def _configure(folder: Path, port: int, settings: dict[str, str]) -> None:
    """Writes the settings; s3:// are local folders to the metastore, which makes no files there."""
    (folder / "folders").mkdir()
    _write(
        folder / "core-site.xml",
        {
            "fs.s3.impl": "org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme",
            "fs.viewfs.overload.scheme.target.s3.impl": "org.apache.hadoop.fs.LocalFileSystem",
            f"fs.viewfs.mounttable.{BUCKET}.linkFallback": f"file://{folder}/folders",
        },
    )
    _write(
        folder / "metastore-site.xml",
        {
            "metastore.thrift.port": str(port),
            "metastore.thrift.bind.host": "127.0.0.1",
            "metastore.warehouse.dir": f"s3://{BUCKET}/hive",
            "javax.jdo.option.ConnectionURL": "jdbc:derby:memory:metastore;create=true",
            "javax.jdo.option.ConnectionDriverName": "org.apache.derby.iapi.jdbc.AutoloadedDriver",
            "datanucleus.schema.autoCreateAll": "true",
            "metastore.schema.verification": "false",
            "metastore.event.db.notification.api.auth": "false",
            "metastore.expression.proxy": (
                "org.apache.hadoop.hive.metastore.DefaultPartitionExpressionProxy"
            ),
            "metastore.task.threads.always": (
                "org.apache.hadoop.hive.metastore.events.EventCleanerTask"
            ),
            "metastore.task.threads.remote": "",
            "hive.metastore.runworker.in": "hs2",
            **settings,
        },
    )
    (folder / "log4j2.properties").write_text(_LOGGING)


def _write(file: Path, settings: dict[str, str]) -> None:
    lines = [
        f"<property><name>{name}</name><value>{value}</value></property>"
        for name, value in settings.items()
    ]
    file.write_text("<configuration>\n" + "\n".join(lines) + "\n</configuration>\n")


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
