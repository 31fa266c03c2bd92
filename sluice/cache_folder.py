"""Where Sluice keeps between its processes what can be made or fetched again."""

from __future__ import annotations

import os
from pathlib import Path

from sluice.errors import ConfigurationError


def cache_folder() -> Path:
    """``sluice`` below ``XDG_CACHE_HOME``, or below ``.cache`` in the user's home; may not exist.

    :raises ConfigurationError: the user has no home, and the variable is not set.
    """
    if named := os.environ.get("XDG_CACHE_HOME"):
        return Path(named, "sluice")
    try:
        return Path.home() / ".cache" / "sluice"
    except RuntimeError as error:
        raise ConfigurationError(
            "this user has no home for a cache: set XDG_CACHE_HOME to a folder that can be written"
        ) from error
