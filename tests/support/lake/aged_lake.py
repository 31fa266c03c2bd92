"""Makes the snapshots of a lake table old, in a Hadoop catalog."""

from __future__ import annotations

import json
from pathlib import Path


def age_snapshots(folder: Path, milliseconds: int) -> None:
    """Writes one more metadata file, in which all that happened is so much longer ago.

    :param folder: the table's folder.
    """
    metadata = folder / "metadata"
    version = int((metadata / "version-hint.text").read_text(encoding="utf-8"))
    content = json.loads((metadata / f"v{version}.metadata.json").read_text(encoding="utf-8"))
    content["last-updated-ms"] -= milliseconds
    for name in ("snapshots", "snapshot-log", "metadata-log"):
        for entry in content[name]:
            entry["timestamp-ms"] -= milliseconds
    target = metadata / f"v{version + 1}.metadata.json"
    target.write_text(json.dumps(content), encoding="utf-8")
    (metadata / "version-hint.text").write_text(str(version + 1), encoding="utf-8")
