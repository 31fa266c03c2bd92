"""Where the program spark-submit is."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

NAME = "spark-submit"


def spark_submit(binary: str = NAME) -> Path | None:
    """The program of that name or path; None if there is none.

    Beside this process's Python it is found, too: a service is often started without its virtual
    environment's folder on the PATH.
    """
    found = shutil.which(binary) or shutil.which(binary, path=str(Path(sys.executable).parent))
    return Path(found) if found else None
