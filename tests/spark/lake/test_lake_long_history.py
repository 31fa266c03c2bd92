"""The cost of a commit does not grow with the number of snapshots of the lake table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sluice.driver.lakes.jvm import Jvm
from sluice.errors import LakeCommitRefused
from sluice.lake.iceberg.lake import IcebergLake
from sluice.lake.iceberg.table import IcebergTable
from sluice.model import types as t
from sluice.rounds.values.types import LakeSnapshot
from tests.support.lake.long_history import lengthen_history
from tests.support.models.tables import table_info

pytestmark = pytest.mark.spark
INFO = table_info({"a": t.BIGINT})


@contextmanager
def counted(jvm: Jvm) -> Iterator[list[str]]:
    """The commands that py4j sends to the JVM, without those that release objects."""
    client, sent = jvm.gateway._gateway_client, []
    send = client.send_command

    def counting(command: str, *arguments: Any, **named: Any) -> Any:
        if not command.startswith("m\n"):
            sent.append(command)
        return send(command, *arguments, **named)

    client.send_command = counting
    try:
        yield sent
    finally:
        del client.send_command


def table_of(jvm: Jvm, warehouse: Path, own: int, others: int = 0) -> IcebergTable:
    """A table of ``own`` tiering snapshots and ``others`` newer ones of another writer."""
    lake = IcebergLake(jvm.gateway, {"type": "hadoop", "warehouse": str(warehouse)})
    lake.create(INFO).commit([], None, {"fluss-offsets": "/0"})
    lengthen_history(warehouse / "db/t", own, others)
    table = lake.load(INFO.path)
    assert table is not None
    return table


STEPS: dict[str, Callable[[IcebergTable, LakeSnapshot], object]] = {
    "newest": lambda table, _: table.newest_tiering_snapshot(),
    "another attempt": lambda table, base: table.find_tiering_snapshot(
        {"sluice.tiering-epoch": "9"}, base.sequence_number
    ),
    "ancestor": lambda table, base: table.is_ancestor(base.snapshot_id),
    "first ancestor": lambda table, _: table.is_ancestor((1 << 60) + 1),
    "no ancestor": lambda table, _: table.is_ancestor(7),
    "commit": lambda table, base: table.commit([], base, {"fluss-offsets": "/1"}),
}


@pytest.mark.parametrize(("short", "long"), [((5, 0), (60, 0)), ((5, 10), (5, 70))])
def test_no_step_of_a_round_calls_the_jvm_more_often_for_a_longer_history(
    jvm: Jvm, tmp_path: Path, short: tuple[int, int], long: tuple[int, int]
) -> None:
    calls: list[dict[str, int]] = []
    for own, others in (short, long):
        table = table_of(jvm, tmp_path / f"{own}-{others}", own, others)
        base = table.newest_tiering_snapshot()
        assert base is not None
        assert base.sequence_number == own
        calls.append({})
        for step, do in STEPS.items():
            with counted(jvm) as sent:
                do(table, base)
            calls[-1][step] = len(sent)
    assert calls[0] == calls[1]


@pytest.mark.parametrize(("others", "reads"), [(20, 0), (200, 1)])
def test_the_complete_metadata_is_read_once_at_most(
    jvm: Jvm, tmp_path: Path, others: int, reads: int
) -> None:
    table = table_of(jvm, tmp_path, 10, others)
    with counted(jvm) as sent:
        base = table.newest_tiering_snapshot()
        append(table, 2)  # while the round copies
        assert table.newest_tiering_snapshot() == base
        landed = tiered(table, base)
        append(table, 2)
        assert table.newest_tiering_snapshot() == landed
    calls = [command.split("\n")[1:3] for command in sent if command.startswith("c\n")]
    assert calls.count(["z:org.apache.iceberg.TableMetadataParser", "toJson"]) == reads
    assert len(calls) < 200


def append(table: IcebergTable, times: int, branch: str = "main") -> None:
    """Empty commits of another writer."""
    for _ in range(times):
        table._loaded.java.refresh()
        table._loaded.java.newAppend().toBranch(branch).commit()


EPOCH = {"sluice.tiering-epoch": "4"}


def tiered(table: IcebergTable, base: LakeSnapshot | None) -> LakeSnapshot:
    return table.commit([], base, EPOCH)


def test_only_attempts_after_the_base_count(jvm: Jvm, tmp_path: Path) -> None:
    """Epochs begin again, so an old round may have the same one."""
    table = table_of(jvm, tmp_path, 5)
    old = tiered(table, table.newest_tiering_snapshot())
    append(table, 1)
    base = table.commit([], old, {"sluice.tiering-epoch": "1"})
    assert table.find_tiering_snapshot(EPOCH) == old
    assert table.find_tiering_snapshot(EPOCH, base.sequence_number) is None
    append(table, 2)  # as compactions
    assert table.find_tiering_snapshot(EPOCH, base.sequence_number) is None
    mine = tiered(table, base)
    append(table, 20)
    assert table.find_tiering_snapshot(EPOCH, base.sequence_number) == mine
    table.set_main(old.snapshot_id, table.history().main)
    assert table.find_tiering_snapshot(EPOCH, base.sequence_number) is None
    assert not table.is_ancestor(mine.snapshot_id)
    with pytest.raises(LakeCommitRefused, match="planned base"):
        tiered(table, base)


def test_an_attempt_on_a_branch_is_none_of_main(jvm: Jvm, tmp_path: Path) -> None:
    table = table_of(jvm, tmp_path, 5)
    base = table.newest_tiering_snapshot()
    assert base is not None
    table._loaded.java.manageSnapshots().createBranch("side").commit()
    side = (
        table._loaded.java.newAppend().toBranch("side").set("commit-user", "__fluss_lake_tiering")
    )
    side.set("sluice.tiering-epoch", "4").commit()
    table._loaded.java.refresh()
    branched = table._loaded.java.snapshot("side").snapshotId()
    assert table.find_tiering_snapshot(EPOCH, base.sequence_number) is None
    assert table.newest_tiering_snapshot() == base
    assert not table.is_ancestor(branched)
    assert table.is_ancestor(tiered(table, base).snapshot_id)


@pytest.mark.parametrize("others", [1, 30])
def test_the_first_commit_follows_any_number_of_others(
    jvm: Jvm, tmp_path: Path, others: int
) -> None:
    lake = IcebergLake(jvm.gateway, {"type": "hadoop", "warehouse": str(tmp_path)})
    table = lake.create(INFO)
    assert not table.is_ancestor(7)
    append(table, others)
    assert table.find_tiering_snapshot(EPOCH) is None
    first = tiered(table, None)
    assert table.find_tiering_snapshot(EPOCH) == first
    with pytest.raises(LakeCommitRefused, match="planned base None"):
        tiered(table, None)


def test_a_base_that_expiry_cut_off_stays_the_base(jvm: Jvm, tmp_path: Path) -> None:
    table = table_of(jvm, tmp_path, 5)
    base = table.newest_tiering_snapshot()
    assert base is not None
    append(table, 30)
    table._loaded.java.refresh()
    table._loaded.java.expireSnapshots().expireOlderThan(2**62).retainLast(20).commit()
    assert len(table.history().snapshots) == 21
    assert table.newest_tiering_snapshot() == base
    assert table.is_ancestor(base.snapshot_id)
    assert table.find_tiering_snapshot(EPOCH, base.sequence_number) is None
    mine = tiered(table, base)
    assert table.find_tiering_snapshot(EPOCH, base.sequence_number) == mine
    with pytest.raises(LakeCommitRefused):
        tiered(table, base)


def test_earlier_metadata_is_read_for_a_repair_alone_and_no_further_than_needed(
    jvm: Jvm, tmp_path: Path
) -> None:
    """Main was rolled back behind an expired snapshot; the tag keeps the one after that."""
    table = table_of(jvm, tmp_path, 1)
    first = table.newest_tiering_snapshot()
    assert first is not None
    expired = tiered(table, first)
    registered = tiered(table, expired)
    table.set_main(first.snapshot_id, registered.snapshot_id)
    table._loaded.java.expireSnapshots().expireOlderThan(2**62).retainLast(1).commit()
    append(table, 4)
    assert files_read(jvm, lambda: table.history()) == 0
    assert files_read(jvm, lambda: table.history(registered.snapshot_id)) == 5
    assert expired.snapshot_id in table.history(registered.snapshot_id).expired
    assert files_read(jvm, lambda: table.history(registered.snapshot_id)) == 0
    assert files_read(jvm, lambda: table.history(first.snapshot_id)) == 0
    current = table._loaded.java.operations().current()
    for old in Path(current.metadataFileLocation()).parent.glob("v*.metadata.json"):
        if old.name not in current.metadataFileLocation():
            old.unlink()
    append(table, 1)
    listed = current.previousFiles().size() + 1
    assert files_read(jvm, lambda: table.history(registered.snapshot_id)) == listed
    assert not table.history(registered.snapshot_id).expired


def files_read(jvm: Jvm, do: Callable[[], object]) -> int:
    """How many earlier metadata files something reads."""
    with counted(jvm) as sent:
        do()
    calls = [command.split("\n")[1:3] for command in sent if command.startswith("c\n")]
    return calls.count(["z:org.apache.iceberg.TableMetadataParser", "read"])


@pytest.mark.parametrize("others", [0, 12])
@pytest.mark.parametrize("back", [False, True])
def test_the_fence_sees_main_move_after_it_was_checked(
    jvm: Jvm, tmp_path: Path, others: int, back: bool
) -> None:
    """Main moves back to the base, or on; another round commits there."""
    table = table_of(jvm, tmp_path, 5, others)
    base = table.newest_tiering_snapshot()
    assert base is not None
    fence = table._commits._fence(base, None)
    if back and others:
        table.set_main(base.snapshot_id, table.history().main)
    append(table, 2)
    assert fence.validate(ancestors(jvm, table))
    tiered(table, base)
    append(table, 1)
    assert not fence.validate(ancestors(jvm, table))


def ancestors(jvm: Jvm, table: IcebergTable) -> Any:
    table._loaded.java.refresh()
    return jvm.gateway.jvm.org.apache.iceberg.util.SnapshotUtil.currentAncestors(table._loaded.java)


def test_a_table_without_sequence_numbers_is_committed_to(jvm: Jvm, tmp_path: Path) -> None:
    """In Iceberg's first format all sequence numbers are 0."""
    info = table_info({"a": t.BIGINT}, custom_properties={"iceberg.format-version": "1"})
    lake = IcebergLake(jvm.gateway, {"type": "hadoop", "warehouse": str(tmp_path)})
    table = lake.create(info)
    first = tiered(table, None)
    assert first.sequence_number == 0
    append(table, 2)
    second = tiered(table, first)
    assert table.newest_tiering_snapshot() == second
    assert table.find_tiering_snapshot(EPOCH, first.sequence_number) == second
