"""Azure's options: accounts, credentials in Iceberg's order, endpoints, older pyarrow."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyarrow import fs

from sluice.errors import ConfigurationError
from sluice.storage import check_storage, file_system
from sluice.storage.azure import AzurePlace, azure_options

HOST = "me.dfs.core.windows.net"
BLOB = "me.blob.core.windows.net"
URI = f"abfss://lake@{HOST}/t"
KEY = "a2V5"
AT_AZURE = {
    "account_name": "me",
    "blob_storage_authority": ".blob.core.windows.net",
    "dfs_storage_authority": ".dfs.core.windows.net",
}
SHARED = {
    "adls.auth.shared-key.account.name": "me",
    "adls.auth.shared-key.account.key": KEY,
}


def at(uri: str, **options: str) -> dict[str, object]:
    return azure_options(options, AzurePlace.of(uri))


@pytest.mark.parametrize("scheme", ["abfs", "abfss", "wasb", "wasbs"])
@pytest.mark.parametrize("host", [HOST, BLOB])
def test_the_container_is_part_of_the_path(scheme: str, host: str) -> None:
    found, path = file_system(f"{scheme}://lake@{host}/t/day=a%23b c", {**SHARED})
    assert isinstance(found, fs.AzureFileSystem)
    assert path == "lake/t/day=a%23b c"


@pytest.mark.parametrize(
    ("host", "domain"),
    [
        (HOST, "SERVICE.core.windows.net"),
        (BLOB, "SERVICE.core.windows.net"),
        ("me.dfs.core.chinacloudapi.cn", "SERVICE.core.chinacloudapi.cn"),
        ("me.z1.blob.storage.azure.net", "z1.SERVICE.storage.azure.net"),
        ("onelake.dfs.fabric.microsoft.com", "SERVICE.fabric.microsoft.com"),
    ],
)
def test_hosts(host: str, domain: str) -> None:
    assert at(f"abfss://lake@{host}/t") == {
        "account_name": host.partition(".")[0],
        "blob_storage_authority": "." + domain.replace("SERVICE", "blob"),
        "dfs_storage_authority": "." + domain.replace("SERVICE", "dfs"),
    }


@pytest.mark.parametrize("uri", ["abfss://lake/t", f"wasbs://{BLOB}/t", "abfs://@x/t"])
def test_a_uri_without_container_or_account(uri: str) -> None:
    with pytest.raises(ConfigurationError, match=r"write it as \w+://CONTAINER@ACCOUNT\.\w+\.core"):
        file_system(uri, {})


def test_a_host_that_is_none() -> None:
    with pytest.raises(ConfigurationError, match=r"files\.example\.org is not the host of a"):
        file_system("abfss://lake@files.example.org/t", {})


@pytest.mark.parametrize(
    "name",
    [
        f"adls.sas-token.{HOST}",
        f"adls.sas-token.{BLOB}",
        "adls.sas-token.me",
        f"fs.azure.sas.fixed.token.{HOST}",
        "fs.azure.sas.fixed.token",
        f"hadoop.fs.azure.sas.lake.{BLOB}",
    ],
)
@pytest.mark.parametrize("token", ["sv=1&sig=x", "?sv=1&sig=x"])
def test_sas_tokens_of_the_account_count_first(name: str, token: str) -> None:
    found = at(URI, **{name: token}, **SHARED)
    assert found == {**AT_AZURE, "sas_token": "?sv=1&sig=x"}


def test_options_of_other_accounts_do_not_count() -> None:
    other = "you.dfs.core.windows.net"
    assert at(URI, **{f"adls.sas-token.{other}": "x", f"fs.azure.account.key.{other}": "x"}) == (
        AT_AZURE
    )
    check_storage(URI, {f"fs.azure.account.auth.type.{other}": "Custom"})
    check_storage(URI, {f"fs.azure.sas.token.provider.type.{other}": "x"})


def test_keys() -> None:
    assert at(URI, **SHARED) == {**AT_AZURE, "account_key": KEY}
    for name in (HOST, BLOB, "me"):
        assert at(URI, **{f"fs.azure.account.key.{name}": KEY})["account_key"] == KEY
    with pytest.raises(ConfigurationError, match="=you: the files are in account me") as caught:
        at(URI, **{**SHARED, "adls.auth.shared-key.account.name": "you"})
    assert KEY not in str(caught.value)


def test_applications() -> None:
    options = {
        f"fs.azure.account.oauth2.client.id.{HOST}": "app",
        f"fs.azure.account.oauth2.client.secret.{HOST}": "geheim",
        "fs.azure.account.oauth2.client.endpoint": "https://login.microsoftonline.com/t-1/oauth2/token",
        "fs.azure.account.auth.type": "OAuth",
        "fs.azure.account.oauth.provider.type": (
            "org.apache.hadoop.fs.azurebfs.oauth2.ClientCredsTokenProvider"
        ),
    }
    check_storage(URI, options)
    assert at(URI, **options) == {
        **AT_AZURE,
        "client_id": "app",
        "client_secret": "geheim",
        "tenant_id": "t-1",
    }
    assert "client_id" not in at(URI, **options, **SHARED)


@pytest.mark.parametrize("name", [f"adls.connection-string.{HOST}", "adls.connection-string.me"])
def test_an_emulators_endpoint(name: str) -> None:
    assert at(URI, **{name: "http://127.0.0.1:10000/me"}, **SHARED) == {
        "account_name": "me",
        "account_key": KEY,
        "blob_storage_authority": "127.0.0.1:10000",
        "dfs_storage_authority": "127.0.0.1:10000",
        "blob_storage_scheme": "http",
        "dfs_storage_scheme": "http",
    }


def test_an_endpoint_of_azure_with_a_token() -> None:
    url = f"https://{BLOB}/?sv=1&sig=x"
    assert at(URI, **{f"adls.connection-string.{HOST}": url}, **SHARED) == {
        **AT_AZURE,
        "blob_storage_scheme": "https",
        "dfs_storage_scheme": "https",
        "sas_token": "?sv=1&sig=x",
    }


def test_a_connection_string_of_azures_own_kind_is_none_of_icebergs() -> None:
    text = "DefaultEndpointsProtocol=https;AccountName=me;AccountKey=geheim"
    with pytest.raises(ConfigurationError, match="expects the endpoint's URL") as caught:
        at(URI, **{f"adls.connection-string.{HOST}": text})
    assert "geheim" not in str(caught.value)


def test_a_bearer_token_is_needless_beside_other_credentials() -> None:
    with pytest.raises(ConfigurationError, match=r"^adls\.token: ") as caught:
        check_storage(URI, {"adls.token": "geheim"})
    assert "geheim" not in str(caught.value)
    check_storage(URI, {"adls.token": "geheim", **SHARED})
    check_storage(URI, {"adls.token": "geheim", "adls.sas-token.me": "x"})


@pytest.mark.parametrize(
    ("version", "options", "wanted"),
    [
        ("19.0.1", {"adls.sas-token.me": "x"}, "pyarrow>=20"),
        ("20.0.0", {"fs.azure.account.oauth2.client.id": "x"}, "pyarrow>=21"),
    ],
)
def test_what_an_older_pyarrow_lacks(
    version: str, options: dict[str, str], wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pa, "__version__", version)
    with pytest.raises(ConfigurationError, match=f"pip install '{wanted}'"):
        file_system(URI, options)
    file_system(URI, SHARED)
