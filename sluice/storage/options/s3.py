"""What becomes of the options for S3, by name."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from sluice.storage.options.rules import Ignored, Passed, Refused, Rule, is_on

_WRITER = "pyarrow, which writes the data files, cannot"
_BUCKET_ENCRYPTION = (
    f"{_WRITER} ask for this encryption; set it as the bucket's default encryption, then remove"
    " the option"
)
_CLASS = (
    f"{_WRITER} choose a storage class; use a lifecycle rule of the bucket, then remove the option"
)
_TAGS = f"{_WRITER} tag objects; remove the option"
_SOFT_DELETE = (
    "Sluice deletes objects for good, and cannot tag them instead; enable versioning for the bucket"
    " if deleted files must stay, then remove the option"
)
_ACCESS_POINT = (
    "pyarrow does not exchange a bucket for its access point; write the access point's alias in"
    " place of the bucket in the table's location"
)
_REQUESTER_PAYS = "pyarrow cannot send the header of requester-pays buckets; use another bucket"
_NO_KEYS = (
    "pyarrow, which writes the data files, cannot run this Java class; set s3.access-key-id and"
    " s3.secret-access-key, or let the environment have the credentials"
)
_SIGNED_ELSEWHERE = (
    "pyarrow, which writes the data files, cannot have its requests signed by the catalog; let the"
    " catalog vend credentials, or set s3.access-key-id and s3.secret-access-key"
)
_LAKE_FORMATION = (
    "pyarrow, which writes the data files, cannot get credentials from Lake Formation; use"
    " another client.factory"
)
_PROFILE = "pyarrow takes the profile from the environment only; set AWS_PROFILE, and remove this"

_TUNING = Ignored("tunes Iceberg's client only")
_JAVA = Ignored("names a class of the JVM's client")
_READ_WITH = Ignored("read with another option")

ANONYMOUS = "anonymous"
_ANONYMOUS_CLASSES = {"AnonymousCredentialsProvider", "AnonymousAWSCredentialsProvider"}
_CHAIN_CLASSES = {
    "AssumedRoleCredentialProvider",
    "ContainerCredentialsProvider",
    "DefaultAWSCredentialsProviderChain",
    "DefaultCredentialsProvider",
    "EC2ContainerCredentialsProviderWrapper",
    "EnvironmentVariableCredentialsProvider",
    "IAMInstanceCredentialsProvider",
    "InstanceProfileCredentialsProvider",
    "ProfileCredentialsProvider",
    "SimpleAWSCredentialsProvider",
    "StaticCredentialsProvider",
    "TemporaryAWSCredentialsProvider",
    "WebIdentityTokenCredentialsProvider",
    "WebIdentityTokenFileCredentialsProvider",
}
"""Classes of AWS and Hadoop for what pyarrow's own chain finds, too."""

SSE_S3 = {
    "s3.sse.type": ("s3",),
    "fs.s3a.encryption.algorithm": ("aes256", "sse-s3"),
    "fs.s3a.server-side-encryption-algorithm": ("aes256", "sse-s3"),
}
"""The values that mean SSE-S3."""

_ACLS = (
    "private",
    "public-read",
    "public-read-write",
    "authenticated-read",
    "aws-exec-read",
    "bucket-owner-read",
    "bucket-owner-full-control",
)


def providers(value: str) -> set[str]:
    """The classes of credentials' providers: their short names, or ``anonymous``."""
    names = {each.rsplit(".", 1)[-1] for each in re.split(r"[\s,]+", value) if each}
    return {ANONYMOUS if name in _ANONYMOUS_CLASSES else name for name in names}


def _is_foreign(value: str) -> bool:
    return bool(providers(value) - _CHAIN_CLASSES - {ANONYMOUS})


def _acl(value: str) -> dict[str, str]:
    """The metadata that pyarrow sends as an ACL; Hadoop writes PublicRead for public-read."""
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", value.strip()).lower()
    if name not in _ACLS:
        raise ValueError(f"{value!r} is not one of S3's canned ACLs: {', '.join(_ACLS)}")
    return {"ACL": name}


def _virtual_hosts(value: str) -> bool | None:
    return True if value.strip().lower() == "false" else None


def _http(value: str) -> str | None:
    return "http" if value.strip().lower() == "false" else None


def _port(value: str) -> int:
    if not value.strip().isdecimal():
        raise ValueError(f"{value!r} is not a port")
    return int(value)


def _proxy(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname or not parts.port:
        raise ValueError("a proxy is written http://HOST:PORT")  # it may contain a password
    return value


def _is_other_encryption(value: str) -> bool:
    return value.strip().lower() not in ("", "none", "s3", "aes256", "sse-s3")


def _is_other_class(value: str) -> bool:
    return value.strip().lower() not in ("", "standard")


def _is_off(value: str) -> bool:
    return value.strip().lower() == "false"


def _is_lake_formation(value: str) -> bool:
    return "LakeFormation" in value


S3_TABLE: dict[str, Rule] = {
    # Iceberg: S3FileIOProperties
    "s3.endpoint": Passed("endpoint_override"),
    "s3.path-style-access": Passed("force_virtual_addressing", _virtual_hosts),
    "s3.access-key-id": Passed("access_key"),
    "s3.secret-access-key": Passed("secret_key"),
    "s3.session-token": Passed("session_token"),
    "s3.session-token-expires-at-ms": Ignored("see credentials_end_ms"),
    "s3.acl": Passed("default_metadata", _acl),
    "s3.sse.type": Refused(_BUCKET_ENCRYPTION, _is_other_encryption),
    "s3.sse.key": _READ_WITH,
    "s3.sse.md5": _READ_WITH,
    "s3.write.storage-class": Refused(_CLASS, _is_other_class),
    "s3.write.tags.": Refused(_TAGS),
    "s3.write.table-tag-enabled": Refused(_TAGS, is_on),
    "s3.write.namespace-tag-enabled": Refused(_TAGS, is_on),
    "s3.delete.tags.": Refused(_SOFT_DELETE),
    "s3.delete-enabled": Refused(_SOFT_DELETE, _is_off),
    "s3.access-points.": Refused(_ACCESS_POINT),
    "s3.remote-signing-enabled": Refused(_SIGNED_ELSEWHERE, is_on, unless=("access_key",)),
    "s3.signer.": Ignored("read with s3.remote-signing-enabled"),
    "s3.access-grants.": Ignored("pyarrow uses the credentials themselves"),
    "s3.acceleration-enabled": Ignored("pyarrow uses the bucket's plain endpoint"),
    "s3.dualstack-enabled": Ignored("pyarrow uses IPv4, or s3.endpoint"),
    "s3.cross-region-access-enabled": Ignored("pyarrow needs client.region"),
    "s3.use-arn-region-enabled": Ignored("pyarrow knows no ARN of an access point"),
    "s3.checksum-enabled": _TUNING,
    "s3.chunked-encoding-enabled": _TUNING,
    "s3.analytics-accelerator.": _TUNING,
    "s3.crt.": _TUNING,
    "s3.multipart.": _TUNING,
    "s3.staging-dir": _TUNING,
    "s3.delete.batch-size": _TUNING,
    "s3.delete.num-threads": _TUNING,
    "s3.preload-client-enabled": _TUNING,
    "s3.retry.": Ignored("Sluice has its own number of attempts"),
    "s3.directory-bucket.list-prefix-as-directory": _TUNING,
    "s3.client-factory-impl": _JAVA,
    # Iceberg: AwsClientProperties, AwsProperties
    "client.region": Passed("region"),
    "client.factory": Refused(_LAKE_FORMATION, _is_lake_formation),
    "client.credentials-provider": Refused(_NO_KEYS, _is_foreign, unless=("access_key",)),
    "client.credentials-provider.": _READ_WITH,
    "client.assume-role.arn": Passed("role_arn"),
    "client.assume-role.session-name": Passed("session_name"),
    "client.assume-role.external-id": Passed("external_id"),
    "client.assume-role.region": Passed("role_region"),
    "client.assume-role.timeout-sec": Ignored("pyarrow renews the role every 900 s"),
    "client.assume-role.tags.": Refused("pyarrow assumes a role without tags; remove the option"),
    "client.refresh-credentials-endpoint": Ignored("Sluice asks the catalog itself"),
    "client.refresh-credentials-enabled": Ignored("Sluice asks the catalog itself"),
    "client.legacy-md5-plugin-enabled": Ignored("about checksums of the JVM's requests"),
    "client.profile-name": Refused(_PROFILE),
    "client.pool.": Ignored("of the Hive catalog's client"),
    # Iceberg: HttpClientProperties
    "http-client.proxy-endpoint": Passed("proxy_options", _proxy),
    "http-client.": Ignored("tunes the JVM's HTTP client only"),
    # Hadoop; Fluss and others write access-key and region, too
    "fs.s3a.endpoint": Passed("endpoint_override"),
    "fs.s3a.access.key": Passed("access_key"),
    "fs.s3a.access-key": Passed("access_key"),
    "fs.s3a.access-key-id": Passed("access_key"),
    "fs.s3a.secret.key": Passed("secret_key"),
    "fs.s3a.secret-key": Passed("secret_key"),
    "fs.s3a.secret-access-key": Passed("secret_key"),
    "fs.s3a.session.token": Passed("session_token"),
    "fs.s3a.session-token": Passed("session_token"),
    "fs.s3a.region": Passed("region"),
    "fs.s3a.endpoint.region": Passed("region"),
    "fs.s3a.path.style.access": Passed("force_virtual_addressing", _virtual_hosts),
    "fs.s3a.path-style-access": Passed("force_virtual_addressing", _virtual_hosts),
    "fs.s3a.connection.ssl.enabled": Passed("scheme", _http),
    "fs.s3a.proxy.host": Passed("proxy_host"),
    "fs.s3a.proxy.port": Passed("proxy_port", _port),
    "fs.s3a.proxy.username": Passed("proxy_username"),
    "fs.s3a.proxy.password": Passed("proxy_password"),
    "fs.s3a.proxy.ssl.enabled": Passed("proxy_scheme", lambda v: "https" if is_on(v) else None),
    "fs.s3a.acl.default": Passed("default_metadata", _acl),
    "fs.s3a.assumed.role.arn": Passed("role_arn"),
    "fs.s3a.assumed.role.session.name": Passed("session_name"),
    "fs.s3a.assumed.role.external.id": Passed("external_id"),
    "fs.s3a.aws.credentials.provider": Refused(_NO_KEYS, _is_foreign, unless=("access_key",)),
    "fs.s3a.encryption.algorithm": Refused(_BUCKET_ENCRYPTION, _is_other_encryption),
    "fs.s3a.encryption.key": _READ_WITH,
    "fs.s3a.server-side-encryption-algorithm": Refused(_BUCKET_ENCRYPTION, _is_other_encryption),
    "fs.s3a.server-side-encryption.key": _READ_WITH,
    "fs.s3a.create.storage.class": Refused(_CLASS, _is_other_class),
    "fs.s3a.requester.pays.enabled": Refused(_REQUESTER_PAYS, is_on),
    "fs.s3a.accesspoint.": Refused(_ACCESS_POINT),
}
