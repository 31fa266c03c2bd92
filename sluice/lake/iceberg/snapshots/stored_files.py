"""The files of one Iceberg table, for clean-up: stored files, and files that snapshots
reference.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pyarrow import fs

from sluice.errors import LakeNotWritable, SluiceError
from sluice.lake.iceberg.catalog.java import JavaThrew, iterate, java_errors, lake_errors
from sluice.lake.iceberg.catalog.loaded_table import LoadedTable
from sluice.lake.storage.file_systems import FileSystems
from sluice.model import TablePath
from sluice.rounds.upkeep.orphans import OffsetsFiles, StoredFile

_DELETE_THREADS = 8
_TRIES_MAX = 3
# Table properties that may name folders outside the table's location.
_FOLDER_PROPERTIES = (
    "write.data.path",
    "write.metadata.path",
    "write.object-storage.path",
    "write.folder-storage.path",
)


class StoredFiles:
    """All files in a table's folders. Used by one thread. Memory: the listing of one folder."""

    def __init__(self, folders: Sequence[str], files: FileSystems) -> None:
        """:param files: opens the storage of the table.

        :raises LakeNotWritable: no installed library supports the storage.
        """
        self._folders, self._files = folders, files
        for folder in folders:
            self._opened(folder)

    def __iter__(self) -> Iterator[StoredFile]:
        """Lists all files, folder by folder.

        :raises LakeNotWritable: a folder cannot be listed.
        """
        for root in self._folders:
            path = self._opened(root)[1]
            inside = path.rstrip("/") + "/"
            waiting = [path]
            try:
                while waiting:
                    filesystem, _ = self._opened(root)  # each time, because keys are renewed
                    folder = fs.FileSelector(waiting.pop(), allow_not_found=True)
                    for info in filesystem.get_file_info(folder):
                        if info.type == fs.FileType.Directory:
                            waiting.append(info.path)
                        elif info.type == fs.FileType.File:
                            name = info.path.removeprefix(inside)
                            yield StoredFile(f"{root}/{name}", info.size, _when(info))
            except OSError as error:
                raise LakeNotWritable(self._text("list", root, error)) from error

    def remove(self, paths: Sequence[str]) -> dict[str, str]:
        """Deletes files of this listing; returns path and reason of each failure."""
        return remove_files(paths, self._files)

    def head(self, uri: str, bytes_max: int) -> bytes | None:
        """The beginning of a file of this listing; None if it was deleted meanwhile.

        :raises LakeNotWritable: it cannot be read.
        """
        filesystem, path = self._opened(uri)
        try:
            with filesystem.open_input_file(path) as file:
                return file.read(bytes_max)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise LakeNotWritable(self._text("read", uri, error)) from error

    def _text(self, doing: str, uri: str, error: Exception) -> str:
        return f"{doing} {uri}: {type(error).__name__}: {error}{self._files.trouble()}"

    def _opened(self, uri: str) -> tuple[fs.FileSystem, str]:
        try:
            return self._files.open(uri)
        except (OSError, ValueError, ImportError) as error:
            raise LakeNotWritable(self._text("open", uri, error)) from error


def remove_files(paths: Sequence[str], files: FileSystems) -> dict[str, str]:
    """Deletes files on some threads; returns path and reason of each failure, in this order.

    :param files: opens the storage of the table, and renews its keys.
    """

    def one(uri: str) -> str:
        why = ""
        for _ in range(_TRIES_MAX):
            keys = files.newest()
            try:
                files.delete(uri)
            except (OSError, ValueError, ImportError, SluiceError) as error:
                why = f"{type(error).__name__}: {error}{files.trouble()}"
            else:
                return ""
            if files.newest() is keys:  # else they may have ended while the store was busy
                break
        return why

    if not paths:
        return {}
    with ThreadPoolExecutor(min(_DELETE_THREADS, len(paths))) as pool:
        said = pool.map(one, paths)
        return {path: why for path, why in zip(paths, said, strict=True) if why}


class IcebergReferences:
    """The file names that a table's snapshots reference; reads each manifest once.

    Each manifest is transferred from the JVM as one text, so the largest one determines the memory.
    """

    def __init__(self, jvm: Any, loaded: LoadedTable, path: TablePath, names: Set[str]) -> None:
        """:param names: the file names to look for."""
        self._jvm, self._loaded, self._path, self._names = jvm, loaded, path, names
        self._offsets_files = OffsetsFiles(names)
        self._snapshots: set[int] = set()
        self._manifests: set[str] = set()
        self._found: set[str] = set()
        self.metadata_names: set[str] = set()
        """The names of the manifests and manifest lists that were read."""

    def read(self) -> Set[str]:
        """The names that a snapshot of any branch or tag references.

        A snapshot may expire while it is read, and its manifests are gone then. So all are read
        again, twice at most.

        :raises LakeNotWritable: a manifest cannot be read.
        """
        for tries_left in (2, 1, 0):
            try:
                return self._read()
            except LakeNotWritable as error:
                if not tries_left or "NotFoundException" not in error.message:
                    raise
        raise AssertionError("not reached")

    def _read(self) -> Set[str]:
        with lake_errors(f"read what the snapshots of lake table {self._path} reference"):
            self._loaded.refresh()
            manifests = self._jvm.java.util.HashSet()
            seen = set()
            for snapshot in iterate(self._loaded.java.snapshots()):
                if snapshot.snapshotId() in self._snapshots:
                    continue
                seen.add(snapshot.snapshotId())
                self.metadata_names.add(_name(snapshot.manifestListLocation()))
                self._loaded.renew()  # as each manifest below is read: all may outlast the keys
                manifests.addAll(snapshot.allManifests(self._loaded.java.io()))
                summary = snapshot.summary()
                if summary is not None:  # a snapshot of Iceberg's first format may have none
                    self._found |= self._offsets_files.named_in(str(summary.toString()))
            for manifest in iterate(manifests):
                location = str(manifest.path())
                if location in self._manifests:
                    continue
                if self._names:
                    self._loaded.renew()
                    self._found |= self._names & set(self._paths_in(manifest))
                self._manifests.add(location)
                self.metadata_names.add(_name(location))
        self._snapshots |= seen  # only now that they have been read to the end
        return self._found

    def _paths_in(self, manifest: Any) -> Iterator[str]:
        """The names of the live files in a manifest of data or delete files."""
        try:
            with java_errors():
                paths = self._all_paths(manifest)
        except JavaThrew:
            if manifest.content().toString() != "DELETES":
                raise
            paths = self._paths_of_deletes(manifest)
        return map(_name, paths)

    def _all_paths(self, manifest: Any) -> Sequence[str]:
        """The paths in one text. Iceberg before 1.12 throws for manifests of delete files."""
        read = self._jvm.org.apache.iceberg.ManifestFiles.readPaths
        paths = read(manifest, self._loaded.java.io(), self._loaded.java.specs())
        try:
            return str(self._jvm.java.lang.String.join("\n", paths)).split("\n")
        finally:
            paths.close()

    def _paths_of_deletes(self, manifest: Any) -> Sequence[str]:
        """The paths one by one, which needs three JVM calls per file."""
        read = self._jvm.org.apache.iceberg.ManifestFiles.readDeleteManifest
        files = read(manifest, self._loaded.java.io(), self._loaded.java.specs())
        try:
            return [str(file.location()) for file in iterate(files)]
        finally:
            files.close()


def _name(location: Any) -> str:
    return str(location).rpartition("/")[2]


def folders_of(table: Any) -> list[str]:
    """The folders of an Iceberg table, none inside another."""
    properties = table.properties()
    named = [properties.get(name) for name in _FOLDER_PROPERTIES]
    folders = {str(folder).rstrip("/") for folder in (table.location(), *named) if folder}
    return [
        folder
        for folder in sorted(folders)
        if not any(folder.startswith(f"{other}/") for other in folders)
    ]


def keeps_files(table: Any) -> bool:
    """Whether an Iceberg table's property says that others may need its files."""
    return str(table.properties().getOrDefault("gc.enabled", "true")).lower() == "false"


def _when(info: fs.FileInfo) -> int | None:
    return None if info.mtime_ns is None else info.mtime_ns // 1_000_000
