"""What a run was asked for, and the tables that a user wants now. Does not import Airflow."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sluice.errors import FlussError, NetworkError, RequestTimeOut, TableNotDue, TableNotExist
from sluice.masking import mask
from sluice.model import Claim, TablePath, TieringStatus
from sluice.model.patterns import is_pattern
from sluice.quantities import counted
from sluice.rounds.records.plan_file import PlanFile
from sluice.rounds.records.run_names import RunName, RunNames, write_run_name
from sluice.statuses import State
from sluice_airflow.acquire.acquire import acquire, requested_tables
from sluice_airflow.acquire.earlier_packs import NOTHING_EARLIER, Earlier, write_packs
from sluice_airflow.claims.claims import claimed_table
from sluice_airflow.claims.packs import TASKS_MAX, Pack, PackLimits, pack_tables
from sluice_airflow.claims.run_end import RunEnd
from sluice_airflow.config.connection import FlussConnection
from sluice_airflow.outcomes.account import (
    HELD,
    NOT_DUE,
    NOTHING_NEW,
    REFUSED,
    SHOWN_MAX,
    WOULD_TIER,
    TableAccount,
    of_status,
    tell,
)

if TYPE_CHECKING:
    from sluice.client import Client
    from sluice.client.tiering.idle import Waiting

log = logging.getLogger(__name__)

HELD_S = 600.0
"""How long a run waits for tables that other workers tier. These commit at the table's freshness,
and a claim without heartbeats ends after two minutes."""
HELD_POLL_S = 5.0
HARMLESS = frozenset({NOTHING_NEW, NOT_DUE, WOULD_TIER})
"""What need not be named if it is said of many tables."""
ESTIMATE = " (an estimate: this cluster does not report due times)"
ONE_BY_ONE_MAX = 20
"""The statuses of so many tables are read one by one, those of more tables together."""


@dataclass(frozen=True, slots=True)
class Request:
    """The parameters of a run that choose its tables."""

    patterns: Sequence[str]
    tables_max: int
    force: bool = False
    wait: bool = False
    dry_run: bool = False
    is_manual: bool = False
    """Whether a person or a program triggered the run, and not its schedule."""
    run: RunName | None = None
    """The run that asks."""
    earlier: Earlier = NOTHING_EARLIER
    """What earlier tries of the task have left, if a user has cleared it."""

    @property
    def names(self) -> list[str]:
        """The tables that a person asked for by name: these must be tiered, whatever is due."""
        return [name for name in self.patterns if not is_pattern(name)] if self.is_manual else []

    def is_forced(self, path: TablePath) -> bool:
        """Whether the table is tiered even if it is not due. A clear tiers only what is left."""
        if str(path) in self.earlier.settled:
            return False
        return self.force or self.is_wanted(path) or str(path) in self.earlier.unfinished

    def is_wanted(self, path: TablePath) -> bool:
        """Whether the run fails unless the table is tiered up to its present end."""
        return self.wait or str(path) in self.names


@dataclass(frozen=True, slots=True)
class Acquired:
    """The packs of a run, and the account of the tables that are in no pack."""

    packs: list[Pack] = field(default_factory=list)
    account: list[TableAccount] = field(default_factory=list)
    wanted: list[str] = field(default_factory=list)
    """Tables without which the run fails."""

    def to_xcom(self, *, names: bool) -> dict[str, Any]:
        """The account for drop_lease. Idle tables, and those that are not due, may be many.

        :param names: whether each of them is named, or only counted.
        """
        room = SHOWN_MAX if names else 0
        shown: list[TableAccount] = []
        counts: Counter[str] = Counter()
        for one in self.account:
            is_harmless = one["became"] in HARMLESS and one["table"] not in self.wanted
            if one["became"] != NOTHING_NEW and not is_harmless:
                shown.append(one)
            elif room > 0:
                room -= 1
                shown.append(one)
            else:
                counts[one["became"]] += 1
        idle = {one["table"] for one in self.account if one["became"] == NOTHING_NEW}
        wanted = [name for name in self.wanted if name not in idle]
        found: dict[str, Any] = {"tables": shown, "wanted": wanted}
        return found | ({"counts": dict(counts)} if counts else {})


def acquire_request(
    client: Client,
    connection: FlussConnection,
    job: str,
    request: Request,
    limits: PackLimits,
    slots: int,
    heartbeat_interval_s: float,
    held_s: float = HELD_S,
    tasks_max: int = TASKS_MAX,
) -> Acquired:
    """Claims the tables that a run was asked for, and packs them.

    :param slots: Spark applications that run at the same time.
    :param tasks_max: most applications of a run: Airflow's ``core.max_map_length``.
    :param held_s: how long to wait for tables that another worker tiers, if the run must tier them.
    :raises TableNotExist, ConfigurationError: as :func:`sluice_airflow.acquire.acquire.acquire`.
    """
    requested = requested_tables(client, request.patterns)
    if requested is None and request.names:  # beside a * for all tables
        requested_tables(client, request.names)  # each of them must exist
        requested = client.statuses.lake_tables()
    if request.dry_run:
        paths = client.statuses.lake_tables() if requested is None else requested
        found = dry_run(client, connection, request, paths, limits, slots)
        return Acquired(account=found)
    if (request.force or request.wait) and requested is None:
        requested = client.statuses.lake_tables()
    end = RunEnd(connection.require_work_uri(), job)
    own = {claim.path for claim in client.tiering.claims_of(job)}  # of a killed try
    asked = dict.fromkeys([*(requested or ()), *map(TablePath.parse, request.earlier.unfinished)])
    forced = [p for p in asked if request.is_forced(p) and p not in own]
    names = RunNames(connection.work_uri)
    blocked = make_due(client, forced, request.is_wanted, held_s, names.of)
    told = {str(path): one for path, one in blocked.items()}
    entries = acquire(
        client,
        connection,
        job,
        request.patterns,
        request.tables_max,
        heartbeat_interval_s,
        lambda claim, why: told.update({str(claim.path): tell(claim.path, REFUSED, str(why))}),
        lambda claim: told.update({str(claim.path): tell(claim.path, NOTHING_NEW)}),
        request.is_wanted,
        request.earlier.has,
        end,
    )
    if entries and request.run is not None:
        write_run_name(connection.require_work_uri(), job, request.run)
    claimed = {entry["table"] for entry in entries}
    found = [one for name, one in told.items() if name not in claimed]
    if asked:
        count = len(entries) + sum(one["became"] == REFUSED for one in told.values())
        most = request.tables_max if count >= request.tables_max else None
        known = {*claimed, *told}
        found += unclaimed(client, [*asked], known, {*forced}, names.of, most)
    found = request.earlier.account(found, claimed)
    packs = pack_tables(entries, limits, slots, tasks_max - len(request.earlier.kept))
    applications = counted(len(packs), "Spark application")
    log.info("%s in %s", counted(len(entries), "table"), applications)
    packs = request.earlier.place(packs)
    if packs or request.earlier is not NOTHING_EARLIER:
        write_packs(connection.require_work_uri(), job, packs, request.earlier)
    wanted = [str(path) for path in requested or () if request.is_wanted(path)]
    return Acquired(packs, found, wanted)


def make_due(
    client: Client,
    paths: Sequence[TablePath],
    is_wanted: Callable[[TablePath], bool] = lambda _path: False,
    held_s: float = HELD_S,
    name_of: Callable[[str], str] = str,
) -> dict[TablePath, TableAccount]:
    """Makes tables due. Returns those that cannot be tiered now, with the reason.

    A paused table stays paused. The round of another worker is never ended; a wanted table waits
    for its end.

    :param held_s: the longest such wait, in seconds.
    :param name_of: as of :func:`sluice_airflow.outcomes.account.of_status`.
    """
    until = time.monotonic() + held_s
    blocked: dict[TablePath, TableAccount] = {}
    left = list(paths)
    while left:
        found = _make_due_once(client, left, name_of)
        blocked = {path: one for path, one in blocked.items() if path not in left} | found
        left = [p for p, one in found.items() if one["became"] == HELD and is_wanted(p)]
        if not left or time.monotonic() >= until:
            return blocked
        count = counted(len(left), "table")
        log.info("waiting for other workers: they tier %s, such as %s", count, left[0])
        time.sleep(min(HELD_POLL_S, held_s))
    return blocked


def _make_due_once(
    client: Client,
    paths: Sequence[TablePath],
    name_of: Callable[[str], str],
) -> dict[TablePath, TableAccount]:
    blocked: dict[TablePath, TableAccount] = {}
    now_ms = int(time.time() * 1000)
    for status in statuses_of(client, paths):
        if not _is_free(status):
            blocked[status.path] = of_status(status, now_ms, name_of)
            continue
        try:
            client.statuses.request_round(status.path)  # its failures stay counted
            log.info("%s: made due", status.path)
        except TableNotDue as error:  # Apache Fluss: a worker has it, or it cannot be made due
            blocked[status.path] = refused_to_be_due(status.path, error, name_of)
        except TableNotExist as error:
            blocked[status.path] = tell(status.path, NOT_DUE, f"the table was dropped: {error}")
        except (NetworkError, RequestTimeOut):
            raise  # the coordinator is away: not one time limit for each table
        except FlussError as error:  # of this table; the others can be tiered
            why = f"it cannot be made due: {type(error).__name__}: {mask(str(error))}"
            blocked[status.path] = tell(status.path, REFUSED, why)
    return blocked


def refused_to_be_due(
    path: TablePath, error: TableNotDue, name_of: Callable[[str], str]
) -> TableAccount:
    """The account of a table that could not be made due on Apache Fluss."""
    epoch, by = error.details.get("tiering_epoch"), error.details.get("claimed_by")
    if epoch is None:
        return tell(path, NOT_DUE, str(error))
    worker = name_of(by) if by else "a worker that records no status in this cluster"
    text = f"{worker} tiers it (tiering epoch {epoch})"
    left_s = error.details.get("free_within_s")
    if left_s is not None:
        text += f"; if that worker is dead, Fluss frees the table within {left_s} s"
    return tell(path, HELD, text)


def unclaimed(
    client: Client,
    paths: Collection[TablePath],
    known: Collection[str],
    made_due: Collection[TablePath] = (),
    name_of: Callable[[str], str] = str,
    tables_max: int | None = None,
) -> list[TableAccount]:
    """Why the run has not claimed tables that it was asked for.

    :param paths: all tables that it was asked for.
    :param known: the names of those whose account is known.
    :param made_due: the tables that the run has made due before it claimed.
    :param name_of: as of :func:`sluice_airflow.outcomes.account.of_status`, like ``tables_max``.
    """
    left = [path for path in paths if str(path) not in known]
    now_ms = int(time.time() * 1000)
    found: list[TableAccount] = []
    try:
        for status in statuses_of(client, left):
            one = of_status(status, now_ms, name_of, tables_max)
            if one["became"] == NOT_DUE and status.path in made_due and tables_max is None:
                # Apache Fluss does not tell who has a table.
                why = "it was made due, but not assigned to this run; another worker may have it"
                one = tell(status.path, HELD, why)
            found.append(one)
    except FlussError as error:
        log.warning("the statuses of %d tables cannot be read: %s", len(left), mask(str(error)))
    return found


def dry_run(
    client: Client,
    connection: FlussConnection,
    request: Request,
    paths: Sequence[TablePath],
    limits: PackLimits,
    slots: int,
) -> list[TableAccount]:
    """What the run would tier now, without claiming anything."""
    now_ms = int(time.time() * 1000)
    found: list[TableAccount] = []
    due: list[Claim] = []
    names = RunNames(connection.work_uri)
    for status in statuses_of(client, paths):
        if _is_due(status, now_ms) or (request.is_forced(status.path) and _is_free(status)):
            due.append(Claim(status.table_id, status.path, status.tiering_epoch, 0))
        else:
            found.append(of_status(status, now_ms, names.of))
    is_estimate = client.statuses.are_estimates()
    with client.idle_check() as check:
        waiting = check.check(due)
    # Without statuses of the cluster, only a claim shows whether a complete round is due.
    idle = [c for c in due if waiting[c].is_idle or (is_estimate and waiting[c].rows == 0)]
    left = [claim for claim in due if claim not in set(idle)]
    due, over = left[: request.tables_max], left[request.tables_max :]
    reached = f"it is due, but max_tables ({request.tables_max}) is reached before"
    found += [tell(claim.path, NOT_DUE, reached) for claim in over]
    found += [tell(claim.path, NOTHING_NEW, "no rows, no Spark application") for claim in idle]
    plans = [PlanFile(claim, "", "", rows=waiting[claim].rows) for claim in due]
    packs = pack_tables([claimed_table(plan, "") for plan in plans], limits, slots)
    number = {t["table"]: n for n, pack in enumerate(packs, 1) for t in pack["tables"]}
    for claim in due:
        text = f"{_size_of(waiting[claim])}, application {number[str(claim.path)]} of {len(packs)}"
        found.append(tell(claim.path, WOULD_TIER, text))
    for one in found if is_estimate else ():
        if one["became"] in (WOULD_TIER, NOTHING_NEW, NOT_DUE):
            one["text"] += ESTIMATE
    return found


def _size_of(waiting: Waiting) -> str:
    if waiting.rows is None:
        return "an unknown number of rows"
    if not waiting.rows:
        return "no rows, but a complete round is due"
    return f"{counted(waiting.rows, 'row')} in {counted(waiting.buckets, 'bucket')}"


def statuses_of(client: Client, paths: Sequence[TablePath]) -> list[TieringStatus]:
    """The statuses of these tables, without lags; dropped tables are left out."""
    if len(paths) > ONE_BY_ONE_MAX:
        wanted = set(paths)
        return [s for s in client.statuses.list(lags=False) if s.path in wanted]
    return [status for path in paths for status in _statuses_of(client, path)]


def _statuses_of(client: Client, path: TablePath) -> Iterable[TieringStatus]:
    try:
        return client.statuses.list(path, lags=False)
    except TableNotExist:
        return ()


def _is_free(status: TieringStatus) -> bool:
    return not status.paused and status.status != State.TIERING.value


def _is_due(status: TieringStatus, now_ms: int) -> bool:
    is_time = status.next_attempt_ms is not None and status.next_attempt_ms <= now_ms
    return _is_free(status) and (status.status == State.PENDING.value or is_time)
