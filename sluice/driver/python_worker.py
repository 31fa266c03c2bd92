"""Keeps Spark's Python workers from doing the same work again before each task."""

from __future__ import annotations

import functools
import gc
import sys
import zipimport


def lighten() -> None:
    """Call it on an executor at the end of a task; it costs microseconds.

    Before a task, Spark calls ``importlib.invalidate_caches``, which reads the contents of each
    archive on the path again, once for each of its folders: pyspark.zip, Sluice's zip, and the jar
    with Spark's core. After a task it collects garbage, through all modules. Both took about 0.2
    CPU seconds a task, as long as copying 100,000 rows.

    Archives that are forgotten here are found again when something is imported from them, by the
    contents that Python keeps. What is alive now is no garbage for as long as the worker lives.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimport.zipimporter):
            del sys.path_importer_cache[path]
    _freeze()


@functools.cache  # once, because later garbage would never be collected
def _freeze() -> None:
    # Whether there are frozen objects does not tell: Python 3.12 begins with some.
    gc.freeze()
