"""Whether a check that failed may succeed later, with nothing changed by anybody."""

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
# Storages of other schemes and S3 tell the same in words only.
_REFUSED = re.compile(
    r"access.?denied|access.?key.?id|account.?problem|authorization|forbidden|HTTP status 40[0134]"
    r"|no.?such.?bucket|not.?authorized|permission denied|signature.?does.?not.?match|unauthorized",
    re.IGNORECASE,
)


def may_pass(error: BaseException) -> bool:
    """False for what is missing, refused or a wrong setting; True for a network that fails."""
    if isinstance(error, SluiceError):
        return error.retryable
    if isinstance(error, _LASTING) or getattr(error, "errno", None) == errno.EROFS:
        return False
    return _REFUSED.search(str(error)) is None
