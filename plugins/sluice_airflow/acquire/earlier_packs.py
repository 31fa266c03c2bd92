"""The packs of an earlier try of acquire_lease. Does not import Airflow.

    <work_uri>/<lease id>/packs/acquired.json

Airflow pairs a tier task with a pack by its index. A user who clears one tier task clears
acquire_lease with it, but no other tier task. So the packs of the others keep their indexes, and
tables that are claimed again get the indexes of cleared tasks, or new ones.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sluice.model import Claim
from sluice.rounds.records.json_files import VERSION, read_json, write_json
from sluice.rounds.records.plan_file import claim_of
from sluice_airflow.airflow_api.task_states import ENDED
from sluice_airflow.claims.claimed_again import newest_claim
from sluice_airflow.claims.claims import ClaimedTable
from sluice_airflow.claims.packs import Pack, tables_of
from sluice_airflow.claims.unreadable import logged
from sluice_airflow.outcomes.account import HELD, NOT_DUE, NOT_TIERED, TableAccount, tell
from sluice_airflow.outcomes.settle import is_tiered

WILL_RUN = frozenset({None, "restarting", "removed"})
"""States of a tier task that Airflow starts after acquire_lease, with whatever pack it gets. Any
other task has ended, runs, or waits with the pack that it had."""
NOTHING_LEFT = "no tables"


@dataclass(frozen=True, slots=True)
class Earlier:
    """What earlier tries of acquire_lease have left to this one."""

    kept: Mapping[int, Pack] = field(default_factory=dict)
    """By index: the packs of tier tasks that do not run again, or that run already."""
    claims: frozenset[Claim] = frozenset()
    """The claims of these packs."""
    busy: frozenset[str] = frozenset()
    """The tables of those that run or wait: their tasks may take new claims at any time."""
    unfinished: tuple[str, ...] = ()
    """The tables of the other packs that the run has not tiered: a user wants them again."""
    finished: tuple[str, ...] = ()
    """Those of the other packs that it has tiered."""

    @classmethod
    def read(cls, work_uri: str, lease_id: str, states: Mapping[int, str | None]) -> Earlier:
        """:param states: the states of the tier tasks, by index."""
        packs, finished, unfinished = _read(work_uri, lease_id)
        kept = {i: pack for i, pack in enumerate(packs) if states.get(i) not in WILL_RUN}
        claims = {claim for entry in tables_of(kept.values()) for claim in _claims(entry)}
        at_work = [pack for i, pack in kept.items() if states.get(i) not in ENDED]
        busy = {entry["table"] for entry in tables_of(at_work)}
        cleared = tables_of(pack for i, pack in enumerate(packs) if i not in kept)
        tables = dict.fromkeys([*unfinished, *(entry["table"] for entry in cleared)])
        done = {*finished, *(entry["table"] for entry in cleared if is_tiered(entry))}
        left = tuple(table for table in tables if table not in done)
        return cls(kept, frozenset(claims), frozenset(busy), left, tuple(sorted(done)))

    @property
    def settled(self) -> frozenset[str]:
        """The tables that this try does not force: they are tiered, or have other tasks."""
        return frozenset({*self.finished, *(e["table"] for e in tables_of(self.kept.values()))})

    def account(
        self, found: Iterable[TableAccount], claimed: Collection[str]
    ) -> list[TableAccount]:
        """Completes the account of tables that this try has not claimed.

        What the run has not tiered before, and does not tier now, fails it. drop_lease reads the
        results of what it has tiered.
        """
        told = {one["table"]: one for one in found}
        for table in self.unfinished:
            one = told.get(table) or tell(table, NOT_TIERED, "its status cannot be read")
            if table not in claimed and one["became"] in (NOT_DUE, HELD, NOT_TIERED):
                told[table] = tell(table, NOT_TIERED, f"{one['became']}: {one['text']}")
        for table in self.finished:
            if table not in claimed and table not in told:
                told[table] = tell(table, NOT_DUE, "this run has tiered it before")
        return [*told.values()]

    def has(self, claim: Claim) -> bool:
        """Whether a task with a kept pack has this claim of the run."""
        return claim in self.claims or str(claim.path) in self.busy

    def place(self, packs: Sequence[Pack]) -> list[Pack]:
        """Gives each new pack an index that no kept pack has.

        An index between them without a pack gets one without tables. A table of a kept pack that
        was claimed again is in its new pack only.
        """
        again = {entry["table"] for entry in tables_of(packs)}
        new = iter(packs)
        placed: list[Pack] = []
        for index in range(max(self.kept, default=-1) + 1):
            if index in self.kept:
                pack = self.kept[index]
                left = [entry for entry in pack["tables"] if entry["table"] not in again]
                placed.append(Pack(label=pack["label"], tables=left))
            else:
                placed.append(next(new, Pack(label=NOTHING_LEFT, tables=[])))
        return [*placed, *new]


NOTHING_EARLIER = Earlier()


def write_packs(work_uri: str, lease_id: str, packs: Sequence[Pack], earlier: Earlier) -> None:
    """Keeps the packs for a later try. It logs an error: only a clear of the task needs them."""
    known = {entry["table"] for entry in tables_of(packs)}
    content = {
        "version": VERSION,
        "packs": list(packs),
        "finished": [table for table in earlier.finished if table not in known],
        "unfinished": [table for table in earlier.unfinished if table not in known],
    }
    with logged(f"keep the packs of this run in {work_uri}"):
        write_json(_uri(work_uri, lease_id), content)


def _read(work_uri: str, lease_id: str) -> tuple[list[Pack], list[str], list[str]]:
    """The packs, and the tables before them that the run has tiered, and has not tiered."""
    with logged("read the earlier packs of this run"):
        content = read_json(_uri(work_uri, lease_id)) or {}
        if content.get("version") == VERSION:
            packs = [Pack(label=pack["label"], tables=pack["tables"]) for pack in content["packs"]]
            return packs, list(content["finished"]), list(content["unfinished"])
    return [], [], []


def _claims(entry: ClaimedTable) -> Iterable[Claim]:
    """The claim of a table, and the newest one of the run in its place."""
    yield claim_of(entry)
    with logged(f"read whether {entry['table']} was claimed again"):
        yield claim_of(newest_claim(entry))


def _uri(work_uri: str, lease_id: str) -> str:
    return f"{work_uri.rstrip('/')}/{lease_id}/packs/acquired.json"
