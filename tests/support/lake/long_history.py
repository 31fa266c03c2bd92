"""Gives an Iceberg table of a Hadoop catalog a long history, without a commit per snapshot.

It writes one more metadata file, in which the newest snapshot has copies of itself as ancestors. A
copy has an id, a parent and a sequence number of its own, and the manifest list of the original.
So the metadata is as large as after that many commits, while manifests and data files stay few.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sluice.rounds.values.types import COMMIT_USER_KEY, WRITE_ID_KEY

_FIRST_ID = 1 << 60


def lengthen_history(folder: Path, snapshots: int, others_on_top: int = 0) -> None:
    """Makes the history of main ``snapshots`` long, with ``others_on_top`` more of other writers.

    :param folder: the table's folder.
    """
    metadata = folder / "metadata"
    version = int((metadata / "version-hint.text").read_text(encoding="utf-8"))
    content = json.loads((metadata / f"v{version}.metadata.json").read_text(encoding="utf-8"))
    main = content["current-snapshot-id"]
    [newest] = [one for one in content["snapshots"] if one["snapshot-id"] == main]
    total = snapshots + others_on_top
    chain: list[dict[str, Any]] = []
    for number in range(1, total + 1):
        entry = {**newest, "summary": dict(newest["summary"]), "sequence-number": number}
        entry["timestamp-ms"] -= total - number
        if number != snapshots:
            entry["snapshot-id"] = _FIRST_ID + number
            entry["summary"][WRITE_ID_KEY] = f"copy-{number}"
        if number > snapshots:
            for key in (COMMIT_USER_KEY, WRITE_ID_KEY):
                entry["summary"].pop(key, None)
        entry.pop("parent-snapshot-id", None)
        if chain:
            entry["parent-snapshot-id"] = chain[-1]["snapshot-id"]
        chain.append(entry)
    content["snapshots"] = chain
    content["last-sequence-number"] = total
    content["snapshot-log"] = [
        {"snapshot-id": one["snapshot-id"], "timestamp-ms": one["timestamp-ms"]} for one in chain
    ]
    content["current-snapshot-id"] = chain[-1]["snapshot-id"]
    content["refs"]["main"]["snapshot-id"] = chain[-1]["snapshot-id"]
    target = metadata / f"v{version + 1}.metadata.json"
    target.write_text(json.dumps(content), encoding="utf-8")
    (metadata / "version-hint.text").write_text(str(version + 1), encoding="utf-8")
