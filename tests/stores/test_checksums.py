"""A store that rejects checksums: what it says, and from when on the variable counts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pyarrow as pa
import pytest

from sluice.driver.lakes.jvm import Jvm
from sluice.lake.iceberg.catalog.java import JavaThrew
from sluice.storage import CHECKSUM_VARIABLE, is_checksum_refusal
from tests.stores.conftest import S3_IO
from tests.support.catalog_servers.aws_bundle import jars_with_s3
from tests.support.catalog_servers.iam_s3 import BUCKET
from tests.support.catalogs.s3proxy import PlainStore, s3proxy
from tests.support.stores.iceberg_io import IcebergIO

URI = f"s3://{BUCKET}/java"
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        int(pa.__version__.split(".")[0]) < 22, reason="an older pyarrow sends no such checksums"
    ),
]
_WRITE = """
import json, os, sys
from sluice.storage import file_system, is_checksum_refusal
def write(filesystem):
    try:
        with filesystem.open_output_stream(path) as out:
            out.write(b"abc")
        return filesystem.open_input_file(path).read().decode()
    except OSError as error:
        return [is_checksum_refusal(error), str(error)]
first, path = file_system(sys.argv[1], json.loads(sys.argv[2]))
said = [write(first)]
os.environ["AWS_REQUEST_CHECKSUM_CALCULATION"] = "when_required"
said.append(write(first))
said.append(write(file_system(sys.argv[1], json.loads(sys.argv[2]))[0]))
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def store() -> Iterator[PlainStore]:
    with s3proxy() as server:
        yield server


def said(store: PlainStore, **environment: str) -> list[str | tuple[bool, str]]:
    kept = {n: v for n, v in os.environ.items() if n != CHECKSUM_VARIABLE}
    command = [sys.executable, "-c", _WRITE, f"s3://{BUCKET}/x", json.dumps(store.options())]
    done = subprocess.run(
        command, env=kept | environment, capture_output=True, text=True, timeout=120, check=True
    )
    found: list[str | tuple[bool, str]] = json.loads(done.stdout)
    return found


def test_the_variable_counts_for_file_systems_made_after_it_was_set(store: PlainStore) -> None:
    first, again, other = said(store)
    assert first[0] is True
    assert "XAmzContentSHA256Mismatch" in first[1]
    assert again == first, "a file system that exists does not look again"
    assert other == "abc"


def test_with_the_variable_set_from_the_beginning(store: PlainStore) -> None:
    assert said(store, **{CHECKSUM_VARIABLE: "when_required"}) == ["abc", "abc", "abc"]


def test_icebergs_own_client(store: PlainStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CHECKSUM_VARIABLE, raising=False)
    with Jvm(str(jars_with_s3())) as jvm, pytest.raises(JavaThrew) as caught:
        IcebergIO(jvm, S3_IO, store.options()).write(URI, b"abc")
    assert is_checksum_refusal(caught.value)
    monkeypatch.setenv(CHECKSUM_VARIABLE, "when_required")
    with Jvm(str(jars_with_s3())) as jvm:
        theirs = IcebergIO(jvm, S3_IO, store.options())
        theirs.write(URI, b"abc")
        assert theirs.read(URI) == b"abc"
