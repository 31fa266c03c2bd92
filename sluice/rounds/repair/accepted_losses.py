"""What a user accepted before a round repairs a table: the round must not lose more than that.

Between the diagnosis and the round, retention may delete rows from a log, or another user may roll
the lake back.
"""

from __future__ import annotations

from collections.abc import Sequence

from sluice.errors import LakeRolledBack, LogBeginsAfterLake
from sluice.model import TablePath
from sluice.rounds.commit.failures import WITH_LAKE
from sluice.rounds.repair.diagnose import REGISTER, TAG, diagnose
from sluice.rounds.repair.diagnosis import LOST, RepairAction, TableState
from sluice.rounds.values.ports import Cluster
from sluice.rounds.values.types import OffsetRange, RepairMode


def needs_repair_round(
    repair_mode: RepairMode,
    observed: TableState,
    cluster: Cluster,
    accepted: RepairAction | None = None,
) -> bool:
    """Whether a round has to repair the table in this mode; False if it can run as usual.

    :param accepted: the repair as the user chose it; None: it had no risk.
    :raises LakeRolledBack: the repair has a risk that the user did not accept.
    :raises LakeError, RoundError: the table needs a repair, but not this one.
    """
    answer = diagnose(observed, cluster)
    for action in answer.actions:
        if action.name == repair_mode.value:
            check_ranges(observed.path, action.ranges, accepted)
            _check_risks(observed.path, action, accepted)
            return True
    names = {action.name for action in answer.actions}
    if answer.healthy or names & {REGISTER, TAG}:  # a round does these automatically
        return False
    raise answer.error(
        f"--by {repair_mode.value} does not repair this table: {answer.state}. Run `sluice repair"
        f" {answer.table}` again to see what does",
        table=answer.table,
    )


def check_ranges(
    path: TablePath, ranges: Sequence[OffsetRange], accepted: RepairAction | None
) -> None:
    """Checks that a user accepted these ranges as missing from the lake.

    :raises LakeRolledBack: one of them is not within an accepted range.
    """
    for one in ranges:
        if not _is_accepted(one, accepted):
            raise _changed(path, f"{LOST}{one}")


def check_gaps(path: TablePath, gaps: Sequence[OffsetRange], accepted: RepairAction | None) -> None:
    """Checks that a user accepted these gaps before the logs.

    :raises LogBeginsAfterLake: a log has lost more.
    """
    for gap in gaps:
        if not _is_accepted(gap, accepted):
            raise LogBeginsAfterLake(
                f"the log of bucket {gap.bucket.name} of table {path} has lost more rows since you"
                f" chose this repair: it now begins at offset {gap.stop}, the lake ends at offset"
                f" {gap.start}. Nothing was committed. Run `sluice repair {path}` {WITH_LAKE}"
                " again",
                table=str(path),
                bucket=gap.bucket,
                tiered_offset=gap.start,
                log_start_offset=gap.stop,
            )


def _is_accepted(lost: OffsetRange, accepted: RepairAction | None) -> bool:
    known = accepted.ranges if accepted is not None else ()
    return any(
        one.bucket == lost.bucket and one.start <= lost.start and lost.stop <= one.stop
        for one in known
    )


def _check_risks(path: TablePath, action: RepairAction, accepted: RepairAction | None) -> None:
    """Checks that the user saw the risks that are not about offset ranges."""
    shown = accepted.risks if accepted is not None else ()
    ranges = len(action.ranges)
    for risk in action.risks:
        about_ranges = ranges and (risk.startswith(LOST) or risk.endswith(" more buckets"))
        if risk not in shown and not about_ranges:
            raise _changed(path, risk)


def _changed(path: TablePath, risk: str) -> LakeRolledBack:
    return LakeRolledBack(
        f"table {path}: since you chose this repair, the lake or a log has changed, and the repair"
        f" has a new risk: {risk}. Nothing was committed. Run `sluice repair {path}` again",
        table=str(path),
    )
