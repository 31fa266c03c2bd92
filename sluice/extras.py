"""Optional packages: imported where they are used, and named if they are missing.

The base of the distribution is small. Extras such as ``fluss-sluice[server]`` add packages. Without
them a command ends with exit code 2 and one line that has the command to install them.
"""

from __future__ import annotations

import importlib
from types import ModuleType

from sluice.errors import MissingExtra

DISTRIBUTION = "fluss-sluice"


def require(module: str, extra: str, purpose: str, *, then: str = "") -> ModuleType:
    """Imports ``module``: a package of the extra, or a module of Sluice that imports one.

    :param purpose: begins the error's sentence: "sluice serve", "reading such a file".
    :param then: a command to run after the installation.
    :raises MissingExtra: a package is not installed; names it and the command that installs it.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = (error.name or module).partition(".")[0]
        if package == __name__.partition(".")[0]:
            raise  # a module of Sluice is missing, which no extra adds
        behind = f", then `{then}`" if then else ""
        raise MissingExtra(
            f"{purpose} needs {package}, which is not installed: "
            f"run `{install_command(extra)}`{behind}",
            module=error.name,
            extra=extra,
        ) from error


def install_command(extra: str) -> str:
    """The command that installs an extra, with the brackets quoted for the shell."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"
