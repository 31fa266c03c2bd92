"""Lists the repairs of buckets whose log cannot be copied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sluice.errors import LogBeginsAfterLake
from sluice.rounds.commit.failures import WITH_LAKE, begins_text
from sluice.rounds.repair.diagnosis import (
    LOST,
    NAMED_MAX,
    Diagnosis,
    RepairAction,
    TableState,
    only_tiering_wrote,
    unhealthy,
)
from sluice.rounds.values.note_lists import first_of
from sluice.rounds.values.types import OffsetRange, RepairMode

ACCEPT_GAP, SKIP = RepairMode.ACCEPT_GAP.value, RepairMode.SKIP.value
REBUILD = RepairMode.REBUILD.value


def diagnose_unreadable(observed: TableState, batch: OffsetRange, why: str) -> Diagnosis:
    """The repairs of a batch that cannot be read, in a table that is healthy otherwise.

    :param batch: its offsets; it is empty if they end at an unknown offset.
    :param why: the bucket, the batch and what is wrong with it.
    """
    actions, advice = [], []
    if observed.info.has_primary_key:
        actions.append(_rebuild(observed, [batch]))
    if batch.start < batch.stop:
        actions.append(_skip(observed, batch))
    else:
        advice.append(_unknown_end(observed, batch))
    actions.sort(key=lambda action: bool(action.risks))
    found = unhealthy(observed, why, actions, advice)
    return replace(found, batch=f"{batch.bucket.name}:{batch.start}")


def _skip(observed: TableState, batch: OffsetRange) -> RepairAction:
    risks = [
        f"{LOST}{batch} (the batch cannot be read)",
        "with replication, another replica may have an intact batch: let it lead the bucket first",
    ]
    if observed.info.has_primary_key:
        risks.append("the lake keeps the old rows of keys that this batch updates or deletes")
    effect = "run a round that copies up to this batch, leaves it out and records that in the lake"
    return RepairAction(SKIP, effect, tuple(risks))


def _unknown_end(observed: TableState, batch: OffsetRange) -> str:
    """Advice for a batch whose length or header is damaged too."""
    unknown = "where the next batch begins is unknown, because lengths or offsets are damaged too"
    if observed.info.has_primary_key:
        return f"{unknown}: only rebuild is possible"
    return (
        f"{unknown}. Rounds still tier the other buckets. With replication, let another replica"
        f" lead bucket {batch.bucket.name}: it may have an intact batch. Otherwise, set"
        " table.datalake.enabled to false until the server has deleted the batch"
        " (table.log.ttl), because before that it keeps what the lake lacks. Set it to true again,"
        f" then run `sluice repair {observed.path} --by accept-gap --yes` {WITH_LAKE}"
    )


def diagnose_gaps(observed: TableState, gaps: Sequence[OffsetRange]) -> Diagnosis:
    """The repairs of logs that begin after the lake's end."""
    more = f", and {len(gaps) - NAMED_MAX} more" if len(gaps) > NAMED_MAX else ""
    state = "; ".join(begins_text(gap) for gap in gaps[:NAMED_MAX]) + more
    if observed.info.has_primary_key:
        found = unhealthy(observed, state, [_rebuild(observed, gaps)], [])
        return replace(found, error=LogBeginsAfterLake)
    risks = [f"{LOST}{gap} (its log starts at {gap.stop})" for gap in gaps[:NAMED_MAX]]
    if more:
        risks.append(f"and {len(gaps) - NAMED_MAX} more buckets")
    risks.append("if a tablet server has just restarted, check again in a minute")
    effect = "run a round that moves on to where the logs begin, and records the gaps in the lake"
    accept = RepairAction(ACCEPT_GAP, effect, tuple(risks), tuple(gaps))
    return replace(unhealthy(observed, state, [accept], []), error=LogBeginsAfterLake)


def _rebuild(observed: TableState, lost: Sequence[OffsetRange]) -> RepairAction:
    effect = f"run a round that {rebuild_text(lost)}"
    risks = tuple(rebuild_risks(observed, lost))
    return RepairAction(REBUILD, effect, risks, tuple(lost), observed.history.main)


def rebuild_text(lost: Sequence[OffsetRange]) -> str:
    """What a round does with buckets that it rebuilds."""
    return (
        f"reads {_buckets(lost)} again from a KV snapshot or a scan, and replaces the files in the"
        " lake"
    )


def rebuild_risks(observed: TableState, lost: Sequence[OffsetRange]) -> list[str]:
    """The risk that rows of other writers are deleted in buckets that are rebuilt."""
    if not lost or observed.table is None or only_tiering_wrote(observed):
        return []
    risk = f"main loses any rows that other writers have added to {_buckets(lost)}"
    unknown = "; its oldest snapshots have expired, so these rows are unknown"
    return [risk if observed.history.is_complete() else risk + unknown]


def _buckets(lost: Sequence[OffsetRange]) -> str:
    names = [one.bucket.name for one in lost]
    plural = "buckets" if len(names) > 1 else "bucket"
    return f"{plural} {first_of(names, limit=NAMED_MAX)}"
