"""Remote log segments on S3, with a user's credentials, the cluster's token, or both."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from sluice.client import connect
from sluice.client.connection.remote_files import FileToken, RemoteFiles
from sluice.client.log.remote_segments import Segment, read_segment
from sluice.config import ClientConfig
from sluice.errors import (
    ConfigurationError,
    CorruptMessage,
    CorruptRecord,
    SecurityTokenError,
    StorageError,
    UnknownServerError,
)
from sluice.wire import apis
from sluice.wire import fluss_api_pb2 as pb
from sluice.wire.apis import Role
from tests.support.clusters.s3_server import REGION, S3Server
from tests.support.network.fetch_server import batch, ids, reading
from tests.support.network.wire_server import WireServer

MB = 1 << 20
HOUR_MS = 3_600_000
DATA = b"".join(batch(start, 10) for start in range(0, 30, 10))
NAME = f"{0:020d}.log"


class WallClock:
    """Stands until the test moves it."""

    def __init__(self) -> None:
        self.ms = 1_750_000_000_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic_s(self) -> float:
        return self.ms / 1000

    def sleep(self, seconds: float) -> None:
        self.ms += int(seconds * 1000)


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with S3Server() as server:
        server.bucket("remote")
        yield server


@pytest.fixture
def s3(server: S3Server) -> Iterator[S3Server]:
    yield server
    server.allowed = None
    del server.seen[:]


def put(s3: S3Server, folder: str, content: bytes) -> None:
    with s3.bucket("remote").open_output_stream(f"remote/{folder}/a/{NAME}") as out:
        out.write(content)


def token(
    s3: S3Server, key: str, expires_ms: int | None = None
) -> pb.GetFileSystemSecurityTokenResponse:
    """As a Fluss with the S3 plugin answers."""
    credentials = {
        "version": 1,
        "access_key_id": key,
        "access_key_secret": "secret",
        "security_token": f"session of {key}",
    }
    answer = pb.GetFileSystemSecurityTokenResponse(
        schema="s3", token=json.dumps(credentials).encode(), expiration_time=expires_ms
    )
    answer.addition_info.add(key="fs.s3a.endpoint", value=s3.endpoint)
    answer.addition_info.add(key="fs.s3a.region", value=REGION)
    return answer


@contextmanager
def files(
    answer: Callable[[], Any], clock: WallClock | None = None, **options: str
) -> Iterator[RemoteFiles]:
    """Files of a cluster whose tokens are the test's."""
    handlers = {(Role.TABLET, apis.GET_FILESYSTEM_SECURITY_TOKEN): lambda _request: answer()}
    with WireServer(handlers) as server:
        config = ClientConfig(server.address, retry_timeout_ms=200, fs=options)
        with connect(config) as client:
            yield RemoteFiles(client._connection, clock)


def read(found: RemoteFiles, folder: str, size: int = len(DATA), piece: int = MB) -> bytes:
    segment = Segment(f"s3://remote/{folder}/a/{NAME}", 0, 30, size, 0)
    pieces = read_segment(segment, found, piece, MB)
    return b"".join(bytes(view) for batches in pieces for _, view in batches)


def never() -> Any:
    raise AssertionError("the cluster was asked for a token")


@pytest.mark.parametrize("piece", [200, MB])
def test_a_segment_is_read_whole_by_the_users_own_credentials(s3: S3Server, piece: int) -> None:
    put(s3, "whole", DATA)
    s3.allowed = {"tester": ""}
    with files(never, **s3.options()) as found:
        assert read(found, "whole", piece=piece) == DATA


def test_the_clusters_token_serves_where_nothing_is_set(s3: S3Server) -> None:
    put(s3, "token", DATA)
    s3.allowed = {"temporary": "session of temporary"}
    with files(lambda: token(s3, "temporary")) as found:
        assert read(found, "token") == DATA
        assert read(found, "token") == DATA


def test_the_users_credentials_go_with_the_clusters_endpoint(s3: S3Server) -> None:
    """And never with the token's session."""
    put(s3, "mixed", DATA)
    s3.allowed = {"mine": ""}
    mine = {"s3.access-key": "mine", "s3.secret-key": "secret"}
    with files(lambda: token(s3, "temporary"), **mine) as found:
        assert read(found, "mixed") == DATA


def test_the_users_endpoint_counts_before_the_clusters(s3: S3Server) -> None:
    put(s3, "endpoint", DATA)

    def elsewhere() -> Any:
        answer = token(s3, "temporary")
        answer.addition_info[0].value = "http://127.0.0.1:1"
        return answer

    with files(elsewhere, **{"s3.endpoint": s3.endpoint}) as found:
        assert read(found, "endpoint") == DATA


def test_a_token_is_renewed_before_it_expires(s3: S3Server) -> None:
    put(s3, "renewed", DATA)
    clock = WallClock()
    given: list[str] = []

    def next_token() -> Any:
        given.append(f"key-{len(given)}")
        s3.allowed = {given[-1]: f"session of {given[-1]}"}  # the one before is worth nothing now
        return token(s3, given[-1], clock.ms + HOUR_MS)

    with files(next_token, clock) as found:
        for minutes, count in ((0, 1), (44, 1), (2, 2), (44, 2), (2, 3)):
            clock.ms += minutes * 60_000
            assert read(found, "renewed") == DATA
            assert len(given) == count


def test_a_token_that_is_refused_is_asked_for_anew(s3: S3Server) -> None:
    """It was revoked: the first read fails, which a fetch tries again."""
    put(s3, "revoked", DATA)
    given: list[str] = []

    def next_token() -> Any:
        given.append(f"key-{len(given)}")
        return token(s3, given[-1], None)

    with files(next_token) as found:
        assert read(found, "revoked") == DATA
        s3.allowed = {"key-1": "session of key-1"}
        with pytest.raises(StorageError, match="ACCESS_DENIED") as caught:
            read(found, "revoked")
        assert caught.value.retryable
        assert read(found, "revoked") == DATA


def test_a_cluster_that_is_away_does_not_end_a_token_that_lives(s3: S3Server) -> None:
    put(s3, "away", DATA)
    clock = WallClock()
    answers: list[Callable[[], Any]] = [lambda: token(s3, "one", clock.ms + HOUR_MS)]

    def away() -> Any:
        raise UnknownServerError("not now")

    with files(lambda: answers[0](), clock) as found:
        assert read(found, "away") == DATA
        answers[0] = away
        clock.ms += 50 * 60_000
        assert read(found, "away") == DATA
        clock.ms += 20 * 60_000
        with pytest.raises(UnknownServerError, match="not now"):
            read(found, "away")
        answers[0] = lambda: token(s3, "two", clock.ms + HOUR_MS)
        assert read(found, "away") == DATA


def test_a_cluster_without_tokens_leaves_it_to_options_and_environment(s3: S3Server) -> None:
    put(s3, "none", DATA)

    def none() -> Any:
        raise SecurityTokenError("Region is not set.")

    with files(none, **{"s3.endpoint": s3.endpoint}) as found:
        assert read(found, "none") == DATA
    local = pb.GetFileSystemSecurityTokenResponse(schema="file", token=b"")
    with files(lambda: local, **{"s3.endpoint": s3.endpoint}) as found:
        assert read(found, "none") == DATA


@pytest.mark.parametrize(
    "content",
    [b"not json", b"[]", b"{}", b'{"access_key_id": 1, "access_key_secret": "a"}', b"\xff"],
)
def test_a_token_that_holds_no_credentials_is_refused_and_not_shown(content: bytes) -> None:
    with pytest.raises(CorruptMessage, match="remote storage") as caught:
        FileToken.of(pb.GetFileSystemSecurityTokenResponse(schema="s3", token=content))
    assert content.decode(errors="replace") not in str(caught.value)


def test_a_token_is_never_shown(s3: S3Server) -> None:
    assert "secret" not in repr(FileToken.of(token(s3, "temporary")))
    assert "geheim" not in repr(ClientConfig(fs={"s3.secret-key": "geheim"}))


def test_a_segment_that_is_gone(s3: S3Server) -> None:
    with files(never, **s3.options()) as found, pytest.raises(StorageError) as caught:
        read(found, "gone")
    assert f"s3://remote/gone/a/{NAME} cannot be read: FileNotFoundError" in str(caught.value)


def test_a_segment_that_is_cut(s3: S3Server) -> None:
    put(s3, "cut", DATA[:-7])
    with (
        files(never, **s3.options()) as found,
        pytest.raises(StorageError, match="is truncated: it has"),
    ):
        read(found, "cut")


def test_a_segment_that_is_corrupt(s3: S3Server) -> None:
    put(s3, "corrupt", DATA[:12] + b"\x63" + DATA[13:])
    with files(never, **s3.options()) as found, pytest.raises(CorruptRecord, match="magic 99"):
        read(found, "corrupt")


@pytest.mark.slow
def test_a_storage_that_is_down_is_an_error_with_the_file() -> None:
    options = {"s3.endpoint": "http://127.0.0.1:1", "s3.access-key": "a", "s3.secret-key": "b"}
    with files(never, **options) as found, pytest.raises(StorageError, match="s3://remote/down"):
        read(found, "down")


def test_half_of_the_credentials_is_a_wrong_setting() -> None:
    local = pb.GetFileSystemSecurityTokenResponse(schema="file", token=b"")
    with files(lambda: local, **{"s3.access-key": "a"}) as found, pytest.raises(ConfigurationError):
        found.open("s3://remote/x")


def test_a_whole_read_over_two_segments_of_s3(s3: S3Server) -> None:
    put(s3, "log", DATA)
    more = batch(30, 10)
    with s3.bucket("remote").open_output_stream(f"remote/log/b/{30:020d}.log") as out:
        out.write(more)

    def answer(request: Any, bucket: Any) -> None:
        info = bucket.remote_log_fetch_info
        info.remote_log_tablet_dir = "s3://remote/log"
        for name, start, end, size in (("a", 0, 30, len(DATA)), ("b", 30, 40, len(more))):
            info.remote_log_segments.add(
                remote_log_segment_id=name,
                remote_log_start_offset=start,
                remote_log_end_offset=end,
                segment_size_in_bytes=size,
            )

    with reading(answer, fs=s3.options()) as reader:
        assert ids(reader, 0, 40) == list(range(40))
