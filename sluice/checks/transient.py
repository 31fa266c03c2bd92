"""Tells transient failures from permanent ones."""

from __future__ import annotations

import errno
import re

from sluice.errors import SluiceError

_LASTING = (
    FileExistsError,
    FileNotFoundError,
    ImportError,
    IsADirectoryError,
    NotADirectoryError,
    PermissionError,
    TypeError,
    ValueError,
)
# S3 and other storages report permanent failures only as text.
_REFUSED = re.compile(
    r"access.?denied|access.?key.?id|account.?problem|authorization|forbidden|HTTP status 40[0134]"
    r"|no.?such.?bucket|not.?authorized|permission denied|signature.?does.?not.?match|unauthorized",
    re.IGNORECASE,
)


def may_pass(error: BaseException) -> bool:
    """False if something is missing, refused or set wrongly; True for network failures."""
    if isinstance(error, SluiceError):
        return error.retryable
    if isinstance(error, _LASTING) or getattr(error, "errno", None) == errno.EROFS:
        return False
    return _REFUSED.search(str(error)) is None
