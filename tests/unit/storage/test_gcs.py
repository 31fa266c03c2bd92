"""GCS's options where several decide together."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime

import pytest

from sluice.errors import ConfigurationError
from sluice.storage import check_storage, file_system
from sluice.storage.gcs import gcs_options


def test_a_token_counts_alone() -> None:
    options = {"gcs.oauth2.token": "t", "gcs.oauth2.token-expires-at": "1800000000123"}
    ends = datetime(2027, 1, 15, 8, 0, 0, 123000, UTC)
    expected = {"access_token": "t", "credential_token_expiration": ends}
    assert gcs_options(options) == expected
    other = {"gcs.impersonate.service-account": "a@b", "fs.gs.auth.type": "UNAUTHENTICATED"}
    assert gcs_options({**options, **other}) == expected
    assert gcs_options({"gcs.oauth2.token-expires-at": "1800000000123"}) == {}
    file_system("gs://lake/x", {"gcs.oauth2.token": "t"})


def test_a_token_and_no_auth_exclude_each_other_as_in_iceberg() -> None:
    with pytest.raises(ConfigurationError, match="exclude each other") as caught:
        check_storage("gs://lake", {"gcs.no-auth": "true", "gcs.oauth2.token": "geheim"})
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "scheme", "place"),
    [
        ("http://127.0.0.1:4443", "http", "127.0.0.1:4443"),
        ("https://storage.googleapis.com/", "https", "storage.googleapis.com"),
        ("storage.example.org", "https", "storage.example.org"),
    ],
)
def test_endpoints(url: str, scheme: str, place: str) -> None:
    found = gcs_options({"gcs.service.host": url})
    assert found == {"scheme": scheme, "endpoint_override": place}


@pytest.mark.parametrize(
    "options",
    [
        {"gcs.service.host": "ftp://x"},
        {"gcs.oauth2.token": "t", "gcs.oauth2.token-expires-at": "tomorrow"},
    ],
)
def test_values_that_cannot_be(options: dict[str, str]) -> None:
    name = list(options)[-1]
    with pytest.raises(ConfigurationError, match=f"^{name}: "):
        file_system("gs://lake/x", options)


def test_a_key_file_is_taken_from_the_environment_only(monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"google.cloud.auth.service.account.json.keyfile": "/etc/key.json"}
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    with pytest.raises(ConfigurationError, match="set GOOGLE_APPLICATION_CREDENTIALS to it"):
        check_storage("gs://lake", options)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/etc/key.json")
    check_storage("gs://lake", options)


def test_ways_to_sign_in_that_pyarrow_lacks() -> None:
    for way in ("APPLICATION_DEFAULT", "COMPUTE_ENGINE", "UNAUTHENTICATED"):
        check_storage("gs://lake", {"fs.gs.auth.type": way})
    with pytest.raises(ConfigurationError, match=r"fs\.gs\.auth\.type=USER_CREDENTIALS: "):
        check_storage("gs://lake", {"fs.gs.auth.type": "USER_CREDENTIALS"})
    check_storage(
        "gs://lake", {"fs.gs.auth.type": "ACCESS_TOKEN_PROVIDER", "gcs.oauth2.token": "t"}
    )
    check_storage("gs://lake", {"fs.gs.requester.pays.mode": "DISABLED"})


def test_a_file_system_travels_to_other_processes() -> None:
    options = {"gcs.no-auth": "true", "gcs.service.host": "http://127.0.0.1:1"}
    found, path = file_system("gs://lake/day=a%23b/x", options)
    assert path == "lake/day=a%23b/x"
    assert found.type_name == "py::gcs"
    assert pickle.loads(pickle.dumps(found)) == found
    other, _ = file_system("gs://lake/x", {**options, "gcs.project-id": "p"})
    assert other != found
