"""Reads how a table's FileIO reaches its files, and refuses what only Iceberg's client can use.

Sources: ``FileIO``, ``SupportsStorageCredentials`` and ``S3FileIOProperties`` of Iceberg 1.12.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from py4j.java_gateway import is_instance_of

from sluice.errors import UnsupportedLakeOption
from sluice.lake.iceberg.catalog.java import iterate
from sluice.lake.storage.table_storage import TableStorage
from sluice.storage import storage_options

_CREDENTIALS = "org.apache.iceberg.io.SupportsStorageCredentials"
_HADOOP = "org.apache.iceberg.hadoop.HadoopFileIO"
_KNOWN = {
    _HADOOP,
    "org.apache.iceberg.io.ResolvingFileIO",
    "org.apache.iceberg.aws.s3.S3FileIO",
    "org.apache.iceberg.gcp.gcs.GCSFileIO",
    "org.apache.iceberg.azure.adlsv2.ADLSFileIO",
}
"""The FileIO classes whose options and locations Sluice understands."""
_SIGNING = "s3.remote-signing-enabled"
_KEY = "s3.access-key-id"
_OF_HADOOP = ("fs.s3a.", "fs.azure.", "fs.gs.", "google.cloud.")
"""Prefixes of Hadoop's options for object stores."""


@dataclass(frozen=True, slots=True)
class FileIo:
    """What a FileIO says of itself."""

    name: str
    """Its class."""
    properties: Mapping[str, str] = field(repr=False)
    credentials: Mapping[str, Mapping[str, str]] = field(repr=False)
    """Storage credentials by the prefix of locations."""


def read_file_io(gateway: Any, io: Any) -> FileIo:
    """Reads a table's FileIO, in a few calls into the JVM.

    :param io: Iceberg's object, ``table.io()``.
    """
    properties = _as_dict(gateway, io.properties())
    credentials = {}
    if is_instance_of(gateway, io, _CREDENTIALS):
        for one in iterate(io.credentials()):
            credentials[str(one.prefix())] = _as_dict(gateway, one.config())
    return FileIo(str(io.getClass().getName()), properties, credentials)


def storage_of(
    file_io: FileIo,
    user: Mapping[str, str],
    hadoop: Mapping[str, str],
    location: str,
    read_ms: int,
) -> TableStorage:
    """The storage options of a table.

    :param user: the user's options of the catalog.
    :param hadoop: what Spark's or Hadoop's own settings say of object stores. Only Hadoop's FileIO
        uses it.
    :param location: of the table.
    :param read_ms: now, epoch milliseconds.
    """
    options = dict(file_io.properties)
    if file_io.name == _HADOOP:
        options = {**hadoop, **options}
    given = TableStorage.of(options, file_io.credentials, user, location, read_ms)
    return replace(given, own=frozenset([*user, *hadoop]))


def check_file_io(file_io: FileIo, user: Mapping[str, str], table: str) -> None:
    """Checks that files can be written without Iceberg's own client.

    :param user: the user's options of the catalog.
    :raises UnsupportedLakeOption: they cannot; says what to set.
    """
    if file_io.name not in _KNOWN:
        known = ", ".join(sorted(name.rpartition(".")[2] for name in _KNOWN))
        raise UnsupportedLakeOption(
            f"lake table {table} is read and written by {file_io.name}, which Sluice does not know:"
            f" set datalake.iceberg.io-impl to the class of one of {known}"
        )
    settings = {**file_io.properties, **user}
    all_of = (settings, *file_io.credentials.values())
    if settings.get(_SIGNING, "").lower() == "true" and not any(_KEY in one for one in all_of):
        raise UnsupportedLakeOption(
            f"lake table {table}: the catalog vends no keys but signs each request itself"
            f" ({_SIGNING}=true), which only Iceberg's own client can use. Let the catalog vend"
            f" credentials, or set datalake.iceberg.{_KEY} and s3.secret-access-key. To use the"
            f" keys of the environment or of this machine, set datalake.iceberg.{_SIGNING}=false"
        )


def contradictions(file_io: FileIo, user: Mapping[str, str]) -> tuple[str, ...]:
    """The user's options of stores that a FileIO has with another value, by name.

    A REST catalog's answers override them in Iceberg's client, but not in Sluice.
    """
    given = (file_io.properties, *file_io.credentials.values())
    own = storage_options(user).items()
    return tuple(sorted({n for n, value in own for one in given if one.get(n, value) != value}))


def hadoop_storage(gateway: Any, conf: Any) -> dict[str, str]:
    """What a Hadoop configuration says of object stores beyond Hadoop's defaults."""
    default = gateway.jvm.org.apache.hadoop.conf.Configuration(False)
    default.addResource("core-default.xml")
    found: dict[str, str] = {}
    for prefix in _OF_HADOOP:
        usual = _as_dict(gateway, default.getPropsWithPrefix(prefix))
        for name, value in _as_dict(gateway, conf.getPropsWithPrefix(prefix)).items():
            if usual.get(name) != value:
                found[prefix + name] = value
    return found


def _as_dict(gateway: Any, java_map: Any) -> dict[str, str]:
    """A Java map of texts, in one call and as Iceberg's own JSON."""
    rest = gateway.jvm.org.apache.iceberg.rest.responses
    config = rest.ConfigResponse.builder().withOverrides(java_map).build()
    content = json.loads(rest.ConfigResponseParser.toJson(config))
    return {str(name): str(value) for name, value in content["overrides"].items()}
