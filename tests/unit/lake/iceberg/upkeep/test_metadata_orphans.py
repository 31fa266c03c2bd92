"""Whether a table's folder has metadata of another table."""

from __future__ import annotations

import gzip
import json
import uuid
from pathlib import Path

from sluice.lake.iceberg.snapshots.stored_files import StoredFiles
from sluice.lake.iceberg.upkeep.metadata_orphans import is_shared
from sluice.lake.storage.file_systems import FileSystems
from sluice.rounds.upkeep.orphans import StoredFile

TABLE, OTHER = str(uuid.uuid4()), str(uuid.uuid4())


def metadata(folder: Path, name: str, table_uuid: str | None) -> StoredFile:
    content = {"format-version": 2, "table-uuid": table_uuid, "location": "x" * 20_000}
    if table_uuid is None:
        del content["table-uuid"]
    text = json.dumps(content).encode()
    path = folder / name
    path.write_bytes(gzip.compress(text) if ".gz." in name else text)
    return StoredFile(str(path), path.stat().st_size, 1_000)


def test_the_metadata_of_another_table_is_found(tmp_path: Path) -> None:
    own = [
        metadata(tmp_path, "v1.metadata.json", TABLE),
        metadata(tmp_path, "00002-x.gz.metadata.json", TABLE),
    ]
    gone = StoredFile(str(tmp_path / "v3.metadata.json"), 10, 1_000)
    stored = StoredFiles([str(tmp_path)], FileSystems())
    assert not is_shared(stored, [*own, gone], TABLE)
    for name, table_uuid in (("a.gz.metadata.json", OTHER), ("b.metadata.json", None)):
        other = metadata(tmp_path, name, table_uuid)
        assert is_shared(stored, [*own, other], TABLE)
