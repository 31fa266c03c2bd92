"""The files of one Iceberg table for clean-up: what lies there, and what snapshots reference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from py4j.protocol import Py4JJavaError
from pyarrow import fs

from sluice.errors import LakeNotWritable
from sluice.lake.java import iterate, lake_errors
from sluice.model import TablePath
from sluice.rounds.clean import OffsetsFiles, StoredFile
from sluice.storage import file_system

_DELETE_THREADS = 8
# Where a table may keep files outside of its own folder.
_FOLDER_PROPERTIES = (
    "write.data.path",
    "write.metadata.path",
    "write.object-storage.path",
    "write.folder-storage.path",
)


class StoredFiles:
    """All files below a table's folders; one thread. Memory: one folder's listing."""

    def __init__(self, folders: Sequence[str], options: Mapping[str, str]) -> None:
        """:param options: of the catalog; they say how its storage is reached.

        :raises LakeNotWritable: no library here knows the storage.
        """
        self._roots: list[tuple[str, fs.FileSystem, str]] = []
        for folder in folders:
            try:
                filesystem, path = file_system(folder, options)
            except (OSError, ValueError, ImportError) as error:
                raise LakeNotWritable(f"open {folder}: {type(error).__name__}: {error}") from error
            self._roots.append((folder, filesystem, path))

    def __iter__(self) -> Iterator[StoredFile]:
        """:raises LakeNotWritable: a folder cannot be listed."""
        for root, filesystem, path in self._roots:
            waiting = [path]
            try:
                while waiting:
                    folder = fs.FileSelector(waiting.pop(), allow_not_found=True)
                    for info in filesystem.get_file_info(folder):
                        if info.type == fs.FileType.Directory:
                            waiting.append(info.path)
                        elif info.type == fs.FileType.File:
                            yield StoredFile(root + info.path[len(path) :], info.size, _when(info))
            except OSError as error:
                raise LakeNotWritable(f"list {root}: {type(error).__name__}: {error}") from error

    def remove(self, paths: Sequence[str]) -> dict[str, str]:
        """Deletes files that this listing has named; answers why some could not be."""
        if not paths:
            return {}
        with ThreadPoolExecutor(min(_DELETE_THREADS, len(paths))) as pool:
            said = pool.map(self._remove, paths)
            return {path: why for path, why in zip(paths, said, strict=True) if why}

    def _remove(self, uri: str) -> str:
        root, filesystem, path = next(r for r in self._roots if uri.startswith(r[0] + "/"))
        try:
            filesystem.delete_file(path + uri[len(root) :])
        except FileNotFoundError:
            return ""
        except OSError as error:
            return f"{type(error).__name__}: {error}"
        return ""


class IcebergReferences:
    """Which file names a table's snapshots reference, by its manifests; each is read once.

    Whole manifests travel out of the JVM as one text each: their size bounds the memory.
    """

    def __init__(self, jvm: Any, table: Any, path: TablePath, names: Set[str]) -> None:
        """:param table: Iceberg's own object."""
        self._jvm, self._table, self._path, self._names = jvm, table, path, names
        self._offsets_files = OffsetsFiles(names)
        self._snapshots: set[int] = set()
        self._manifests: set[str] = set()
        self._found: set[str] = set()

    def look(self) -> Set[str]:
        """Names that any snapshot references, on whatever branch or tag.

        :raises LakeNotWritable: a manifest cannot be read, as while snapshots are being expired.
        """
        with lake_errors(f"read what the snapshots of lake table {self._path} reference"):
            self._table.refresh()
            manifests = self._jvm.java.util.HashSet()
            seen = set()
            for snapshot in iterate(self._table.snapshots()):
                if snapshot.snapshotId() in self._snapshots:
                    continue
                seen.add(snapshot.snapshotId())
                manifests.addAll(snapshot.allManifests(self._table.io()))
                summary = snapshot.summary()
                if summary is not None:  # a snapshot of Iceberg's first format may have none
                    self._found |= self._offsets_files.named_in(str(summary.toString()))
            for manifest in iterate(manifests):
                if manifest.path() not in self._manifests:
                    self._found |= self._names & set(self._paths_in(manifest))
                    self._manifests.add(manifest.path())
        self._snapshots |= seen  # only now that they have been read to the end
        return self._found

    def _paths_in(self, manifest: Any) -> Iterator[str]:
        """Names of the live files in a manifest, of data or of deletes."""
        try:
            paths = self._all_paths(manifest)
        except Py4JJavaError:
            if manifest.content().toString() != "DELETES":
                raise
            paths = self._paths_of_deletes(manifest)
        return (path.rpartition("/")[2] for path in paths)

    def _all_paths(self, manifest: Any) -> Sequence[str]:
        """In one text. Iceberg before 1.12 has this for data only, and throws for deletes."""
        read = self._jvm.org.apache.iceberg.ManifestFiles.readPaths
        paths = read(manifest, self._table.io(), self._table.specs())
        try:
            return str(self._jvm.java.lang.String.join("\n", paths)).split("\n")
        finally:
            paths.close()

    def _paths_of_deletes(self, manifest: Any) -> Sequence[str]:
        """One by one, which asks the JVM three times for each."""
        read = self._jvm.org.apache.iceberg.ManifestFiles.readDeleteManifest
        files = read(manifest, self._table.io(), self._table.specs())
        try:
            return [str(file.location()) for file in iterate(files)]
        finally:
            files.close()


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


def _when(info: fs.FileInfo) -> int | None:
    return None if info.mtime_ns is None else info.mtime_ns // 1_000_000
