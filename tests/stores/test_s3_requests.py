"""What arrives at S3 for the options that pyarrow honours, and for those that Sluice refuses."""

from __future__ import annotations

import http.server
import json
import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import fs

from sluice.errors import ConfigurationError
from sluice.storage import StorageTimeouts, file_system
from tests.support.clusters.s3_server import REGION, S3Server
from tests.support.network.certificates import authority

pytestmark = pytest.mark.slow
ARN = "arn:aws:iam::123456789012:role/lake"
_WRITE = """
import json, sys
from sluice.storage import file_system
found, path = file_system("s3://lake/x", json.loads(sys.argv[1]))
with found.open_output_stream(path) as out:
    out.write(b"abc")
"""


class HeardS3(S3Server):
    """Keeps what was asked, with all headers in lower case."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[tuple[str, str, dict[str, str]]] = []

    def _answer(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        headers = {
            name.removeprefix("HTTP_").replace("_", "-").lower(): value
            for name, value in environ.items()
            if name.startswith("HTTP_")
        }
        self.heard.append((environ["REQUEST_METHOD"], environ["PATH_INFO"], headers))
        return super()._answer(environ, start)


@pytest.fixture
def heard() -> Iterator[HeardS3]:
    server = HeardS3()
    with server:
        server.bucket("lake")
        del server.heard[:], server.seen[:]
        yield server


def write(options: dict[str, str], **environment: str) -> None:
    """Writes an object, in a process with these variables and no others of AWS."""
    kept = {n: v for n, v in os.environ.items() if not n.startswith("AWS_")}
    kept |= {"AWS_EC2_METADATA_DISABLED": "true", "HOME": "/nonexistent", **environment}
    command = [sys.executable, "-c", _WRITE, json.dumps(options)]
    done = subprocess.run(command, env=kept, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]


def test_an_acl_arrives_and_nothing_of_encryption(heard: HeardS3) -> None:
    options = heard.options() | {"s3.acl": "bucket-owner-full-control"}
    found, path = file_system("s3://lake/x", options)
    with found.open_output_stream(path) as out:
        out.write(b"a" * 12_000_000)
    starts = [headers for method, _, headers in heard.heard if method == "POST"]
    assert starts[0]["x-amz-acl"] == "bucket-owner-full-control"
    sent = {name for _, _, headers in heard.heard for name in headers}
    assert not [n for n in sent if "encryption" in n or "storage-class" in n or "tagging" in n]


def test_pyarrow_drops_encryption_and_storage_classes_without_a_word(heard: HeardS3) -> None:
    """Why these options are refused; with a pyarrow that sends them, they can be passed."""
    dropped = {
        "x-amz-server-side-encryption": "aws:kms",
        "ServerSideEncryption": "aws:kms",
        "x-amz-storage-class": "STANDARD_IA",
        "x-amz-tagging": "a=b",
    }
    own = fs.S3FileSystem(
        access_key="tester",
        secret_key="x",
        endpoint_override=heard.endpoint,
        region=REGION,
        default_metadata=dropped,
    )
    with own.open_output_stream("lake/x") as out:
        out.write(b"abc")
    sent = {name for _, _, headers in heard.heard for name in headers}
    assert not [n for n in sent if "encryption" in n or "storage-class" in n or "tagging" in n]
    for name, value in {"s3.sse.type": "kms", "s3.write.storage-class": "STANDARD_IA"}.items():
        with pytest.raises(ConfigurationError, match=name):
            file_system("s3://lake/x", heard.options() | {name: value})


def test_nobody_signs_as_anonymous(heard: HeardS3) -> None:
    provider = "software.amazon.awssdk.auth.credentials.AnonymousCredentialsProvider"
    write(heard.options() | {"client.credentials-provider": provider})
    assert heard.heard
    assert set(heard.seen) == {""}


@pytest.mark.skipif(
    int(pa.__version__.split(".")[0]) < 26, reason="an older pyarrow asks AWS's own STS only"
)
def test_a_role_is_assumed_with_the_environments_keys(heard: HeardS3) -> None:
    options = {
        "s3.endpoint": heard.endpoint,
        "client.factory": "org.apache.iceberg.aws.AssumeRoleAwsClientFactory",
        "client.assume-role.arn": ARN,
        "client.assume-role.region": REGION,
        "client.assume-role.session-name": "sluice",
        "client.assume-role.external-id": "secret-of-the-role",
    }
    keys = {"AWS_ACCESS_KEY_ID": "base", "AWS_SECRET_ACCESS_KEY": "x"}
    write(options, **keys, AWS_ENDPOINT_URL_STS=heard.endpoint)
    [_, path, headers] = heard.heard[0]
    assert path == "/"
    assert "/sts/aws4_request" in headers["authorization"]
    assert heard.seen[0] == "base"
    assumed = set(heard.seen[1:])
    assert len(assumed) == 1
    assert assumed.pop().startswith("ASIA")


def test_a_profile_of_the_environment(heard: HeardS3, tmp_path: Path) -> None:
    path = tmp_path / "credentials"
    path.write_text("[lake]\naws_access_key_id = from-profile\naws_secret_access_key = x\n")
    options = {"s3.endpoint": heard.endpoint, "client.region": REGION}
    write(options, AWS_PROFILE="lake", AWS_SHARED_CREDENTIALS_FILE=str(path))
    assert set(heard.seen) == {"from-profile"}


def test_a_proxy_is_asked(heard: HeardS3) -> None:
    with proxy() as (address, asked):
        url = {"http-client.proxy-endpoint": f"http://{address}"}
        with pytest.raises(AssertionError, match="teapot|418|PutObject|Multipart"):
            write(heard.options() | url)
    assert asked
    assert all(line.startswith(heard.endpoint) for line in asked)
    assert not heard.heard


@contextmanager
def proxy() -> Iterator[tuple[str, list[str]]]:
    """A proxy that passes nothing on; its address, and the URLs that it was asked for."""
    asked: list[str] = []

    class Refusing(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.path)
            self.send_error(418)

        do_PUT = do_GET = do_HEAD = do_POST  # noqa: N815

        def log_message(self, *_: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}", asked
        server.shutdown()


@pytest.mark.skipif(
    int(pa.__version__.split(".")[0]) < 21, reason="pyarrow has tls_ca_file_path since 21"
)
def test_certificates_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Empty(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self._answer(404, b"")

        def do_GET(self) -> None:
            self._answer(200, b"<ListBucketResult></ListBucketResult>")

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", f"{len(body)}")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    files = authority().sign(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    (tmp_path / "ca.pem").write_text(authority().pem)
    keys = {"s3.access-key-id": "k", "s3.secret-access-key": "s", "client.region": REGION}
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Empty) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        options = keys | {"s3.endpoint": f"https://127.0.0.1:{server.server_port}"}
        stranger, path = file_system("s3://lake/x", options, StorageTimeouts(attempts_max=1))
        with pytest.raises(OSError, match="SSL"):
            stranger.get_file_info(path)
        monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "ca.pem"))
        found, path = file_system("s3://lake/x", options)
        assert found.get_file_info(path).type == fs.FileType.NotFound
        server.shutdown()
