"""Stores that reject the checksums that AWS's newer clients send with each upload."""

from __future__ import annotations

CHECKSUM_VARIABLE = "AWS_REQUEST_CHECKSUM_CALCULATION"
CHECKSUM_ADVICE = (
    "the store does not accept the checksums that AWS's clients send since 2025; set"
    f" {CHECKSUM_VARIABLE}=when_required in the environment of Sluice, and of Spark's driver and"
    " executors"
)
_SIGNS = (
    "xamzcontentsha256mismatch",
    "x-amz-content-sha256",
    "x-amz-checksum-",
    "x-amz-sdk-checksum-algorithm",
    "x-amz-trailer",
    "streaming-unsigned-payload-trailer",
    "aws-chunked",
    "missingcontentlength",
)
"""What stores say about the headers of such a request, in lower case."""
_CAUSES_MAX = 20


def is_checksum_refusal(error: BaseException) -> bool:
    """Whether a store refused a write because of its checksum; :data:`CHECKSUM_ADVICE` says more.

    Errors of pyarrow and of Iceberg's own client are recognized, also as the cause of others.
    """
    cause: BaseException | None = error
    for _ in range(_CAUSES_MAX):
        if cause is None:
            return False
        said = str(cause).lower()
        if any(sign in said for sign in _SIGNS):
            return True
        cause = cause.__cause__ or cause.__context__
    return False
