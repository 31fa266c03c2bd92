"""AWS Glue, as moto serves it beside its store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.catalog_servers.aws_bundle import jars_with_s3
from tests.support.catalog_servers.catalog import Catalog
from tests.support.catalog_servers.iam_s3 import BUCKET, IamS3


@contextmanager
def glue(store: IamS3) -> Iterator[Catalog]:
    """A catalog in Glue, with the owner's keys.

    Iceberg's client of Glue takes no keys from the ``s3.*`` options, only from AWS's default chain.
    """
    options = {
        "type": "glue",
        "glue.endpoint": store.endpoint,
        "warehouse": f"s3://{BUCKET}/glue",
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        **store.options(),
    }
    env = {
        "AWS_ACCESS_KEY_ID": store.owner.access_key,
        "AWS_SECRET_ACCESS_KEY": store.owner.secret_key,
    }
    yield Catalog(options, jars_with_s3(), env)
