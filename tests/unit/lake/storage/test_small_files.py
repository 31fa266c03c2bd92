"""Small files beside a lake table's own, on a real disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluice.errors import LakeNotWritable
from sluice.lake.storage.file_systems import FileSystems
from sluice.lake.storage.small_files import read_file, write_file


@pytest.mark.parametrize("as_uri", [False, True])
def test_a_file_is_there_whole_and_alone(tmp_path: Path, as_uri: bool) -> None:
    path = tmp_path / "new folder" / "_a file%20.json"
    name = f"file:{path}" if as_uri else str(path)
    assert read_file(name, 10, FileSystems()) is None
    write_file(name, b"0123456789", FileSystems())
    assert [file.name for file in path.parent.iterdir()] == ["_a file%20.json"]
    assert read_file(name, 100, FileSystems()) == b"0123456789"
    assert read_file(name, 4, FileSystems()) == b"0123", "no more than asked for"


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    path = f"{tmp_path}/file/name"
    with pytest.raises(LakeNotWritable, match=path):
        write_file(path, b"x", FileSystems())
    with pytest.raises(LakeNotWritable, match=path):
        read_file(path, 1, FileSystems())
