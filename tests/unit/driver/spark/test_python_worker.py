"""What a Python worker of Spark need not do again before each task."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

SCRIPT = """
import gc, importlib, sys, zipimport
sys.path.insert(0, sys.argv[1])
import first
from sluice.driver.python_worker import lighten

read = []
directory = zipimport._read_directory
zipimport._read_directory = lambda archive: read.append(archive) or directory(archive)
importlib.invalidate_caches()
if sys.version_info < (3, 13):  # newer ones read an archive when it is next used
    assert read, "there is nothing to avoid"
read.clear()
for task in range(2):
    lighten()
    importlib.invalidate_caches()
    assert not read, read
import second
assert (first.NAME, second.NAME) == ("first", "second")
assert not read, read
frozen = gc.get_freeze_count()
assert frozen > 1000
loop = []
loop.append(loop)
del loop
lighten()
assert gc.get_freeze_count() <= frozen, "garbage of later tasks is frozen"
assert gc.collect() >= 1
print("done")
"""


def test_archives_are_not_read_again_and_imports_still_work(tmp_path: Path) -> None:
    """In a process of its own, because it forgets archives and freezes objects."""
    archive = tmp_path / "modules.zip"
    with zipfile.ZipFile(archive, "w") as zipped:
        for name in ("first", "second"):
            zipped.writestr(f"{name}.py", f"NAME = {name!r}")
    command = [sys.executable, "-c", SCRIPT, str(archive)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.stdout == "done\n", ran.stderr
