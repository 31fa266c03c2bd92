"""Folders of Google Cloud Storage, which pyarrow lists only if an object stands for them.

pyarrow creates such objects, Iceberg does not. Without this, a walk through a table's folders would
see no file in them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa
from pyarrow import fs


class WithFolders(fs.FileSystemHandler):  # type: ignore[misc]  # pyarrow has no types
    """A GcsFileSystem whose listings have the folders of all objects. Everything else is its own.

    A listing reads the names of all objects below a folder, also for its direct children.
    """

    def __init__(self, gcs: fs.FileSystem) -> None:
        self.gcs = gcs

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WithFolders) and bool(self.gcs == other.gcs)

    def __ne__(self, other: object) -> bool:  # pyarrow's class has one of its own
        return not self == other

    __hash__ = None  # type: ignore[assignment]  # as pyarrow's file systems

    def get_type_name(self) -> str:
        return str(self.gcs.type_name)

    def normalize_path(self, path: str) -> str:
        return str(self.gcs.normalize_path(path))

    def get_file_info(self, paths: Sequence[str]) -> Any:
        return self.gcs.get_file_info(paths)

    def get_file_info_selector(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        base = PurePosixPath(selector.base_dir)
        below = fs.FileSelector(selector.base_dir, selector.allow_not_found, recursive=True)
        folders: dict[str, fs.FileInfo] = {}
        files: list[fs.FileInfo] = []
        for info in self.gcs.get_file_info(below):
            path = PurePosixPath(info.path)
            above = path.relative_to(base).parts
            if len(above) == 1 or selector.recursive:
                if info.type == fs.FileType.Directory:
                    folders[info.path] = info
                else:
                    files.append(info)
            depths = range(1, len(above)) if selector.recursive else range(1, min(len(above), 2))
            for depth in depths:
                name = str(base.joinpath(*above[:depth]))
                folders.setdefault(name, fs.FileInfo(name, fs.FileType.Directory))
        return [*folders.values(), *files]

    def create_dir(self, path: str, recursive: bool) -> None:
        self.gcs.create_dir(path, recursive=recursive)

    def delete_dir(self, path: str) -> None:
        self.gcs.delete_dir(path)

    def delete_dir_contents(self, path: str, missing_dir_ok: bool) -> None:
        self.gcs.delete_dir_contents(path, missing_dir_ok=missing_dir_ok)

    def delete_root_dir_contents(self) -> None:
        self.gcs.delete_dir_contents("", accept_root_dir=True)

    def delete_file(self, path: str) -> None:
        self.gcs.delete_file(path)

    def move(self, src: str, dest: str) -> None:
        self.gcs.move(src, dest)

    def copy_file(self, src: str, dest: str) -> None:
        self.gcs.copy_file(src, dest)

    def open_input_stream(self, path: str) -> pa.NativeFile:
        return self.gcs.open_input_stream(path, compression=None)

    def open_input_file(self, path: str) -> pa.NativeFile:
        return self.gcs.open_input_file(path)

    def open_output_stream(self, path: str, metadata: Any) -> pa.NativeFile:
        return self.gcs.open_output_stream(path, compression=None, metadata=metadata)

    def open_append_stream(self, path: str, metadata: Any) -> pa.NativeFile:
        return self.gcs.open_append_stream(path, compression=None, metadata=metadata)
