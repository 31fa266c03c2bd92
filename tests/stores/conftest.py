"""The stores, each with options that open it, and one JVM with Iceberg's FileIOs for all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pytest

from sluice.driver.lakes.jvm import Jvm
from tests.support.catalog_servers.aws_bundle import BUNDLE as AWS
from tests.support.clusters.s3_server import S3Server
from tests.support.stores.azurite import Azurite
from tests.support.stores.bundles import AZURE, GCP, jars_with
from tests.support.stores.fake_gcs import FakeGcs

S3_IO = "org.apache.iceberg.aws.s3.S3FileIO"
GCS_IO = "org.apache.iceberg.gcp.gcs.GCSFileIO"
ADLS_IO = "org.apache.iceberg.azure.adlsv2.ADLSFileIO"


@dataclass(frozen=True)
class Store:
    """A bucket, and options under Iceberg's names that open it or that it refuses.

    One that lets everybody in refuses none.
    """

    root: str
    file_io: str
    options: Mapping[str, str]
    refused: Mapping[str, str]


@pytest.fixture(scope="session")
def jvm() -> Iterator[Jvm]:
    with Jvm(str(jars_with(AWS, GCP, AZURE))) as jvm:
        yield jvm


@pytest.fixture(scope="session")
def gcs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeGcs]:
    with FakeGcs(tmp_path_factory.mktemp("gcs"), tokens=["good-token"]) as server:
        server.bucket("lake")
        yield server


@pytest.fixture(scope="session")
def open_gcs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeGcs]:
    with FakeGcs(tmp_path_factory.mktemp("open-gcs")) as server:
        server.bucket("lake")
        yield server


@pytest.fixture(scope="session")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    with Azurite(tmp_path_factory.mktemp("azurite")) as server:
        server.container("lake")
        yield server


@pytest.fixture
def s3() -> Iterator[S3Server]:
    with S3Server() as server:
        server.bucket("lake")
        yield server


needs_sas = pytest.mark.skipif(
    int(pa.__version__.split(".")[0]) < 20, reason="pyarrow has SAS tokens since 20"
)


@pytest.fixture(
    params=[
        "s3",
        "s3a",
        "gs",
        "gs-open",
        "abfss-key",
        pytest.param("abfss-sas", marks=needs_sas),
        "wasbs",
    ]
)
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    scheme, _, kind = str(request.param).partition("-")
    if scheme.startswith("s3"):
        server: S3Server = request.getfixturevalue("s3")
        server.allowed = {"tester": "the-token"}
        path_style = {"s3.path-style-access": "true"}
        options = {**server.options(), **path_style, "s3.session-token": "the-token"}
        yield Store(
            f"{scheme}://lake", S3_IO, options, {**options, "s3.session-token": "old-token"}
        )
    elif kind == "open":
        unguarded: FakeGcs = request.getfixturevalue("open_gcs")
        yield Store("gs://lake", GCS_IO, unguarded.options(), {})
    elif scheme == "gs":
        google: FakeGcs = request.getfixturevalue("gcs")
        yield Store("gs://lake", GCS_IO, google.options("good-token"), google.options("old-token"))
    else:
        yield _azure(request.getfixturevalue("azurite"), scheme, kind)


def _azure(azure: Azurite, scheme: str, kind: str) -> Store:
    root = azure.uri("lake", scheme=scheme).rstrip("/")
    if kind == "sas":
        old = azure.sas_options(azure.sas(end="2020-01-01T00:00:00Z"))
        return Store(root, ADLS_IO, azure.sas_options(), old)
    return Store(root, ADLS_IO, azure.options(), azure.options(key="b3RoZXIga2V5"))
