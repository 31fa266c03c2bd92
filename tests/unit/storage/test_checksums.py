"""What stores say when they reject checksums."""

from __future__ import annotations

import pytest

from sluice.errors import LakeNotWritable
from sluice.storage import CHECKSUM_ADVICE, CHECKSUM_VARIABLE, is_checksum_refusal

S3PROXY = (
    "When uploading part for key 'x' in bucket 'lake': AWS Error UNKNOWN (HTTP status 400) during"
    " UploadPart operation: Unable to parse ExceptionName: XAmzContentSHA256Mismatch Message: The"
    " provided 'x-amz-content-sha256' header does not match what was computed."
)


@pytest.mark.parametrize(
    "text",
    [
        S3PROXY,
        "NotImplemented: Header 'x-amz-checksum-crc64nvme' with value 'x' not implemented",
        "InvalidArgument: Unsupported header 'x-amz-sdk-checksum-algorithm' received",
        "aws-chunked encoding is not supported with the specified x-amz-content-sha256 value",
        "MissingContentLength: You must provide the Content-Length HTTP header.",
    ],
)
def test_refusals(text: str) -> None:
    assert is_checksum_refusal(OSError(text))


def test_the_cause_of_another_error() -> None:
    try:
        try:
            raise OSError(S3PROXY)
        except OSError as error:
            raise LakeNotWritable("write s3://lake/x") from error
    except LakeNotWritable as error:
        assert is_checksum_refusal(error)


@pytest.mark.parametrize(
    "text",
    ["", "AWS Error ACCESS_DENIED during PutObject operation", "SignatureDoesNotMatch", "checksum"],
)
def test_other_errors(text: str) -> None:
    assert not is_checksum_refusal(OSError(text))


def test_causes_that_go_in_a_circle_end() -> None:
    error, other = OSError("a"), OSError("b")
    error.__cause__, other.__cause__ = other, error
    assert not is_checksum_refusal(error)


def test_the_advice_names_the_variable() -> None:
    assert f"{CHECKSUM_VARIABLE}=when_required" in CHECKSUM_ADVICE
