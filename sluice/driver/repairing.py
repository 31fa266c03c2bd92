"""`sluice repair`: a table and its lake looked at, and put right on a person's word."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass

from sluice.checks.lake import check_lake
from sluice.client import connect
from sluice.client.client import Client
from sluice.clock import Clock, SystemClock
from sluice.config import Config
from sluice.driver.jvm import Jvm, check_jvm
from sluice.driver.local import tier_once
from sluice.errors import FlussError, LakeRolledBack, TableNotDue
from sluice.lake.iceberg_catalog import IcebergLake
from sluice.model import TablePath
from sluice.rounds.files import RoundResult
from sluice.rounds.mend import Mend
from sluice.rounds.progress import Progress
from sluice.rounds.repair import REGISTER, Diagnosis, Way, diagnose, look, set_right

_POLL_S = 0.5
_MENDS = {mend.value: mend for mend in Mend}


@dataclass(frozen=True, slots=True)
class Repaired:
    """What was found, and what was done about it."""

    found: Diagnosis
    way: Way | None = None
    """None: nothing was wrong."""
    notes: tuple[str, ...] = ()
    result: RoundResult | None = None
    """Of the round, where the way is one."""


def examine(config: Config, path: TablePath, jvm: Jvm | None = None) -> Diagnosis:
    """What is wrong with a table's tiering, and what can be done; changes nothing.

    :param jvm: one that runs already; else one is started and ended here.
    :raises TableNotExist: Fluss has no such table.
    :raises UnsupportedLakeOption: rounds refuse it, and nothing of it was ever tiered.
    """
    with _opened(config, jvm) as (client, lake, _):
        return diagnose(look(path, client.tiering, lake), client.tiering)


def repair(
    config: Config,
    path: TablePath,
    by: str | None = None,
    *,
    wait_ms: int = 0,
    progress: Progress | None = None,
    clock: Clock | None = None,
    jvm: Jvm | None = None,
) -> Repaired:
    """Puts it right by the way named, or by the best one if that loses nothing.

    A move of main compares and swaps. Every other way is a round, with its claim and its fence.

    :param wait_ms: how long to wait until the coordinator hands the table out for a round.
    :raises LakeRolledBack: that way is not open, or none is without loss; says which are.
    :raises LakeCommitRefused: the lake has changed since it was looked at; nothing was done.
    :raises TableNotDue: the table was not handed out in time.
    """
    with _opened(config, jvm) as (client, lake, java):
        seen = look(path, client.tiering, lake)
        found = diagnose(seen, client.tiering)
        if found.healthy:
            return Repaired(found)
        way = choose(found, by)
        if way.name not in _MENDS and way.name != REGISTER:
            return Repaired(found, way, tuple(set_right(way, seen)))
        with suppress(FlussError, TableNotDue):  # not to wait; not every server or user may
            client.admin.retry_tiering(path)
            client.admin.tier_again(path)
        deadline_s = (clock := clock or SystemClock()).monotonic_s() + wait_ms / 1000
        while True:
            try:
                mend = _MENDS.get(way.name)
                result = tier_once(config, path, progress=progress, jvm=java, mend=mend)
                return Repaired(found, way, result.notes, result)
            except TableNotDue:
                if clock.monotonic_s() >= deadline_s:
                    raise
            clock.sleep(_POLL_S)


def choose(found: Diagnosis, by: str | None) -> Way:
    """:raises LakeRolledBack: that way is not open; or none was named, and none is without loss."""
    names = [way.name for way in found.ways]
    if by is None and found.recommended is not None:
        return found.recommended
    if by is None and names:
        raise LakeRolledBack(
            f"table {found.table}: no way out is without loss. Name the one you want: --by"
            f" {' or --by '.join(names)}",
            table=found.table,
        )
    for way in found.ways:
        if way.name == by:
            return way
    open_ways = f"these are: {', '.join(names)}" if names else "there is none"
    wanted = f"{by} is not open" if by else "nothing can be done by this command"
    raise LakeRolledBack(
        f"table {found.table}: {wanted}; {open_ways}. {found.state}", table=found.table
    )


@contextmanager
def _opened(config: Config, jvm: Jvm | None) -> Iterator[tuple[Client, IcebergLake, Jvm]]:
    check_lake(config)
    if jvm is None:
        check_jvm(config.tiering.jars)
    with (
        connect(config.client) as client,
        nullcontext(jvm) if jvm is not None else Jvm(config.tiering.jars) as java,
        closing(IcebergLake(java.gateway, config.datalake.iceberg, config.tiering)) as lake,
    ):
        yield client, lake, java
