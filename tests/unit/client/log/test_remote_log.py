"""Log segments in remote storage: whole, gone, cut or corrupt, and such as cannot be."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.client.connection.connection import Connection
from sluice.client.connection.remote_files import RemoteFiles
from sluice.client.log.remote_segments import Segment, read_segment
from sluice.config import ClientConfig
from sluice.errors import CorruptMessage, CorruptRecord, FlussError, RecordTooLarge, StorageError
from tests.support.network.fetch_server import batch, ids, reading

MB = 1 << 20
FILES = RemoteFiles(Connection(ClientConfig()))  # asks nobody about local files


def segment(folder: Path, start: int, data: bytes, name: str = "segment-1") -> Path:
    path = folder / name / f"{start:020d}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def whole(start: int, batches: int, rows: int = 10) -> bytes:
    return b"".join(batch(start + i * rows, rows) for i in range(batches))


def tell(bucket: Any, folder: object, *parts: tuple[str, int, int, int], first: int = 0) -> None:
    """Fills an answer with segments of id, start, end and size."""
    info = bucket.remote_log_fetch_info
    info.remote_log_tablet_dir = str(folder)
    info.first_start_pos = first
    for name, start, end, size in parts:
        info.remote_log_segments.add(
            remote_log_segment_id=name,
            remote_log_start_offset=start,
            remote_log_end_offset=end,
            segment_size_in_bytes=size,
        )


@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}"])
def test_reads_remote_segments_and_goes_on_with_the_servers_own_log(
    tmp_path: Path, form: str
) -> None:
    one, two = whole(0, 3), whole(30, 2)
    segment(tmp_path, 0, one, "a")
    segment(tmp_path, 30, two, "b")
    asked: list[int] = []

    def answer(request: Any, bucket: Any) -> None:
        asked.append(request.fetch_offset)
        if request.fetch_offset < 50:
            place = form.format(tmp_path)
            tell(bucket, place, ("a", 0, 30, len(one)), ("b", 30, 50, len(two)))
        else:
            bucket.records = batch(50, 10)

    with reading(answer) as reader:
        assert ids(reader, 0, 60) == list(range(60))
    assert asked == [0, 50]


def test_begins_where_the_server_says_and_drops_what_was_before(tmp_path: Path) -> None:
    data = whole(0, 4)
    segment(tmp_path, 0, data, "a")
    skip = len(batch(0, 10))

    def answer(request: Any, bucket: Any) -> None:
        tell(bucket, tmp_path, ("a", 0, 40, len(data)), first=skip)

    with reading(answer) as reader:
        assert ids(reader, 25, 38) == list(range(25, 38))


def test_a_batch_larger_than_a_piece_is_read_whole(tmp_path: Path) -> None:
    data = batch(0, 10) + batch(10, 5000) + batch(5010, 10)
    path = segment(tmp_path, 0, data)
    found = list(read_segment(Segment(str(path), 0, 5020, len(data), 0), FILES, 1000, MB))
    assert [header.record_count for batches in found for header, _ in batches] == [10, 5000, 10]
    assert b"".join(bytes(view) for batches in found for _, view in batches) == data


def test_a_batch_over_the_limit_is_refused_unread(tmp_path: Path) -> None:
    data = batch(0, 5000)
    path = segment(tmp_path, 0, data)
    with pytest.raises(RecordTooLarge, match="client.max_message_bytes allows 1,000"):
        list(read_segment(Segment(str(path), 0, 5000, len(data), 0), FILES, 100, 1000))


def test_pieces_are_no_larger_than_asked_for(tmp_path: Path) -> None:
    data = whole(0, 50)
    path = segment(tmp_path, 0, data)
    found = list(read_segment(Segment(str(path), 0, 500, len(data), 0), FILES, 1000, MB))
    assert max(sum(header.size for header, _ in batches) for batches in found) <= 1000
    assert sum(len(batches) for batches in found) == 50


def test_a_segment_that_is_gone_is_asked_for_again(tmp_path: Path) -> None:
    data = whole(0, 3)
    asked: list[int] = []

    def answer(request: Any, bucket: Any) -> None:
        asked.append(request.fetch_offset)
        if len(asked) < 3:
            tell(bucket, tmp_path, ("a", 0, 30, len(data)))
        else:
            bucket.records = data

    with reading(answer) as reader:
        assert ids(reader, 0, 30) == list(range(30))
    assert asked == [0, 0, 0]


def test_a_segment_that_stays_gone_is_an_error_with_its_file(tmp_path: Path) -> None:
    def answer(request: Any, bucket: Any) -> None:
        tell(bucket, tmp_path, ("a", 0, 30, 1000))

    with reading(answer) as reader, pytest.raises(StorageError) as caught:
        ids(reader, 0, 30)
    text = str(caught.value)
    assert f"{tmp_path}/a/{0:020d}.log cannot be read: FileNotFoundError" in text
    assert "bucket 0 of table db.t, offset 0" in text
    assert "(tried 3 times)" in text


def test_a_segment_deleted_between_two_pieces_of_others_is_fetched_anew(tmp_path: Path) -> None:
    one, two = whole(0, 3), whole(30, 3)
    segment(tmp_path, 0, one, "a")
    asked: list[int] = []

    def answer(request: Any, bucket: Any) -> None:
        asked.append(request.fetch_offset)
        if request.fetch_offset == 0:
            tell(bucket, tmp_path, ("a", 0, 30, len(one)), ("b", 30, 60, len(two)))
        else:
            bucket.records = two

    with reading(answer) as reader:
        assert ids(reader, 0, 60) == list(range(60))
    assert asked == [0, 30]


def test_segments_that_do_not_hold_the_offset_are_an_error(tmp_path: Path) -> None:
    def answer(request: Any, bucket: Any) -> None:
        tell(bucket, tmp_path)

    with reading(answer) as reader, pytest.raises(StorageError, match="in none of the 0 segments"):
        ids(reader, 0, 30)


def cut_file(path: Path, data: bytes) -> int:
    path.write_bytes(data[:-7])
    return len(data)


def cut_size(path: Path, data: bytes) -> int:
    return len(data) - 7


def cut_at_a_batch(path: Path, data: bytes) -> int:
    return len(data) - len(batch(20, 10))


def cut_in_a_header(path: Path, data: bytes) -> int:
    return len(data) - len(batch(20, 10)) + 20


@pytest.mark.parametrize("damage", [cut_file, cut_size, cut_at_a_batch, cut_in_a_header])
def test_a_cut_segment_is_an_error_with_its_file(
    tmp_path: Path, damage: Callable[[Path, bytes], int]
) -> None:
    data = whole(0, 3)
    path = segment(tmp_path, 0, data)
    size = damage(path, data)
    with pytest.raises(StorageError, match=rf"segment {path} is truncated"):
        list(read_segment(Segment(str(path), 0, 30, size, 0), FILES, MB, MB))


def test_a_corrupt_header_is_an_error_with_its_file(tmp_path: Path) -> None:
    data = bytearray(whole(0, 3))
    data[len(batch(0, 10)) + 12] = 99  # the second batch's magic
    path = segment(tmp_path, 0, bytes(data))
    with pytest.raises(CorruptRecord, match=rf"segment {path}, from byte 0: .* magic 99"):
        list(read_segment(Segment(str(path), 0, 30, len(data), 0), FILES, MB, MB))


def test_a_corrupt_batch_is_an_error_with_its_file(tmp_path: Path) -> None:
    data = bytearray(whole(0, 3))
    data[-10] ^= 1
    segment(tmp_path, 0, bytes(data), "a")

    def answer(request: Any, bucket: Any) -> None:
        tell(bucket, tmp_path, ("a", 0, 30, len(data)))

    with (
        reading(answer) as reader,
        pytest.raises(CorruptRecord, match=rf"checksum .*\(in {tmp_path}/a/0+\.log\)"),
    ):
        ids(reader, 0, 30)


@pytest.mark.parametrize(
    "part", [("a", -1, 30, 100), ("a", 30, 30, 100), ("a", 0, 30, 0), ("a", 0, 30, -5)]
)
def test_a_segment_that_cannot_be_is_refused(
    tmp_path: Path, part: tuple[str, int, int, int]
) -> None:
    def answer(request: Any, bucket: Any) -> None:
        tell(bucket, tmp_path, part)

    with reading(answer) as reader, pytest.raises(CorruptMessage, match="not valid"):
        ids(reader, 0, 30)


def test_an_unknown_file_system_is_an_error_with_the_file() -> None:
    def answer(request: Any, bucket: Any) -> None:
        tell(bucket, "nosuch://host/log", ("a", 0, 30, 100))

    with reading(answer) as reader, pytest.raises(StorageError, match="nosuch://host/log/a/0+.log"):
        ids(reader, 0, 30)


def test_file_systems_of_fsspec_serve() -> None:
    data = whole(0, 3)
    memory = fsspec.filesystem("memory")
    memory.pipe(f"/logs/t-1/0/a/{0:020d}.log", data)

    def answer(request: Any, bucket: Any) -> None:
        tell(bucket, "memory://logs/t-1/0", ("a", 0, 30, len(data)))

    try:
        with reading(answer) as reader:
            assert ids(reader, 0, 30) == list(range(30))
    finally:
        memory.rm("/logs", recursive=True)


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_damaged_files_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    content = bytearray(whole(0, 3))
    size = len(content)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(content) - 1))
        end = data.draw(st.integers(place, min(place + 4, len(content))))
        content[place:end] = data.draw(st.binary(max_size=4))
    path = segment(folder, 0, bytes(content))
    piece = data.draw(st.sampled_from([64, 300, MB]))
    try:
        for batches in read_segment(Segment(str(path), 0, 30, size, 0), FILES, piece, MB):
            assert all(len(view) == header.size for header, view in batches)
    except FlussError as error:
        assert str(path) in str(error)
    finally:
        shutil.rmtree(folder)
