"""The store of the tests checks keys, tokens and their ends, as S3 itself does."""

from __future__ import annotations

from dataclasses import replace
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import urlopen

import pytest
from botocore.exceptions import ClientError

from tests.support.catalog_servers.iam_s3 import BUCKET, IamS3
from tests.support.catalog_servers.keys import Keys

pytestmark = pytest.mark.slow
FILE = f"{BUCKET}/a folder/day=2026-01-01/x=%23/part +1.txt"


def write_and_read(store: IamS3, keys: Keys | None = None) -> bytes:
    files = store.file_system(keys)
    with files.open_output_stream(FILE) as sink:
        sink.write(b"words")
    with files.open_input_file(FILE) as source:
        return bytes(source.read())


def refusal(store: IamS3, keys: Keys) -> str:
    """S3's code; pyarrow is refused as well, with a text of its own for each."""
    with pytest.raises(OSError, match="AWS Error"):
        write_and_read(store, keys)
    with pytest.raises(ClientError) as caught:
        store.client("s3", keys).list_objects_v2(Bucket=BUCKET)
    return str(caught.value.response["Error"]["Code"])


def test_the_owner_and_a_session_may_write(store: IamS3) -> None:
    assert write_and_read(store) == b"words"
    session = store.assume_role()
    assert write_and_read(store, session) == b"words"
    assert session.access_key in {request["key"] for request in store.requests()}
    assert {session.secret_key, session.session_token} <= {*store.session_secrets()}


def test_other_keys_are_refused(store: IamS3) -> None:
    session = store.assume_role()
    assert refusal(store, replace(store.owner, secret_key="another")) == "SignatureDoesNotMatch"
    assert refusal(store, replace(session, secret_key="another")) == "SignatureDoesNotMatch"
    assert refusal(store, replace(session, session_token="another")) == "InvalidToken"
    assert refusal(store, replace(session, session_token="")) == "InvalidAccessKeyId"
    assert refusal(store, Keys("AKIAUNKNOWN", "another")) == "InvalidAccessKeyId"


def test_requests_without_a_signature_are_refused(store: IamS3) -> None:
    write_and_read(store)
    for url in (f"{store.endpoint}/{BUCKET}", f"{store.endpoint}/{quote(FILE)}"):
        with pytest.raises(HTTPError) as caught:
            urlopen(url, timeout=30)
        assert caught.value.code == 403, url


def test_a_session_ends(store: IamS3) -> None:
    store.cap_life(2)
    session = store.assume_role()
    store.cap_life(None)
    assert write_and_read(store, session) == b"words"
    session.wait_until_over()
    assert refusal(store, session) == "ExpiredToken"
    with pytest.raises(ClientError) as caught:
        store.client("sts", session).get_caller_identity()
    assert caught.value.response["Error"]["Code"] == "ExpiredToken"
    assert write_and_read(store, store.assume_role()) == b"words"
