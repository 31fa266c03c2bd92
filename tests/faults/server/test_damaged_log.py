"""A round over a damaged log names what the lake will lack, and loses no other row."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluice.errors import SplitFailed
from sluice.formats.log.batch import iter_batches
from sluice.rounds.commit.failures import named_batch
from tests.faults.scenes.scene import Scene
from tests.support.tables.server_files import table_folder

pytestmark = [pytest.mark.spark, pytest.mark.slow]  # which reads the lake


def damage(scene: Scene, number: int) -> tuple[Path, int, int]:
    """Flips a bit of a batch of bucket 0; the file, its first offset, and the one after it."""
    folder = table_folder(scene.server.data_dir / "log", scene.path.database, scene.path.table)
    (log,) = (folder / "log-0").glob("*.log")
    content = bytearray(log.read_bytes())
    headers = [header for header, _ in iter_batches(bytes(content))]
    header = headers[number]
    content[sum(one.size for one in headers[: number + 1]) - 1] ^= 1
    log.write_bytes(content)
    return log, header.base_offset, header.next_offset


def test_a_round_over_a_damaged_log_names_what_is_lost(scene: Scene) -> None:
    scene.append(400)
    scene.server.stop()
    log, start, stop = damage(scene, 2)
    scene.server.start()
    with pytest.raises(SplitFailed) as refused:
        scene.tier()
    assert str(log) in str(refused.value)
    assert f"`sluice skip-damaged {scene.path} 0:{start}`" in str(refused.value)
    assert named_batch(str(refused.value)) is None, "no round may skip it yet"
    with scene.client() as client:
        (found,) = client.damage.list(scene.path)
        assert (found.start, found.stop) == (start, stop)
        client.damage.skip(found)
        client.statuses.retry(scene.path)
    with pytest.raises(SplitFailed) as lost:
        scene.tier()
    assert named_batch(str(lost.value)) == (scene.path, "0", start)
    there = ("--bootstrap", scene.address)
    repair = scene.command("repair", *there, "--skip", f"0:{start}", "--yes")
    assert repair.wait() == 0, repair.said
    accepted = scene.status().accepted
    assert accepted is not None
    assert f"bucket 0: offsets {start} to {stop - 1} were skipped" in accepted
    scene.append(100)
    scene.tier_until_done()
    ((rows, distinct),) = scene.sql("SELECT count(*), count(DISTINCT n) FROM {t}")
    assert rows == distinct == scene.written - (stop - start)
