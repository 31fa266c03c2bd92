"""The tables of options: each row does what it says, and no option of Iceberg lacks a row."""

from __future__ import annotations

import os
import re
import zipfile

import pytest

from sluice.driver.lakes.jvm import iceberg_jar
from sluice.errors import ConfigurationError
from sluice.storage import check_storage, s3_options
from sluice.storage.azure import AzurePlace, azure_options
from sluice.storage.gcs import GCS_TABLE, gcs_options
from sluice.storage.options.azure import AZURE_TABLE
from sluice.storage.options.rules import Ignored, Passed, Refused, has_name
from sluice.storage.options.s3 import S3_TABLE

HOST = "me.dfs.core.windows.net"
URIS = {"s3": "s3://lake/t", "gcs": "gs://lake/t", "azure": f"abfss://lake@{HOST}/t"}
TABLES = {"s3": S3_TABLE, "gcs": GCS_TABLE, "azure": AZURE_TABLE}
KEYS = {"s3.access-key-id": "k", "s3.secret-access-key": "s"}
SAMPLES = {
    "s3.path-style-access": "false",
    "s3.acl": "bucket-owner-full-control",
    "http-client.proxy-endpoint": "http://proxy:3128",
    "client.assume-role.arn": "arn:aws:iam::1:role/r",
    "fs.s3a.path.style.access": "false",
    "fs.s3a.path-style-access": "false",
    "fs.s3a.connection.ssl.enabled": "false",
    "fs.s3a.proxy.port": "3128",
    "fs.s3a.proxy.ssl.enabled": "true",
    "fs.s3a.acl.default": "BucketOwnerFullControl",
    "gcs.no-auth": "true",
    "gcs.oauth2.token-expires-at": "1800000000000",
    "fs.gs.auth.null.enabled": "true",
    "fs.gs.auth.type": "UNAUTHENTICATED",
    "adls.connection-string.HOST": "http://127.0.0.1:10000/me",
    "adls.auth.shared-key.account.name": "me",
    "fs.azure.account.oauth2.client.endpoint.HOST": "https://login.host/tenant/oauth2/token",
    "fs.azure.account.oauth2.client.endpoint": "https://login.host/tenant/oauth2/token",
}
FACTORY = {"client.factory": "org.apache.iceberg.aws.AssumeRoleAwsClientFactory"}
ROLE = {**FACTORY, "client.assume-role.arn": "arn:aws:iam::1:role/other"}
HADOOP_ROLE = {
    "fs.s3a.aws.credentials.provider": "org.example.AssumedRoleCredentialProvider",
    "fs.s3a.assumed.role.arn": "arn:aws:iam::1:role/other",
}
WITH = {
    "client.assume-role.arn": FACTORY,
    "client.assume-role.session-name": ROLE,
    "client.assume-role.external-id": ROLE,
    "client.assume-role.region": ROLE,
    "fs.s3a.assumed.role.arn": {**HADOOP_ROLE, "fs.s3a.assumed.role.arn": ""},
    "fs.s3a.assumed.role.session.name": HADOOP_ROLE,
    "fs.s3a.assumed.role.external.id": HADOOP_ROLE,
    **{f"fs.s3a.proxy.{p}": {"fs.s3a.proxy.host": "p"} for p in ("port", "username", "password")},
    "fs.s3a.proxy.ssl.enabled": {"fs.s3a.proxy.host": "p"},
    "gcs.oauth2.token-expires-at": {"gcs.oauth2.token": "t"},
    "adls.auth.shared-key.account.name": {"adls.auth.shared-key.account.key": "a2V5"},
    "adls.auth.shared-key.account.key": {"adls.auth.shared-key.account.name": "me"},
}
"""Options without which another has no effect."""
REFUSED_VALUES = {
    "s3.sse.type": "kms",
    "s3.write.table-tag-enabled": "true",
    "s3.write.namespace-tag-enabled": "true",
    "s3.delete-enabled": "false",
    "s3.remote-signing-enabled": "true",
    "client.factory": "org.apache.iceberg.aws.lakeformation.LakeFormationAwsClientFactory",
    "fs.s3a.encryption.algorithm": "SSE-KMS",
    "fs.s3a.server-side-encryption-algorithm": "SSE-C",
    "fs.s3a.requester.pays.enabled": "true",
}


NAME = re.compile(r"(s3|client|http-client|gcs|adls)\.[a-z0-9.-]+").fullmatch


def texts(java_class: bytes) -> set[str]:
    """The texts of a class's constants: each is a 1, two bytes of length, and UTF-8."""
    return {
        java_class[m.end() + 2 : m.end() + 2 + int.from_bytes(m[1])].decode("utf-8", "replace")
        for m in re.finditer(rb"\x01(?=(..))", java_class, re.DOTALL)
    }


def rows(kind: type) -> list[tuple[str, str]]:
    return [
        (store, name)
        for store, table in TABLES.items()
        for name, rule in table.items()
        if isinstance(rule, kind)
    ]


def arguments(store: str, options: dict[str, str]) -> dict[str, object]:
    if store == "s3":
        return s3_options(options, "lake")
    if store == "gcs":
        return gcs_options(options)
    return azure_options(options, AzurePlace.of(URIS["azure"]))


def option(name: str) -> str:
    """A name of a table as a user writes it."""
    return f"{name}x" if name.endswith(".") else name.replace(".HOST", f".{HOST}")


@pytest.mark.parametrize(("store", "name"), rows(Passed))
def test_what_is_passed_changes_an_argument(store: str, name: str) -> None:
    others = WITH.get(name, {})
    if name == "adls.auth.shared-key.account.name":
        with pytest.raises(ConfigurationError, match=r"account\.name is missing"):
            arguments(store, others)
    elif name == "adls.auth.shared-key.account.key":
        with pytest.raises(ConfigurationError, match=r"account\.key is missing"):
            arguments(store, others)
    else:
        before = arguments(store, others)
        after = arguments(store, {**others, option(name): SAMPLES.get(name, "x")})
        assert after != before
        if name.startswith(("fs.", "google.")):
            hadoop = {f"hadoop.{option(name)}": SAMPLES.get(name, "x")}
            lack = {key: value for key, value in others.items() if key != option(name)}
            assert arguments(store, {**lack, **hadoop}) == after


@pytest.mark.parametrize(("store", "name"), rows(Refused))
def test_what_is_refused_is_named_with_what_to_do(store: str, name: str) -> None:
    value = REFUSED_VALUES.get(name, "geheim")
    with pytest.raises(ConfigurationError) as caught:
        check_storage(URIS[store], {option(name): value})
    said = str(caught.value)
    assert said.startswith(option(name))
    assert re.search(r"[;:] (set|use|let|remove|write|enable)|instead", said), said
    rule = TABLES[store][name]
    assert isinstance(rule, Refused)
    assert (value in said) is not rule.is_secret
    for other in set(URIS) - {store}:
        check_storage(URIS[other], {option(name): value})


@pytest.mark.parametrize(("store", "name"), rows(Ignored))
def test_what_is_ignored_has_no_effect(store: str, name: str) -> None:
    check_storage(URIS[store], {option(name): "1"})
    assert arguments(store, {option(name): "1"}) == arguments(store, {})


@pytest.mark.parametrize(
    ("store", "classes"),
    [
        (
            "s3",
            [f"aws/{n}Properties" for n in ("s3/S3FileIO", "AwsClient", "Aws", "HttpClient")],
        ),
        ("gcs", ["gcp/GCPProperties"]),
        ("azure", ["azure/AzureProperties"]),
    ],
)
def test_each_option_of_iceberg_has_a_row(store: str, classes: list[str]) -> None:
    """Iceberg's names are constants in the classes of its runtime."""
    names: set[str] = set()
    with zipfile.ZipFile(iceberg_jar(os.environ.get("SLUICE_TIERING_JARS", ""))) as jar:
        for each in classes:
            names |= {n for n in texts(jar.read(f"org/apache/iceberg/{each}.class")) if NAME(n)}
    assert len(names) > 10
    table = TABLES[store]
    assert not {n for n in names if not has_name(table, n) and f"{n}HOST" not in table}
