"""The driver's script, whose JVM ends in the middle of the first try for want of memory.

The property ``spark.test.memory`` says how: ``heap`` fills the JVM's heap, ``killed`` kills the JVM
as the kernel does that has no memory left. It happens once for each run, as soon as the driver has
begun two tables.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from pyspark import SparkContext

from sluice_spark.tier_tables import main

CHUNK_BYTES = 32 << 20
SMALLEST_BYTES = 1 << 10


def end_jvm(context: Any, run: Path) -> None:
    while len(list(run.glob("*/running-*.json"))) < 2:
        time.sleep(0.005)
    try:
        (run / "memory-ended").touch(exist_ok=False)
    except FileExistsError:
        return
    if context.getConf().get("spark.test.memory") == "killed":
        os.kill(os.getppid(), signal.SIGKILL)  # spark-submit's JVM has started this process
    fill(context)


def fill(context: Any) -> None:
    """Holds all of the heap, down to the last kilobytes, for as long as the JVM lives."""
    held = []
    size = CHUNK_BYTES
    while True:
        try:
            held.append(context._jvm.java.nio.ByteBuffer.allocate(size))
        except Exception:
            size = max(size // 2, SMALLEST_BYTES)
            time.sleep(0.001)


if __name__ == "__main__":
    pack = sys.argv[sys.argv.index("--pack") + 1]
    folder = Path(pack.removeprefix("file://")).parents[1]
    ending = (SparkContext.getOrCreate(), folder)
    threading.Thread(target=end_jvm, args=ending, daemon=True).start()
    sys.exit(main())
