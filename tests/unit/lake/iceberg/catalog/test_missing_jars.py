"""What an error of the JVM says where a jar is missing."""

from __future__ import annotations

import pytest

from sluice.errors import LakeNotWritable
from sluice.lake.iceberg.catalog.java import JavaThrew, lake_errors

NO_IO = "NoSuchMethodException: Cannot find constructor for interface org.apache.iceberg.io.FileIO"
NO_S3 = "NoClassDefFoundError: software/amazon/awssdk/services/s3/model/S3Exception"


@pytest.mark.parametrize(
    ("said", "jar"),
    [
        ("SQLException: No suitable driver found for jdbc:sqlite:/c.db", "org.xerial:sqlite-jdbc"),
        ("SQLException: No suitable driver found for jdbc:h2:mem", "the JDBC driver"),
        (f"{NO_IO} ... {NO_S3}", "iceberg-aws-bundle"),
        ("ClassNotFoundException: com.azure.core.Client", "iceberg-azure-bundle"),
    ],
)
def test_the_jar_is_named(said: str, jar: str) -> None:
    with pytest.raises(LakeNotWritable) as caught, lake_errors("open the lake"):
        raise JavaThrew("RuntimeException", said)
    assert f"open the lake: {said}; add {jar}" in str(caught.value)
    assert str(caught.value).endswith(
        "to tiering.jars, or packages or jars of Airflow's section sluice"
    )


def test_other_errors_have_no_advice() -> None:
    said = "S3Exception: refused by software.amazon.awssdk.services.s3"
    with pytest.raises(LakeNotWritable, match=r"awssdk\.services\.s3$"), lake_errors("read"):
        raise JavaThrew("S3Exception", said)
