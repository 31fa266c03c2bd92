"""Looking at a lake that is behind Fluss, on the models, and putting it right."""

from __future__ import annotations

from sluice.rounds.commit.options import RoundOptions
from sluice.rounds.records.result import RoundResult
from sluice.rounds.repair.diagnose import apply_action, diagnose, read_table_state
from sluice.rounds.repair.diagnosis import Diagnosis, RepairAction, TableState
from sluice.rounds.repair.request import RepairRequest
from sluice.rounds.repair.round import run_repair
from sluice.rounds.values.attempt import RoundPorts
from sluice.rounds.values.limits import RoundLimits
from sluice.rounds.values.types import OffsetRange, RepairMode
from tests.unit.rounds.conftest import World


def seen(world: World) -> TableState:
    assert world.cluster.info is not None
    return read_table_state(world.cluster.info.path, world.cluster, world.lake)


def found(world: World) -> Diagnosis:
    return diagnose(seen(world), world.cluster)


def ways(world: World) -> dict[str, bool]:
    """Each way that is open, in order: whether it is without loss."""
    return {way.name: not way.risks for way in found(world).actions}


def shown(world: World, repair_mode: RepairMode) -> RepairAction | None:
    """The repair as a user would see it now."""
    return next((one for one in found(world).actions if one.name == repair_mode.value), None)


def mended(
    world: World,
    repair_mode: RepairMode,
    limits: RoundLimits | None = None,
    accepted: RepairAction | None = None,
    unreadable: OffsetRange | None = None,
) -> RoundResult:
    """:param accepted: the repair as the user chose it; None: as it is shown now.
    :param unreadable: the batch that the user named.
    """
    world.attempts += 1
    accepted = accepted or shown(world, repair_mode)
    return run_repair(
        world.cluster.begin_round(),
        RoundPorts(world.cluster, world.lake, world.runner),
        str(world.attempts),
        RepairRequest(mode=repair_mode, unreadable=unreadable, accepted=accepted),
        RoundOptions(limits=limits),
    )


def skipped(world: World, start: int, stop: int) -> RoundResult:
    """A round that leaves out a batch of bucket 0, as its user asked."""
    world.attempts += 1
    return run_repair(
        world.cluster.begin_round(),
        RoundPorts(world.cluster, world.lake, world.runner),
        str(world.attempts),
        RepairRequest(mode=RepairMode.SKIP, unreadable=OffsetRange(world.bucket(0), start, stop)),
    )


def put_right(world: World) -> None:
    """Main or tag, by the way that is without loss."""
    sight = seen(world)
    way = diagnose(sight, world.cluster).recommended
    assert way is not None
    apply_action(way, sight)


def lose_newer(world: World) -> None:
    """Expiry of what main lacks now: the tag was removed before, or it would be kept."""
    main = world.table.history().main
    world.table.tagged = None
    world.table.expire(*set(world.table.history().snapshots) - {main})


def forget_ours(world: World, newest: RoundResult) -> None:
    """Other writers go on, the tag is removed, and expiry takes all snapshots of ours."""
    for _ in range(3):
        world.table.foreign_commit(summary={"operation": "replace"})
    world.table.tagged = None
    assert newest.lake_snapshot_id is not None
    world.table.expire(*(snapshot.snapshot_id for snapshot in world.table.snapshots()[1:]))
