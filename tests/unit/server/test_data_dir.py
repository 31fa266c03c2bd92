"""The data directory: one owner, one format."""

from __future__ import annotations

import json
import os
import stat
from contextlib import closing
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from sluice.errors import DataDirError, DataDirLocked, UnknownDataDirFormat
from sluice.server.cluster import EmbeddedCluster
from sluice.server.data_dir import DataDir, write_durably
from tests.unit.server.support import Node, batch, config


def test_a_second_server_is_refused(tmp_path: Path) -> None:
    second = EmbeddedCluster(config(tmp_path / "d"))
    with (
        EmbeddedCluster(config(tmp_path / "d")),
        pytest.raises(DataDirLocked, match=rf"process {os.getpid()}"),
    ):
        second.start()
    with EmbeddedCluster(config(tmp_path / "d")):
        pass


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("dear")
    with pytest.raises(DataDirError, match=r"notes is not a directory"):
        DataDir.open(tmp_path / "notes")


@pytest.mark.parametrize("content", ['{"format": 2}', "nonsense", "{}", "[]", ""])
def test_an_unknown_format_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "FORMAT").write_text(content)
    for _ in range(2):  # and the refusal holds no lock
        with pytest.raises(UnknownDataDirFormat, match="supports only 1"):
            EmbeddedCluster(config(tmp_path)).start()


def test_foreign_folders_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("dear")
    with pytest.raises(UnknownDataDirFormat, match=r"thesis\.txt"):
        DataDir.open(tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "dear"


def test_a_start_that_died_at_once_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "LOCK").touch()
    (tmp_path / "FORMAT.tmp").write_text("{")
    DataDir.open(tmp_path).close()
    assert json.loads((tmp_path / "FORMAT").read_text()) == {"format": 1}


def test_a_place_that_cannot_be_one(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataDirError, match="file"):
        DataDir.open(tmp_path / "file")


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    target = tmp_path / "folder"
    target.mkdir()  # a file cannot take the name of a folder
    with pytest.raises(OSError, match="folder"):
        write_durably(target, b"x")
    assert list(tmp_path.iterdir()) == [target]


def test_the_boot_is_stored_once_the_logs_were_read(tmp_path: Path) -> None:
    def is_same_boot(*, are_logs_read: bool) -> bool:
        with closing(DataDir.open(tmp_path)) as opened:
            if are_logs_read:
                opened.record_boot()
            return opened.is_same_boot

    assert [is_same_boot(are_logs_read=one) for one in (False, True, False)] == [False, False, True]
    lock = tmp_path / "LOCK"
    lock.write_text(lock.read_text()[:-5] + "0000\n")  # the machine has started again
    assert not is_same_boot(are_logs_read=False)  # this server died
    assert not is_same_boot(are_logs_read=True)
    assert is_same_boot(are_logs_read=False)


def test_a_server_stores_the_boot_after_it_read_the_logs(tmp_path: Path) -> None:
    node = Node(tmp_path)
    table_id = node.caller.create_table()
    node.caller.produce(table_id, batch("x"))
    node.stop()
    (folder,) = (tmp_path / "log").glob("*/*")
    folder = folder.rename(folder.with_name("t-77"))  # a server with it does not start
    lock = tmp_path / "LOCK"
    lock.write_text(before := f"1\n{'0' * 36}\n")
    with pytest.raises(DataDirError, match="never issued.* needs its rows, and only then move"):
        Node(tmp_path)
    assert lock.read_text().splitlines()[1:] == before.splitlines()[1:]
    folder.rename(folder.with_name(f"t-{table_id}"))
    Node(tmp_path).stop()
    assert lock.read_text().splitlines()[1:] != before.splitlines()[1:]


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_directory_is_its_owners_alone(tmp_path: Path) -> None:
    root = tmp_path / "new" / "data"
    with capture_logs() as events:
        DataDir.open(root).close()
    assert mode_of(root) == 0o700
    assert events == []


@pytest.mark.parametrize(("mode", "told"), [(0o755, True), (0o750, False), (0o701, True)])
def test_the_mode_of_an_existing_directory_is_told_and_kept(
    tmp_path: Path, mode: int, told: bool
) -> None:
    root = tmp_path / "data"
    root.mkdir()
    root.chmod(mode)
    with capture_logs() as events:
        DataDir.open(root).close()
    assert mode_of(root) == mode
    assert [event.get("mode") for event in events] == ([f"{mode:04o}"] if told else [])
