"""The folder of a KV snapshot is whole: what the server lists is there, under both its names."""

from __future__ import annotations

import json

from sluice.wire import fluss_api_pb2 as pb
from tests.golden.files import DATA, read


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
