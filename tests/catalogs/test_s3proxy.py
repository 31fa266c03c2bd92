"""A store that refuses checksums: what pyarrow and Iceberg say with and without the variables."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from sluice.driver.lakes.jvm import Jvm
from sluice.lake.iceberg.catalog.java import JavaThrew
from tests.support.catalogs.iceberg_client import opened
from tests.support.catalogs.jdbc import sqlite
from tests.support.catalogs.s3proxy import WITHOUT_CHECKSUMS, PlainStore, s3proxy

pytestmark = pytest.mark.long
REFUSED = "XAmzContentSHA256Mismatch"
WRITE = """import json, sys
from sluice.storage import s3_file_system, s3_options
files = s3_file_system(s3_options(json.load(sys.stdin)))
with files.open_output_stream("lake/words.txt") as sink:
    sink.write(b"words")
print(files.open_input_file("lake/words.txt").read().decode())
"""


@pytest.fixture(scope="module")
def proxy() -> Iterator[PlainStore]:
    with s3proxy() as running:
        yield running


def written(proxy: PlainStore, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WRITE],
        input=json.dumps(proxy.options()),
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_pyarrow(proxy: PlainStore) -> None:
    refused = written(proxy, {})
    assert refused.returncode == 1
    assert REFUSED in refused.stderr
    assert written(proxy, WITHOUT_CHECKSUMS).stdout == "words\n"
    first, second = WITHOUT_CHECKSUMS.items()
    assert written(proxy, dict([first])).stdout == "words\n"
    assert REFUSED in written(proxy, dict([second])).stderr


def test_iceberg(proxy: PlainStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with sqlite(proxy) as catalog:
        with (
            Jvm(str(catalog.jars)) as jvm,
            opened(jvm, catalog.options) as client,
            pytest.raises(JavaThrew, match="'x-amz-content-sha256' header does not match"),
        ):
            client.create("shop.orders")
        for name, value in WITHOUT_CHECKSUMS.items():
            monkeypatch.setenv(name, value)
        with Jvm(str(catalog.jars)) as jvm, opened(jvm, catalog.options) as client:
            table = client.create("shop.orders")
            assert client.read(table, client.write(table, "words")) == "words"
