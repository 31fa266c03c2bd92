"""File systems by URI and options; S3 is a real server of moto's, read by pyarrow."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyarrow import fs

from sluice.errors import ConfigurationError, NoFileSystem
from sluice.storage import check_scheme, file_system, fsspec_file_system, s3_options
from tests.support.clusters.s3_server import REGION, S3Server


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with S3Server() as server:
        server.bucket("lake")
        yield server


@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}"])
def test_local_paths_in_every_form_that_iceberg_and_fluss_write(tmp_path: Path, form: str) -> None:
    found, path = file_system(form.format(tmp_path / "a b=1/%20#?"), {})
    assert isinstance(found, fs.LocalFileSystem)
    assert path == str(tmp_path / "a b=1/%20#?")


def test_other_schemes_come_through_fsspec() -> None:
    found, path = file_system("memory://bucket/x.parquet", {})
    assert found.type_name.startswith("py::fsspec")
    with found.open_output_stream(path) as out:
        out.write(b"abc")
    assert found.get_file_info(path).size == 3
    found.delete_file(path)


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("oss://lake/t", "oss://lake/t: .*oss://: pip install ossfs"),
        ("oci://lake/t", "oci://lake/t: .*oci://: pip install ocifs"),
        ("cosn://lake/t", "cosn://lake/t: no file system has the scheme cosn://; use s3://"),
        ("obs://key:geheim@lake/t", "obs://[*]+@lake/t: no file system has the scheme obs://"),
    ],
)
def test_schemes_without_a_file_system_name_the_package(uri: str, said: str) -> None:
    for act in (check_scheme, lambda each: file_system(each, {})):
        with pytest.raises(NoFileSystem, match=said) as caught:
            act(uri)
        assert isinstance(caught.value, ConfigurationError)
        assert isinstance(caught.value, ValueError)
        assert "geheim" not in str(caught.value)


def test_schemes_with_a_file_system() -> None:
    uris = ("lake/t", "/lake", "file:/lake", "s3a://b", "gs://b", "hdfs://n/x", "memory://x")
    for uri in (*uris, "wasbs://c@a.blob.core.windows.net/t"):
        check_scheme(uri)


@pytest.mark.parametrize(
    "names",
    [
        ("s3.endpoint", "s3.access-key-id", "s3.secret-access-key", "client.region"),
        ("s3.endpoint", "s3.access-key", "s3.secret-key", "s3.region"),
        ("s3.endpoint", "s3.access.key", "s3.secret.key", "s3.region"),
        ("fs.s3a.endpoint", "fs.s3a.access.key", "fs.s3a.secret.key", "fs.s3a.endpoint.region"),
        (
            "hadoop.fs.s3a.endpoint",
            "hadoop.fs.s3a.access.key",
            "hadoop.fs.s3a.secret.key",
            "hadoop.fs.s3a.endpoint.region",
        ),
    ],
    ids=["iceberg", "fluss", "fluss-dots", "hadoop", "hadoop-in-iceberg"],
)
@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_s3_by_everybodys_names(s3: S3Server, names: tuple[str, ...], scheme: str) -> None:
    values = (s3.endpoint, "a-key", "a-secret", REGION)
    options = dict(zip(names, values, strict=True)) | {"warehouse": "s3://lake"}
    found, path = file_system(f"{scheme}://lake/db/t/day=a%23b c.bin", options)
    assert path == "lake/db/t/day=a%23b c.bin"
    assert found.region == REGION
    del s3.seen[:]
    with found.open_output_stream(path) as out:
        out.write(b"abc")
    with found.open_input_file(path) as file:
        assert file.read() == b"abc"
    assert set(s3.seen) == {"a-key"}


def test_icebergs_names_count_before_the_others() -> None:
    options = {"s3.endpoint": "http://a", "fs.s3a.endpoint": "http://b", "client.region": "x"}
    assert s3_options({**options, "s3.region": "y"}) == {
        "endpoint_override": "http://a",
        "region": "x",
    }


@pytest.mark.parametrize("name", ["s3.path-style-access", "fs.s3a.path.style.access"])
def test_path_style_is_given_up_where_asked_for(name: str) -> None:
    assert s3_options({name: "false"}) == {"force_virtual_addressing": True}
    assert s3_options({name: "true"}) == {}


@pytest.mark.parametrize("one", ["s3.access-key", "s3.secret-key"])
def test_half_of_the_credentials_is_refused_and_not_shown(one: str) -> None:
    with pytest.raises(ConfigurationError, match="missing; set both keys") as caught:
        file_system("s3://lake/x", {one: "geheim"})
    assert "geheim" not in str(caught.value)


def test_a_session_token_goes_along(s3: S3Server) -> None:
    s3.allowed = {"temporary": "the-token"}
    try:
        options = s3.options("temporary") | {"s3.session-token": "the-token"}
        found, path = file_system("s3://lake/session", options)
        with found.open_output_stream(path) as out:
            out.write(b"abc")
        refused, path = file_system("s3://lake/session", s3.options("temporary"))
        with pytest.raises(OSError, match="ACCESS_DENIED"):
            refused.open_input_file(path)
    finally:
        s3.allowed = None


def test_s3_as_fsspec_for_globs(s3: S3Server) -> None:
    found, path = fsspec_file_system("s3://lake/work", s3.options())
    with found.open(f"{path}/1/plan.json", "wb") as file:
        file.write(b"{}")
    assert found.glob(f"{path}/*/plan.json") == ["lake/work/1/plan.json"]


def test_hdfs_without_hadoop_says_what_to_install() -> None:
    """In a process of its own: libhdfs is looked for once."""
    code = (
        "from sluice.storage import file_system\n"
        "for _ in range(2):\n"
        "    try: file_system('hdfs://namenode:8020/fluss/log', {})\n"
        "    except Exception as error: print(type(error).__name__, error)\n"
    )
    environment = {
        k: v for k, v in os.environ.items() if k not in ("HADOOP_HOME", "ARROW_LIBHDFS_DIR")
    }
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    first, second = done.stdout.strip().splitlines()
    if first.startswith("OSError") and "HADOOP_HOME" not in first:
        pytest.skip("Hadoop is here")
    assert first == second
    assert first.startswith(
        "ConfigurationError hdfs://namenode:8020: hdfs needs Hadoop's native library"
    )
    assert "HADOOP_HOME" in first
