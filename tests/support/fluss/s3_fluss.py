"""A real Fluss whose remote storage is an S3, with tokens from the STS of the same server."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.support.clusters.s3_server import REGION, S3Server
from tests.support.fluss.fluss_jars import S3_PLUGIN, fetch_jars
from tests.support.fluss.real_fluss import RealFluss

CLUSTER_KEY = "the-clusters-own-key"


class S3Fluss(RealFluss):
    """Moves log segments to ``s3://BUCKET/remote`` soon."""

    def __init__(
        self, home: Path, s3: S3Server, bucket: str, more: Mapping[str, str] | None = None
    ) -> None:
        """:param more: further settings of the servers."""
        conf = {
            "remote.data.dir": f"s3://{bucket}/remote",
            "s3.endpoint": s3.endpoint,
            "s3.access-key": CLUSTER_KEY,
            "s3.secret-key": "secret",
            "s3.region": REGION,
            "s3.path-style-access": "true",
            "s3.assumed.role.sts.endpoint": s3.endpoint,
            "s3.assumed.role.arn": "arn:aws:iam::123456789012:role/reader",
            "log.segment.file-size": "256kb",
            "remote.log.task-interval-duration": "200ms",
            **(more or {}),
        }
        super().__init__(home, lake=False, conf=conf)

    def _write_configuration(self) -> None:
        super()._write_configuration()
        folder = self.home / "plugins" / "s3"
        folder.mkdir(parents=True, exist_ok=True)
        link = folder / S3_PLUGIN.name
        link.unlink(missing_ok=True)
        link.symlink_to(fetch_jars(jars=[S3_PLUGIN]) / S3_PLUGIN.name)
