"""Files as Iceberg's own FileIO reads and writes them, in our JVM."""

from __future__ import annotations

from collections.abc import Mapping

from sluice.driver.lakes.jvm import Jvm
from sluice.lake.iceberg.catalog.java import java_errors, java_map


class IcebergIO:
    """A FileIO by its class and the properties of a catalog.

    Each method raises JavaThrew if Java throws.
    """

    def __init__(self, jvm: Jvm, name: str, properties: Mapping[str, str]) -> None:
        gateway = jvm.gateway
        options = java_map(gateway, dict(properties))
        with java_errors():
            self._io = gateway.jvm.org.apache.iceberg.CatalogUtil.loadFileIO(name, options, None)

    def read(self, uri: str) -> bytes:
        with java_errors():
            file = self._io.newInputFile(uri)
            size = file.getLength()
            stream = file.newStream()
            try:
                return bytes(stream.readNBytes(size))
            finally:
                stream.close()

    def write(self, uri: str, content: bytes) -> None:
        with java_errors():
            stream = self._io.newOutputFile(uri).createOrOverwrite()
            try:
                stream.write(bytearray(content))
            finally:
                stream.close()

    def exists(self, uri: str) -> bool:
        with java_errors():
            return bool(self._io.newInputFile(uri).exists())

    def delete(self, uri: str) -> None:
        with java_errors():
            self._io.deleteFile(uri)
