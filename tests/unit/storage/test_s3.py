"""S3's options where several decide together: credentials, proxies, encryption, buckets."""

from __future__ import annotations

import pytest

from sluice.errors import ConfigurationError
from sluice.storage import check_storage, file_system, s3_options

KEYS = {"s3.access-key-id": "k", "s3.secret-access-key": "s", "s3.session-token": "t"}
ARN = "arn:aws:iam::123456789012:role/lake"
ASSUMES = {
    "client.factory": "org.apache.iceberg.aws.AssumeRoleAwsClientFactory",
    "client.assume-role.arn": ARN,
    "client.assume-role.region": "eu-west-1",
}
AWS = "software.amazon.awssdk.auth.credentials"
HADOOP = "org.apache.hadoop.fs.s3a"


@pytest.fixture(autouse=True)
def _no_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3", raising=False)


def test_a_role_counts_before_keys_as_in_icebergs_factory() -> None:
    assert s3_options({**KEYS, **ASSUMES}) == {"role_arn": ARN, "region": "eu-west-1"}
    named = {**ASSUMES, "client.assume-role.session-name": "n", "client.region": "eu-north-1"}
    assert s3_options({**named, "client.assume-role.external-id": "x"}) == {
        "role_arn": ARN,
        "session_name": "n",
        "external_id": "x",
        "region": "eu-north-1",
    }


def test_a_role_that_the_jvm_would_not_assume_is_refused() -> None:
    alone = {"client.assume-role.arn": ARN}
    with pytest.raises(ConfigurationError, match="AssumeRoleAwsClientFactory; set both"):
        check_storage("s3://lake", alone)
    check_storage("s3://lake", {**KEYS, **alone})
    assert "role_arn" not in s3_options({**KEYS, **alone})
    check_storage("s3://lake", ASSUMES)


@pytest.mark.parametrize(
    ("name", "classes"),
    [
        ("client.credentials-provider", f"{AWS}.AnonymousCredentialsProvider"),
        ("fs.s3a.aws.credentials.provider", f"{HADOOP}.AnonymousAWSCredentialsProvider"),
        ("hadoop.fs.s3a.aws.credentials.provider", f"{HADOOP}.AnonymousAWSCredentialsProvider"),
    ],
)
def test_anonymous(name: str, classes: str) -> None:
    check_storage("s3://lake", {name: classes})
    assert s3_options({**KEYS, name: classes}) == {"anonymous": True}


@pytest.mark.parametrize(
    ("name", "classes"),
    [
        ("client.credentials-provider", f"{AWS}.ProfileCredentialsProvider"),
        (
            "fs.s3a.aws.credentials.provider",
            f"{HADOOP}.SimpleAWSCredentialsProvider,\n  {AWS}.InstanceProfileCredentialsProvider",
        ),
    ],
)
def test_what_the_default_chain_finds(name: str, classes: str) -> None:
    check_storage("s3://lake", {name: classes})
    assert s3_options({name: classes}) == {}


def test_a_class_of_the_users_needs_keys_beside_it() -> None:
    own = {"client.credentials-provider": "com.example.Vault"}
    with pytest.raises(ConfigurationError, match=r"=com\.example\.Vault: .*cannot run this Java"):
        check_storage("s3://lake", own)
    check_storage("s3://lake", {**KEYS, **own})


def test_remote_signing_needs_keys_beside_it() -> None:
    signed = {"s3.remote-signing-enabled": "true"}
    with pytest.raises(ConfigurationError, match="let the catalog vend credentials"):
        file_system("s3://lake/x", signed)
    file_system("s3://lake/x", {**KEYS, **signed, "client.region": "eu-central-1"})


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ("bucket-owner-full-control", "bucket-owner-full-control"),
        ("BucketOwnerFullControl", "bucket-owner-full-control"),
        ("Private", "private"),
        ("AWSExecRead", None),
        ("everyone", None),
    ],
)
def test_acls(given: str, sent: str | None) -> None:
    if sent is None:
        with pytest.raises(ConfigurationError, match=r"s3\.acl: .*canned ACLs: private, "):
            s3_options({"s3.acl": given})
    else:
        assert s3_options({"s3.acl": given}) == {"default_metadata": {"ACL": sent}}


@pytest.mark.parametrize("name", ["s3.sse.type", "hadoop.fs.s3a.encryption.algorithm"])
def test_sse_s3_needs_no_header_at_aws_only(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sse = {name: "AES256" if "algorithm" in name else "s3"}
    check_storage("s3://lake", sse)
    for host in ("s3.eu-central-1.amazonaws.com", "bucket.vpce-1.s3.cn-north-1.amazonaws.com.cn"):
        check_storage("s3://lake", {**sse, "s3.endpoint": f"https://{host}"})
    for endpoint in ("http://minio:9000", "minio:9000", "https://amazonaws.com.example.org"):
        with pytest.raises(ConfigurationError, match=f"{name}=.*default encryption for the bucket"):
            check_storage("s3://lake", {**sse, "s3.endpoint": endpoint})
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://minio:9000")
    with pytest.raises(ConfigurationError, match="cannot ask minio"):
        check_storage("s3://lake", sse)


def test_other_encryption_is_refused_and_none_is_none() -> None:
    check_storage("s3://lake", {"s3.sse.type": "none", "s3.sse.key": "geheim"})
    for kind in ("kms", "dsse-kms", "custom"):
        with pytest.raises(ConfigurationError, match=f"type={kind}: .*bucket's default") as caught:
            check_storage("s3://lake", {"s3.sse.type": kind, "s3.sse.key": "geheim"})
        assert "geheim" not in str(caught.value)


def test_values_that_ask_for_nothing_are_not_refused() -> None:
    harmless = {
        "s3.write.storage-class": "STANDARD",
        "s3.write.table-tag-enabled": "false",
        "s3.delete-enabled": "true",
        "s3.remote-signing-enabled": "false",
        "s3.write.tags.": "no name",
        "fs.s3a.requester.pays.enabled": "false",
    }
    check_storage("s3://lake", harmless)


def test_proxies() -> None:
    url = "http://me:geheim@proxy:3128"
    assert s3_options({"http-client.proxy-endpoint": url}) == {"proxy_options": url}
    hadoop = {"fs.s3a.proxy.host": "proxy", "fs.s3a.proxy.username": "me"}
    assert s3_options(hadoop) == {
        "proxy_options": {"scheme": "http", "host": "proxy", "port": 80, "username": "me"}
    }
    assert s3_options({**hadoop, "fs.s3a.proxy.ssl.enabled": "true"}) == {
        "proxy_options": {"scheme": "https", "host": "proxy", "port": 443, "username": "me"}
    }
    assert s3_options({"fs.s3a.proxy.port": "1"}) == {}
    for wrong in ("proxy:3128", "socks5://me:geheim@proxy:1"):
        with pytest.raises(ConfigurationError, match=r"proxy-endpoint: .*HOST:PORT") as caught:
            s3_options({"http-client.proxy-endpoint": wrong})
        assert "geheim" not in str(caught.value)
    file_system("s3://lake/x", {"client.region": "x", "http-client.proxy-endpoint": url})
    file_system("s3://lake/x", {"client.region": "x", **hadoop})


def test_hadoops_options_of_one_bucket() -> None:
    options = {"fs.s3a.endpoint": "a", "hadoop.fs.s3a.bucket.lake.endpoint": "b"}
    assert s3_options(options) == {"endpoint_override": "a"}
    assert s3_options(options, "other") == {"endpoint_override": "a"}
    assert s3_options(options, "lake") == {"endpoint_override": "b"}
    kms = {"fs.s3a.bucket.lake.encryption.algorithm": "SSE-KMS"}
    check_storage("s3a://other/t", kms)
    with pytest.raises(ConfigurationError, match=r"fs\.s3a\.bucket\.lake\.encryption\.algorithm="):
        check_storage("s3a://lake/t", kms)


def test_plain_http_by_hadoops_switch() -> None:
    options = {"fs.s3a.endpoint": "minio:9000", "fs.s3a.connection.ssl.enabled": "false"}
    assert s3_options(options) == {"endpoint_override": "minio:9000", "scheme": "http"}
