"""A table of a real Fluss 0.9.1 that its coordinator misses.

The coordinator knows a new table by a change of its node in ZooKeeper, not by the node's creation.
Fluss creates the node empty and then fills it. If the coordinator's watcher sees both as one, it
misses the table. Here the node is created with its contents, by Fluss's own ZooKeeper shell.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Sequence

from sluice.artifacts.java import java
from sluice.model import TablePath
from tests.support.fluss.real_fluss import RealFluss

_SHELL = "org.apache.fluss.shaded.zookeeper3.org.apache.zookeeper.ZooKeeperMain"
_PATIENCE_S = 120.0


def miss_table(fluss: RealFluss, model: TablePath, path: TablePath, table_id: int) -> None:
    """Creates a table like another one, except that the coordinator misses it.

    :param table_id: an id that no table has.
    """
    old, new = _node(model), _node(path)
    texts = _shell(fluss, [f"get {old}", f"get {old}/schemas/1"])
    table, schema = (json.loads(line) for line in re.findall(r"^\{.*\}$", texts, re.M))
    assignment = f"/fluss/tabletservers/tables/{table['table_id']}"
    [buckets] = re.findall(r"^\{.*\}$", _shell(fluss, [f"get {assignment}"]), re.M) or [None]
    long_ago = table["created_time"] - 60_000  # it should have leaders by now
    changed = {"table_id": table_id, "created_time": long_ago}
    made = [f"create {new} '{json.dumps(table | changed)}'"]
    made += [f"create {new}/schemas", f"create {new}/schemas/1 '{json.dumps(schema)}'"]
    if buckets is not None:  # a partitioned table has none
        made.insert(0, f"create /fluss/tabletservers/tables/{table_id} '{buckets}'")
    said = _shell(fluss, made)
    assert said.count("Created ") == len(made), said


def _node(path: TablePath) -> str:
    return f"/fluss/metadata/databases/{path.database}/tables/{path.table}"


def _shell(fluss: RealFluss, commands: Sequence[str]) -> str:
    """What the shell prints, both streams; its exit code is that of a missing node, too."""
    port = re.search(r"^clientPort=(\d+)$", (fluss.home / "zoo.cfg").read_text(), re.M)
    assert port is not None
    lines = "".join(f"{command}\n" for command in [*commands, "quit"])
    command = [java(), "-cp", fluss.class_path, _SHELL, "-server", f"127.0.0.1:{port[1]}"]
    done = subprocess.run(
        command, input=lines, capture_output=True, text=True, timeout=_PATIENCE_S, check=False
    )
    return done.stdout + done.stderr
