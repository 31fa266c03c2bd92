"""In place of spark-submit: a maintenance of two tables, killed after the first one, once.

If it is asked for one table, it is not killed.
"""

from __future__ import annotations

import os
import signal
import sys

from sluice.rounds.upkeep.maintenance import table_report


def main(arguments: list[str]) -> int:
    from sluice.rounds.records.maintenance import MaintenanceFiles
    from sluice.rounds.upkeep.health import TableHealth
    from sluice.rounds.upkeep.maintenance import MaintenanceReport

    assert arguments[-3].endswith("/maintain_tables.py"), arguments
    files = MaintenanceFiles(arguments[arguments.index("--request") + 1])
    request = files.read_request()
    is_whole = request.tables == ("*",)
    for name in ("shop.a", "shop.b") if is_whole else request.tables:
        if name in request.done:
            continue
        files.begin(name)
        if name == "shop.b" and is_whole and not request.done:
            os.kill(os.getpid(), signal.SIGKILL)
        health = TableHealth(equality_files=2)
        report = MaintenanceReport(name, health, TableHealth(), orphans_removed=3)
        files.add(table_report(report, applied=True))
    files.end()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
