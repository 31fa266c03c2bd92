"""What a table's FileIO says of its storage, beside the user's options."""

from __future__ import annotations

from sluice.lake.iceberg.catalog.file_io import FileIo, contradictions

HERE = {"s3.endpoint": "http://here", "client.region": "r1"}


def test_options_that_iceberg_has_with_another_value_are_named() -> None:
    vended = {"s3://lake/a": {"s3.access-key-id": "vended"}}
    file_io = FileIo("x.S3FileIO", HERE | {"uri": "http://catalog"}, vended)
    assert contradictions(file_io, HERE | {"s3.path-style-access": "true"}) == ()
    user = {
        "s3.endpoint": "http://there",
        "client.region": "r1",
        "s3.access-key-id": "own",
        "uri": "http://another-name-of-the-catalog",
    }
    assert contradictions(file_io, user) == ("s3.access-key-id", "s3.endpoint")
