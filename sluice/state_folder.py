"""The folder for files that later commands of the same user need: the installation's id."""

from __future__ import annotations

import os
from pathlib import Path


def state_folder() -> Path:
    """``sluice`` in ``XDG_STATE_HOME``, or in ``.local/state`` of the home; it may not exist.

    For a user without a home directory it is a path that cannot be created.
    """
    try:
        home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state"
    except RuntimeError:  # as in some containers
        home = os.devnull
    return Path(home) / "sluice"
