"""Packages that only some uses need: imported where used, and named where they are missing.

The base of the distribution is small. What it leaves out comes with an extra, such as
``fluss-sluice[server]``. Without it a command ends with one line that says how to get it.
"""

from __future__ import annotations

import importlib
from types import ModuleType

from sluice.errors import MissingExtra

DISTRIBUTION = "fluss-sluice"


def require(module: str, extra: str, purpose: str, *, then: str = "") -> ModuleType:
    """Imports ``module``; it may be one of ours that imports what the extra brings.

    :param purpose: begins the error's sentence: "sluice serve", "reading such a file".
    :param then: a command to run after the installation.
    :raises MissingExtra: a package is not installed; names it and the command that installs it.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = (error.name or module).partition(".")[0]
        if package == __name__.partition(".")[0]:
            raise  # a module of ours is missing: no extra has it
        behind = f", then `{then}`" if then else ""
        raise MissingExtra(
            f"{purpose} needs {package}, which is not installed: "
            f"run `{install_command(extra)}`{behind}",
            module=error.name,
            extra=extra,
        ) from error


def install_command(extra: str) -> str:
    """What a user types; the quotes keep shells from reading the brackets."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"
