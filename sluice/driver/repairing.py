"""What `sluice repair` does: it diagnoses a table and its lake table, and applies one action."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from sluice.client import connect
from sluice.client.client import Client
from sluice.clock import Clock, SystemClock
from sluice.config import Config
from sluice.driver.lakes.jvm import Jvm
from sluice.driver.lakes.open_lake import checked_jvm, usable_lake
from sluice.driver.last_failure import (
    BatchName,
    diagnose_batch,
    diagnose_batch_behind,
    with_batch_behind,
    with_last_failure,
)
from sluice.driver.local import tier_once
from sluice.errors import (
    ClaimLost,
    ConfigurationError,
    FlussError,
    TableNotDue,
    TableNotExist,
)
from sluice.lake.iceberg.lake import IcebergLake
from sluice.model import TablePath
from sluice.rounds.commit.failures import WITH_LAKE
from sluice.rounds.records.result import RoundResult
from sluice.rounds.repair.diagnose import (
    REGISTER,
    RETIER,
    apply_action,
    diagnose,
    read_table_state,
)
from sluice.rounds.repair.diagnosis import Diagnosis, RepairAction, TableState
from sluice.rounds.repair.request import RepairRequest
from sluice.rounds.values.progress import Progress
from sluice.rounds.values.types import BUCKET_MODES, OffsetRange, RepairMode
from sluice.stop_signals import explain_stop, signals_deferred

_POLL_S = 0.5
_REPAIR_MODES = {mode.value: mode for mode in RepairMode}


@dataclass(frozen=True, slots=True)
class RepairResult:
    """The diagnosis, the action that was applied, and its result."""

    diagnosis: Diagnosis
    action: RepairAction | None = None
    """None: the table was healthy."""
    notes: tuple[str, ...] = ()
    result: RoundResult | None = None
    """The result of the round, if the action was a round."""

    @property
    def repaired_nothing(self) -> bool:
        """Whether a round that was to repair buckets found that nothing was left to repair.

        A round that an earlier attempt had committed does not count the repaired buckets.
        """
        if self.action is None or self.result is None or self.result.outcome == "already_landed":
            return False
        if _REPAIR_MODES.get(self.action.name) not in BUCKET_MODES:
            return False
        return not self.result.repaired_buckets


def diagnose_table(
    config: Config, path: TablePath, jvm: Jvm | None = None, skip: BatchName | None = None
) -> Diagnosis:
    """Finds what keeps a table from being tiered and which actions repair it; changes nothing.

    :param skip: a batch that cannot be read, as the user named it.
    :param jvm: a running JVM to use; None: this function starts one and ends it.
    :raises TableNotExist: Fluss has no such table.
    :raises UnsupportedLakeOption: rounds refuse an option of the table, and it was never tiered.
    :raises ConfigurationError: no unreadable batch begins at the named offset.
    """
    with _opened(config, jvm) as (client, lake, _):
        seen = read_table_state(path, client.tiering, lake)
        return _diagnosis(client, seen, skip)[0]


def repair(
    config: Config,
    path: TablePath,
    by: str | None = None,
    *,
    skip: BatchName | None = None,
    wait_ms: int = 0,
    progress: Progress | None = None,
    clock: Clock | None = None,
    jvm: Jvm | None = None,
    on_result: Callable[[RepairResult], object] = lambda _: None,
) -> RepairResult:
    """Repairs a table by the named action, or by the best one if that loses nothing.

    Setting main is a compare-and-swap. Every other action is a round, with its claim and its fence.

    :param by: the name of the action; None: the best one, which must lose nothing, or to skip a
        batch of a log table.
    :param skip: a batch that cannot be read, as the user named it.
    :param wait_ms: how long to wait until the coordinator assigns the table for a round.
    :param on_result: called with the result, also if a signal then prevents the return.
    :raises ConfigurationError: the named action is not available; the message lists those that are.
    :raises LakeError, RoundError: no action was named and every one loses something; the message
        lists them.
    :raises LakeCommitRefused: the lake table has changed since it was read; nothing was done.
    :raises TableNotDue: the coordinator did not assign the table in time.
    """
    with _opened(config, jvm) as (client, lake, java):
        seen = read_table_state(path, client.tiering, lake)
        found, unreadable = _diagnosis(client, seen, skip)
        if found.healthy:
            on_result(done := RepairResult(found))
            return done
        action = choose_action(found, by, skip)
        if action.name not in _REPAIR_MODES and action.name != REGISTER:
            return apply_now(found, action, seen, on_result)
        with suppress(FlussError, TableNotDue):  # saves time; not every server or user may do it
            client.statuses.retry(path)
            client.statuses.request_round(path)
        deadline_s = (clock := clock or SystemClock()).monotonic_s() + wait_ms / 1000
        while True:
            try:
                mode = _REPAIR_MODES.get(action.name)
                result = tier_once(
                    config,
                    path,
                    progress=progress,
                    jvm=java,
                    repair=RepairRequest(mode, unreadable, action) if mode else None,
                    command="sluice repair",
                    on_result=lambda result: on_result(_of_round(found, action, result)),
                )
                return _of_round(found, action, result)
            except TableNotDue as error:
                if clock.monotonic_s() >= deadline_s or not error.details.get("waits"):
                    raise
            clock.sleep(_POLL_S)


def apply_now(
    found: Diagnosis,
    action: RepairAction,
    seen: TableState,
    on_result: Callable[[RepairResult], object],
) -> RepairResult:
    """Sets main or the tag. Signals wait, but a second Ctrl-C does not.

    :raises KeyboardInterrupt: a note says whether the lake table was changed.
    """
    done = None
    try:
        with signals_deferred():
            done = RepairResult(found, action, tuple(apply_action(action, seen)))
            on_result(done)
    except KeyboardInterrupt as stop:  # the second Ctrl-C, or a signal that waited
        unknown = (
            " during the repair: whether it changed the lake table is unknown."
            f" `sluice repair {found.table}` {WITH_LAKE} shows it"
        )
        explain_stop(stop, " after the repair" if done else unknown)
        raise
    return done


def _of_round(found: Diagnosis, action: RepairAction, result: RoundResult) -> RepairResult:
    return RepairResult(found, action, result.notes, result)


def _diagnosis(
    client: Client, seen: TableState, skip: BatchName | None
) -> tuple[Diagnosis, OffsetRange | None]:
    """The diagnosis, and the batch that the user named if the diagnosis is about it.

    :raises TableNotExist: the table was dropped meanwhile.
    """
    try:
        found = diagnose(seen, client.tiering)
        if any(action.name == RETIER for action in found.actions):
            if skip is None:
                return with_batch_behind(client, seen, found), None
            return diagnose_batch_behind(client, seen, found, skip)
    except ClaimLost as dropped:
        raise TableNotExist(str(dropped)) from None
    if not found.healthy:
        return found, None
    if skip is None:
        return with_last_failure(client, seen, found), None
    return diagnose_batch(client, seen, skip)


def choose_action(found: Diagnosis, by: str | None, skip: BatchName | None = None) -> RepairAction:
    """The action to apply: the named one, or the recommended one.

    :param by: the name of an action; None: the recommended one, or to skip a batch of a log table.
    :param skip: the batch that the user named.
    :raises ConfigurationError: the named action is not available, or the table needs another repair
        before the batch, or the last round failed at a batch that ``skip`` does not name.
    :raises LakeError, RoundError: none was named and every one loses something: ``found.error``.
    """
    names = [action.name for action in found.actions]
    if skip is None and found.batch:
        next_step = f"Name the batch to repair it: run {found.commands()} {WITH_LAKE}"
        if not names:
            next_step = f"No repair is possible yet: {'; '.join(found.advice)}"
        raise ConfigurationError(f"table {found.table}: {found.state}. {next_step}")
    if skip is not None and not found.batch:
        first = f"First run {found.commands()}" if names else "`sluice repair` has no repair for it"
        raise ConfigurationError(
            f"--skip {skip[0]}:{skip[1]}: table {found.table} has another problem: {found.state}."
            f" {first}"
        )
    if by is None and found.unnamed is not None:
        return found.unnamed
    if by is None and names and found.batch:
        raise ConfigurationError(
            f"--skip {found.batch}: choose the repair: {found.commands()}. `sluice repair"
            f" {found.table} --skip {found.batch}` shows what each does"
        )
    if by is None and names:
        raise found.error(
            f"table {found.table}: every available repair loses something or may do so. Choose one:"
            f" --by {' or --by '.join(names)}",
            table=found.table,
        )
    if by is None:
        raise found.error(
            f"table {found.table}: `sluice repair` has no repair for this state: {found.state}",
            table=found.table,
        )
    for action in found.actions:
        if action.name == by:
            return action
    if names:
        available = f"Use --by {' or --by '.join(names)}"
    else:
        available = f"No repair is; `sluice repair {found.table}` shows the details"
    raise ConfigurationError(
        f"--by {by} is not available for table {found.table}: {found.state}. {available}"
    )


@contextmanager
def _opened(config: Config, jvm: Jvm | None) -> Iterator[tuple[Client, IcebergLake, Jvm]]:
    jvm_context = checked_jvm(config, jvm)
    with (
        connect(config.client) as client,
        jvm_context as java,
        usable_lake(config, java.gateway) as lake,
    ):
        yield client, lake, java
