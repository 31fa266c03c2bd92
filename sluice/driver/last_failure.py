"""Reads why the last round of a table failed, for `sluice repair`."""

from __future__ import annotations

from dataclasses import replace

from sluice.client.client import Client
from sluice.client.unreadable_batch import unreadable_batch
from sluice.errors import ConfigurationError
from sluice.model import TableBucket
from sluice.rounds.commit.failures import WITH_LAKE, named_batch
from sluice.rounds.plan.bucket_repairs import GAPS_KEY, SKIPPED_KEY, left_out_in
from sluice.rounds.repair.bucket_diagnoses import diagnose_unreadable
from sluice.rounds.repair.diagnose import RETIER, diagnose, offsets_in_lake
from sluice.rounds.repair.diagnosis import Diagnosis, TableState
from sluice.rounds.values.types import OffsetRange

BatchName = tuple[str, int]
"""A batch as users name it: ``BUCKET`` or ``PARTITION_ID/BUCKET``, and its base offset."""


def diagnose_batch(
    client: Client, seen: TableState, name: BatchName
) -> tuple[Diagnosis, OffsetRange]:
    """The repairs of a batch that cannot be read, in a table that is healthy otherwise.

    :raises ConfigurationError: no unreadable batch begins there.
    """
    bucket = TableBucket.named(seen.info.table_id, name[0])
    left_out = left_out_in(seen.info.table_id, seen.history, (GAPS_KEY, SKIPPED_KEY))
    batch, why = unreadable_batch(
        client, seen.path, bucket, name[1], _tiered_to(seen, bucket), left_out
    )
    return diagnose_unreadable(seen, batch, why), batch


def diagnose_batch_behind(
    client: Client, seen: TableState, found: Diagnosis, name: BatchName
) -> tuple[Diagnosis, OffsetRange | None]:
    """The repairs of a lake that is behind Fluss, with ``retier`` leaving out a named batch.

    Such a batch was tiered before. If it begins behind what was tiered, the lake comes first.

    :param found: the diagnosis without the batch, which has ``retier``.
    :returns: also the batch; None: ``retier`` cannot leave it out.
    :raises ConfigurationError: no unreadable batch begins there.
    """
    bucket = TableBucket.named(seen.info.table_id, name[0])
    if name[1] >= _tiered_to(seen, bucket):
        return found, None
    held = (offsets_in_lake(seen)[0] or {}).get(bucket, 0)
    batch, why = unreadable_batch(client, seen.path, bucket, name[1], held)
    if batch.start >= _tiered_to(seen, bucket):  # the lake has the begin of the damaged range
        return found, None
    if batch.start == batch.stop and not seen.info.has_primary_key:
        others = tuple(action for action in found.actions if action.name != RETIER)
        state = f"{found.state}; {why}. Its end is unknown, so {RETIER} cannot leave it out"
        return replace(found, actions=others, state=state), None
    again = diagnose(replace(seen, unreadable=batch), client.tiering)
    named = f"{batch.bucket.name}:{batch.start}"
    return replace(again, state=f"{again.state}; {why}", batch=named), batch


def with_batch_behind(client: Client, seen: TableState, found: Diagnosis) -> Diagnosis:
    """The diagnosis of a lake that is behind, with a note on the batch at which a round failed.

    :param found: has ``retier``, which would meet that batch again.
    """
    errors = [status.last_error or "" for status in client.statuses.list(seen.path)]
    named = named_batch(errors[0]) if errors else None
    if named is None or named[0] != seen.path:
        return found
    if named[2] >= _tiered_to(seen, TableBucket.named(seen.info.table_id, named[1])):
        return found
    note = (
        f"the last round could not read the batch at {named[1]}:{named[2]}. `sluice repair"
        f" {seen.path} --skip {named[1]}:{named[2]}` {WITH_LAKE} shows how to leave it out"
    )
    return replace(found, advice=(*found.advice, note))


def with_last_failure(client: Client, seen: TableState, found: Diagnosis) -> Diagnosis:
    """The diagnosis of a table whose lake is healthy, with the failure of its last round.

    If that round could not read a batch, the table is not healthy. This reads only that batch.
    """
    statuses = client.statuses.list(seen.path)
    if not statuses:
        return _with_unknown(
            found,
            "a table has a status only while table.datalake.enabled is true. `sluice history"
            f" {seen.path}` shows the last rounds",
        )
    [status] = statuses
    if status.is_unread:
        return _with_unknown(found, str(status.note))
    if not status.is_failing and status.last_error_ms is None:  # a retry clears only the failures
        return found
    error = status.last_error or "no reason was reported"
    named = named_batch(error)
    if named is None or named[0] != seen.path:
        return replace(found, last_failure=f"the last round failed: {error}")
    try:
        unreadable, _ = diagnose_batch(client, seen, named[1:])
    except ConfigurationError as readable:
        why = readable.details["problem"]
        failure = f"the last round could not read the batch at {named[1]}:{named[2]}. Now {why}"
        return replace(found, last_failure=failure)
    return replace(unreadable, state=f"the last round failed: {unreadable.state}")


def _tiered_to(seen: TableState, bucket: TableBucket) -> int:
    """The registered offset of a bucket; 0 if it was never tiered."""
    return seen.registered.offsets.get(bucket, 0) if seen.registered else 0


def _with_unknown(found: Diagnosis, why: str) -> Diagnosis:
    note = f"whether the last round failed is not known: {why}"
    return replace(found, advice=(*found.advice, note))
