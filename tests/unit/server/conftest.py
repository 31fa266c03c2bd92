"""A server per test, on a data directory of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.server.support import Caller, Node, OwnedClock


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Node]]:
    """Starts a server with settings of one's own; all are stopped at the end."""
    nodes: list[Node] = []

    def make(**settings: Any) -> Node:
        nodes.append(Node(tmp_path / "data", **settings))
        return nodes[-1]

    yield make
    for node in nodes:
        node.stop()


@pytest.fixture
def node(start: Callable[..., Node]) -> Node:
    return start()


@pytest.fixture
def caller(node: Node) -> Caller:
    return node.caller


@pytest.fixture
def clock() -> OwnedClock:
    return OwnedClock()
