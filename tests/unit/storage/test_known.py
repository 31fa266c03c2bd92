"""Which options configure storage, which are misspelt, and when keys end."""

from __future__ import annotations

import pytest

from sluice.errors import ConfigurationError
from sluice.storage import credentials_end_ms, login_store, storage_options, unknown_options

HOST = "me.dfs.core.windows.net"
ABFSS = f"abfss://lake@{HOST}/t"


def test_storage_options_hold_no_credentials_of_the_catalog() -> None:
    kept = {
        "s3.endpoint": "a",
        "s3a.access-key": "a",
        "client.region": "a",
        "http-client.proxy-endpoint": "a",
        "gcs.oauth2.token": "a",
        "adls.sas-token.me": "a",
        "fs.s3a.endpoint": "a",
        "fs.defaultFS": "a",
        "dfs.nameservices": "a",
        "google.cloud.auth.service.account.json.keyfile": "a",
        "hadoop.fs.azure.account.key.me": "a",
        "hadoop.dfs.client.use.datanode.hostname": "a",
        "hadoop.hadoop.security.authentication": "a",
    }
    dropped = {
        "type": "rest",
        "uri": "a",
        "warehouse": "s3://lake",
        "token": "a",
        "credential": "a",
        "oauth2-server-uri": "a",
        "scope": "a",
        "header.Authorization": "a",
        "jdbc.user": "a",
        "jdbc.password": "a",
        "rest.secret-access-key": "a",
        "rest.access-key-id": "a",
        "glue.id": "a",
        "clients": "5",
        "hadoop.javax.jdo.option.ConnectionPassword": "a",
        "hadoop.hive.metastore.token.signature": "a",
    }
    assert storage_options({**kept, **dropped}) == kept


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("s3.endpont", "s3.endpoint"),
        ("s3.access-keyid", "s3.access-key-id"),
        ("s3.path-style", "s3.path-style-access"),
        ("client.reigon", "client.region"),
        ("gcs.project", "gcs.project-id"),
        ("gcs.oauth2-token", "gcs.oauth2.token"),
        ("adls.account.key", "adls.auth.shared-key.account.key"),
        ("http-client.proxy-endpoint", ...),
        ("s3.qqqqqq", None),
        ("fs.s3a.acces.key", "fs.s3a.access.key"),
        ("hadoop.fs.s3a.secretkey", "hadoop.fs.s3a.secret.key"),
    ],
)
def test_misspelt(name: str, meant: str | None) -> None:
    assert unknown_options({name: "x"}) == ([] if meant is ... else [(name, meant)])


def test_what_is_known_or_of_others_is_not_listed() -> None:
    known = (
        "s3.access-key",
        "s3.region",
        "s3.path.style.access",
        "s3.write.tags.team",
        "s3.multipart.part-size-bytes",
        "s3a.secret.key",
        "client.assume-role.tags.a",
        "adls.sas-token.me.dfs.core.windows.net",
        "adls.sas-token.me",
        "fs.s3a.connection.maximum",
        "fs.s3a.endpoint.fips",
        "hadoop.fs.s3a.bucket.lake.endpoint",
        "fs.azure.account.key.me.dfs.core.windows.net",
        "hadoop.fs.azure.io.retry.max.retries",
        "hadoop.dfs.nameservices",
        "rest.access-key-id",
        "uri",
    )
    assert unknown_options(dict.fromkeys(known, "x")) == []


@pytest.mark.parametrize(
    ("store", "names"),
    [
        (
            "s3",
            "s3.access-key-id s3.secret-access-key s3.session-token s3.session-token-expires-at-ms"
            " s3.access-key s3a.secret.key fs.s3a.access.key hadoop.fs.s3a.session.token"
            " fs.s3a.bucket.lake.secret.key hadoop.fs.s3a.bucket.my.lake.access.key",
        ),
        ("gcs", "gcs.oauth2.token gcs.oauth2.token-expires-at gcs.no-auth fs.gs.auth.type"),
        (
            "azure",
            "adls.sas-token.me adls.sas-token-expires-at-ms.me adls.auth.shared-key.account.key"
            " adls.auth.shared-key.account.name adls.connection-string.me adls.token"
            " fs.azure.account.key fs.azure.account.key.me hadoop.fs.azure.sas.fixed.token.me",
        ),
        (
            "",
            "s3.endpoint client.region fs.s3a.endpoint fs.s3a.bucket.access.endpoint s3.acl"
            " gcs.project-id adls.read.block-size-bytes token uri fs.azure.account.auth.type",
        ),
    ],
)
def test_options_to_log_in_with(store: str, names: str) -> None:
    for name in names.split():
        assert login_store(name) == store, name


def test_a_prefix_may_end_before_the_account() -> None:
    ends = {"adls.sas-token-expires-at-ms.me": "30", "adls.sas-token-expires-at-ms.you": "20"}
    tokens = {"adls.sas-token.me": "sv=1", "adls.sas-token.you": "sv=1"}
    for prefix in ("abfss://", "abfss://lake", "abfs://lake@"):
        assert credentials_end_ms(prefix, {**tokens, **ends}) == 20
        assert credentials_end_ms(prefix, {}) is None


def test_when_keys_end() -> None:
    s3 = {"s3.session-token": "t", "s3.session-token-expires-at-ms": "10"}
    gcs = {"gcs.oauth2.token": "t", "gcs.oauth2.token-expires-at": "20"}
    azure = {f"adls.sas-token.{HOST}": "sv=1", f"adls.sas-token-expires-at-ms.{HOST}": "30"}
    every = {**s3, **gcs, **azure}
    assert credentials_end_ms("s3a://lake/t", every) == 10
    assert credentials_end_ms("gs://lake/t", every) == 20
    assert credentials_end_ms(ABFSS, every) == 30
    assert credentials_end_ms("/lake", every) is None
    assert credentials_end_ms("hdfs://n/lake", every) is None
    for uri in ("s3://lake", "gs://lake", ABFSS):
        assert credentials_end_ms(uri, {}) is None


def test_an_end_without_temporary_keys_is_none() -> None:
    assert credentials_end_ms("s3://lake", {"s3.session-token-expires-at-ms": "10"}) is None
    assert credentials_end_ms("gs://lake", {"gcs.oauth2.token-expires-at": "10"}) is None
    assert credentials_end_ms(ABFSS, {"adls.sas-token-expires-at-ms.me": "10"}) is None


def test_the_end_in_a_sas_token_counts_if_it_is_earlier() -> None:
    token = {"adls.sas-token.me": "sv=1&se=2027-01-15T08%3A00%3A00Z&sig=x"}
    signed_ms = 1_800_000_000_000
    assert credentials_end_ms(ABFSS, token) == signed_ms
    assert credentials_end_ms(ABFSS, {**token, "adls.sas-token-expires-at-ms.me": "5"}) == 5
    later = {**token, "adls.sas-token-expires-at-ms.me": str(signed_ms + 1)}
    assert credentials_end_ms(ABFSS, later) == signed_ms
    day = {"adls.sas-token.me": "se=2027-01-15"}
    assert credentials_end_ms(ABFSS, day) == signed_ms - 8 * 3_600_000
    assert credentials_end_ms(ABFSS, {"adls.sas-token.me": "se=soon"}) is None


def test_an_end_that_is_no_number() -> None:
    options = {"s3.session-token": "t", "s3.session-token-expires-at-ms": "2027-01-15"}
    with pytest.raises(ConfigurationError, match=r"expires-at-ms=2027-01-15: .*milliseconds"):
        credentials_end_ms("s3://lake", options)
