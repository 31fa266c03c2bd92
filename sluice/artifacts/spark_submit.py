"""Finds the program spark-submit."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

NAME = "spark-submit"


def spark_submit(binary: str = NAME) -> Path | None:
    """The program of a name or path; None if it does not exist.

    It is also looked up in the folder of this process's Python, because services are often started
    without their virtual environment on the PATH.
    """
    found = shutil.which(binary) or shutil.which(binary, path=str(Path(sys.executable).parent))
    return Path(found) if found else None
