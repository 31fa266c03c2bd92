"""A pytest plugin: a run with pytest-xdist goes on when one of its workers has crashed.

With ``--dist loadgroup``, xdist 3.8 hands out finished tests again and the one that crashed, asks
workers for tests that they have not collected yet, and gives a new worker too little to begin
with. The run hangs (pytest-dev/pytest-xdist #1323, #1327, #1378).
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from xdist.scheduler import LoadGroupScheduling

STARTS_AT = 2
"""A worker runs a test only when it knows the next one, or that none comes."""


class _Groups(LoadGroupScheduling):
    """Each test goes to one worker, also when that worker crashes."""

    def remove_node(self, node: Any) -> str | None:
        units = self.assigned_work.pop(node)
        left = {scope: unit for scope, unit in units.items() if not all(unit.values())}
        first = next(iter(left.values()), {})
        crashed = next((name for name, ended in first.items() if not ended), None)
        if crashed is not None:
            first[crashed] = True  # it has failed; nobody runs it again
        for scope, unit in reversed(left.items()):
            if not all(unit.values()):
                self.workqueue[scope] = unit
                self.workqueue.move_to_end(scope, last=False)
        if crashed is not None:
            for other in self.nodes:
                self._reschedule(other)
        return crashed

    def _assign_work_unit(self, node: Any) -> None:
        with suppress(OSError):  # it has just died: its end is reported, and remove_node() called
            super()._assign_work_unit(node)

    def _reschedule(self, node: Any) -> None:
        if node not in self.registered_collections:
            return  # still collects; its turn comes with its collection
        super()._reschedule(node)
        while not node.shutting_down and self._pending_of(self.assigned_work[node]) < STARTS_AT:
            super()._reschedule(node)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadGroupScheduling | None:
    return _Groups(config, log) if config.getvalue("dist") == "loadgroup" else None
