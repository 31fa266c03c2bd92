"""File systems by URI."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyarrow import fs

from sluice.lake import storage


@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}"])
def test_local_paths_in_every_form_that_iceberg_writes(tmp_path: Path, form: str) -> None:
    found, path = storage.resolve(form.format(tmp_path / "a b=1/%20#?"), {})
    assert isinstance(found, fs.LocalFileSystem)
    assert path == str(tmp_path / "a b=1/%20#?")


def test_other_schemes_come_through_fsspec() -> None:
    found, path = storage.resolve("memory://bucket/x.parquet", {})
    assert found.type_name.startswith("py::fsspec")
    with found.open_output_stream(path) as out:
        out.write(b"abc")
    assert found.get_file_info(path).size == 3
    assert not storage.renames(found)
    storage.delete("memory://bucket/x.parquet", {})
    assert found.get_file_info(path).type == fs.FileType.NotFound


def test_a_file_that_is_gone_already_is_deleted(tmp_path: Path) -> None:
    storage.delete(f"file:{tmp_path}/nothing", {})


def test_icebergs_s3_settings_reach_pyarrow() -> None:
    properties = {
        "s3.endpoint": "http://127.0.0.1:9000",
        "s3.access-key-id": "a",
        "s3.secret-access-key": "b",
        "client.region": "eu-central-1",
        "s3.path-style-access": "true",
        "warehouse": "s3://lake",
    }
    assert storage.s3_options(properties) == {
        "endpoint_override": "http://127.0.0.1:9000",
        "access_key": "a",
        "secret_key": "b",
        "region": "eu-central-1",
    }
    found, path = storage.resolve("s3a://lake/db/t/day=a%23b", properties)
    assert (found.type_name, path) == ("s3", "lake/db/t/day=a%23b")
