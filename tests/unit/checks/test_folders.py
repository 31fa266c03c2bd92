"""Folders are tried by writing into them, and stay as they were."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fsspec
import pytest
from pyarrow.fs import FileSelector

from sluice.checks.findings import run_check
from sluice.checks.folders import local_path, work_folder_check, write_and_remove
from sluice.storage import fsspec_file_system
from tests.support.clusters.s3_server import S3Server
from tests.support.network.ports import kept_port

SEEN = "a file was written, read and removed"


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("/srv/work", "/srv/work"),
        ("file:///srv/work", "/srv/work"),
        ("file:/srv/work", "/srv/work"),
        ("work", "work"),
        ("s3://bucket/work", None),
        ("local:///opt/x.py", None),
        ("hdfs:/x", None),
    ],
)
def test_paths_of_this_machine(uri: str, path: str | None) -> None:
    assert local_path(uri) == path


def test_a_folder_that_was_there_stays_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    assert write_and_remove(*fsspec_file_system(f"file://{tmp_path}", {})) == SEEN
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_all_folders_that_it_made_go(tmp_path: Path) -> None:
    assert run_check(work_folder_check(f"file://{tmp_path}/a/b/c/")).ok
    assert list(tmp_path.iterdir()) == []


def test_what_others_put_into_a_folder_that_it_made_stays(tmp_path: Path) -> None:
    class Late(type(fsspec.filesystem("file"))):  # a round begins while the check runs
        cachable = False

        def rm_file(self, path: str) -> None:
            super().rm_file(path)
            (Path(path).parent / "of a round").touch()

    write_and_remove(Late(), str(tmp_path / "a/b"))
    assert [path.name for path in (tmp_path / "a/b").iterdir()] == ["of a round"]


def test_checks_at_the_same_time_do_not_disturb_each_other(tmp_path: Path) -> None:
    def look(_: int) -> object:
        return write_and_remove(*fsspec_file_system(f"file://{tmp_path}/work", {}))

    with ThreadPoolExecutor(2) as threads:
        assert set(threads.map(look, range(400))) == {SEEN}
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_path_below_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    found = run_check(work_folder_check(f"file://{tmp_path}/file/work"))
    assert found.ok is False
    assert found.seen.startswith("NotADirectoryError: ")
    assert found.seen.endswith("; let this user write there, or correct work_uri")


def test_a_storage_that_no_library_knows() -> None:
    found = run_check(work_folder_check("nowhere://x"))
    assert found.ok is False
    assert "Protocol not known: nowhere" in found.seen
    assert run_check(work_folder_check("nowhere://x", is_certain=False)).ok is None


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """With a bucket ``bucket``, and this process as its user."""
    with S3Server() as server:
        server.bucket("bucket")
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)
        monkeypatch.setenv("AWS_REGION", "eu-central-1")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "tester")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "planted-secret")
        yield server


def test_a_storage_that_lets_nobody_delete(server: S3Server) -> None:
    """Some keep whatever was written. That is no failure, and one file is all that is left."""
    server.refused_methods = frozenset({"DELETE"})
    for _ in range(2):
        found = run_check(work_folder_check("s3://bucket/work"))
        assert found.ok is None
        assert found.seen.startswith("a file was written and read, but could not be deleted: ")
    left = server.bucket("bucket").get_file_info(FileSelector("bucket", recursive=True))
    assert len([file.path for file in left if file.is_file]) == 1


@pytest.mark.slow
def test_refused_is_for_good_and_a_silent_network_is_not(
    server: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    for uri in (f"file://{tmp_path}/file/work", "nowhere://x", "s3://no-such-bucket/work"):
        found = run_check(work_folder_check(uri))
        assert (found.ok, found.may_pass) == (False, False), found
    server.allowed = {}
    found = run_check(work_folder_check("s3://bucket/work"))
    assert (found.ok, found.may_pass) == (False, False), found
    with kept_port() as port:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        found = run_check(work_folder_check("s3://bucket/work"))
    assert (found.ok, found.may_pass) == (False, True), found


def test_s3(server: S3Server) -> None:
    assert run_check(work_folder_check("s3://bucket/work")).seen == SEEN
    left = server.bucket("bucket").get_file_info(FileSelector("bucket", recursive=True))
    assert [file.path for file in left if file.is_file] == []
    server.allowed = {}
    found = run_check(work_folder_check("s3://bucket/work"))
    assert found.ok is False
    assert "ACCESS_DENIED" in found.seen or "not with this key" in found.seen
    assert "planted" not in found.seen
