"""The folder for files that Sluice can fetch or compile again: jars, zips and compiled loops."""

from __future__ import annotations

import os
from pathlib import Path

from sluice.errors import ConfigurationError


def cache_folder() -> Path:
    """``sluice`` in ``XDG_CACHE_HOME``, or in ``.cache`` of the user's home; it may not exist.

    :raises ConfigurationError: the user has no home directory, and the variable is not set.
    """
    if named := os.environ.get("XDG_CACHE_HOME"):
        return Path(named, "sluice")
    try:
        return Path.home() / ".cache" / "sluice"
    except RuntimeError as error:
        raise ConfigurationError(
            "this user has no home directory for a cache: set XDG_CACHE_HOME to a writable folder"
        ) from error
