"""The last phase of a round: it expires old lake snapshots. Its errors are notes, not failures."""

from __future__ import annotations

from sluice.model import TablePath
from sluice.rounds.values.expiry import Expired, ExpiryRule
from sluice.rounds.values.phases import Phases
from sluice.rounds.values.ports import Cluster, LakeTable
from sluice.rounds.values.reasons import reason_of


def expire_after(
    path: TablePath,
    cluster: Cluster,
    table: LakeTable,
    phases: Phases,
    *,
    started_ms: int,
    limit_ms: int,
    base: int | None,
    committed: int,
) -> Expired:
    """Expires old snapshots after a commit that Fluss has registered.

    The rows are in the lake, so no error here makes the round fail: the next round tries again.

    :param started_ms: the start of the round, epoch milliseconds.
    :param limit_ms: how long the round may copy.
    :param base: the snapshot that the round was planned from; None: there was none.
    :param committed: the snapshot of this round.
    """
    try:
        with phases("expire"):
            registered = cluster.lake_snapshot(path)  # an older round may have come in between
            kept = {committed, registered.snapshot_id if registered else committed}
            spent_ms = phases.elapsed_ms()
            rule = ExpiryRule(started_ms + spent_ms, max(limit_ms, spent_ms), base, frozenset(kept))
            return table.expire_by(rule)
    except KeyboardInterrupt:  # the second one: the first has waited, and ends the command
        return Expired(notes=("a signal ended the expiry of old lake snapshots",))
    except Exception as error:
        why = reason_of(error).text
        return Expired(notes=(f"old lake snapshots were not expired: {why}",))
