"""A pytest plugin: with ``--dist loadgroup``, tests with the same ``xdist_group`` go to one worker.

xdist 3.8 adds the group to a test's id for that, but in an attribute that pytest has not read since
9.1, and before a conftest.py has named groups. Then each worker starts all that a group shares.
"""

from __future__ import annotations

from typing import Any

import pytest

try:
    from _pytest.nodeid import NodeId
except ImportError:  # before pytest 9.1
    NodeId = None  # type: ignore[assignment, misc]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not vars(config.option).get("loadgroup"):  # xdist sets it in workers
        return
    for item in items:
        groups = sorted({mark.args[0] for mark in item.iter_markers("xdist_group")})
        suffix = f"@{'_'.join(groups)}"
        if groups and not item.nodeid.endswith(suffix):
            _rename(item, f"{item.nodeid}{suffix}")


def _rename(item: Any, nodeid: str) -> None:
    if NodeId is None:
        item._nodeid = nodeid
    else:
        item._id = NodeId.parse(nodeid)
