"""A KV snapshot that a real tablet server made: its folder is whole, and its rows are read."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from sluice.client.kv.sst_values import read_values
from sluice.formats.kv.value_batch import decode_values, values_of
from sluice.formats.rows.arrays import COMPACTED
from sluice.wire import fluss_api_pb2 as pb
from tests.golden import tables
from tests.golden.files import DATA, columns, read, read_arrow


def snapshot_folder(target: Path) -> Path:
    """The snapshot's files under their RocksDB names."""
    target.mkdir()
    answer = pb.GetKvSnapshotMetadataResponse.FromString(read("kv_snapshot/metadata.pb"))
    for file in answer.snapshot_files:
        name = file.remote_path.rpartition("/")[2]
        [source] = (DATA / "kv_snapshot").glob(f"*/{name}")
        shutil.copyfile(source, target / file.local_file_name)
    return target


@pytest.mark.parametrize("batch_bytes", [1, 1 << 20])
def test_its_rows_are_those_of_the_table(tmp_path: Path, batch_bytes: int) -> None:
    found = pa.concat_arrays(
        list(read_values(snapshot_folder(tmp_path / "db"), "snapshot", batch_bytes))
    )
    assert found.equals(values_of(read("kv/limit_scan.values")))
    batch = decode_values(found, {1: tables.KEYED}, tables.KEYED, COMPACTED)
    theirs = columns(read_arrow("kv/limit_scan.arrow"), tables.KEYED)
    assert pa.Table.from_batches([batch]).equals(theirs)


def test_listed_files_are_there_with_their_sizes() -> None:
    [snapshot] = pb.GetLatestKvSnapshotsResponse.FromString(
        read("kv_snapshot/latest.pb")
    ).latest_snapshots
    answer = pb.GetKvSnapshotMetadataResponse.FromString(read("kv_snapshot/metadata.pb"))
    folder = f"snap-{snapshot.snapshot_id}"
    metadata = json.loads(read(f"kv_snapshot/{folder}/_METADATA"))
    assert metadata["log_offset"] == answer.log_offset == snapshot.log_offset > 0

    handles = metadata["kv_snapshot_handle"]
    kept = handles["private_file_handles"] + handles["shared_file_handles"]
    sizes = {h["local_path"]: h["kv_file_handle"]["size"] for h in kept}
    listed = {f.local_file_name: f.remote_path for f in answer.snapshot_files}
    assert set(listed) == set(sizes)
    assert "CURRENT" in listed
    assert any(name.endswith(".sst") for name in listed)
    for name, path in listed.items():
        where = "shared" if name.endswith(".sst") else folder
        content = (DATA / "kv_snapshot" / where / path.rpartition("/")[2]).read_bytes()
        assert len(content) == sizes[name], name
