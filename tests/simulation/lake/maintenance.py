"""Other writers who maintain a primary-key table beside rounds, as Spark's procedures do.

A procedure plans from one snapshot and commits later; other actors run in between. Iceberg refuses
its commit if a file that it removes is gone. It also refuses one that replaces data files of which
rows were deleted by position since. Equality deletes since then are no conflict: rewritten rows
keep the sequence number of the planned snapshot, so those deletes still apply to them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from sluice.model import TablePath
from sluice.rounds.values.lake_files import DataFile, LiveFiles
from tests.simulation.actors import Actor
from tests.simulation.lake.rewrites import (
    Change,
    Group,
    dangling,
    group_of,
    has_format,
    marks_file,
    rewrite_conflict,
    rewritten,
    unknown_since,
    update_conflict,
    updated,
)
from tests.simulation.lake.stored_lake import SimLake, SimTable

_AT_ONCE_MAX = 2
"""Most procedures that run at once."""
_VECTORS, _UPGRADED = 0.35, 0.15
"""How many seeds have tables with deletion vectors from the beginning, and from some time on."""
_APART = 0.3
"""How many merges of positions write one file for each data file."""
_REMOVES_DANGLING = 0.5
"""How many rewrites remove the deletes that apply to no row any more, in a second commit."""
_EXPIRES = 0.4
"""How many rewrites are followed by an expiry of snapshots."""
_EXPIRES_LISTED = 0.25
"""How much less often others expire what a round has listed than they rewrite what it marks."""
_WORK_STEPS = (0, 0, 20, 60)
"""How long a rewrite takes: some end after the next round."""
_SLOW = 0.5
"""How many rewrites that land just before a commit began some snapshots ago, if one may land."""
_KEEPS_NUMBER = 0.85
"""How many rewrites keep the sequence number of their snapshot, which is Spark's default."""


@dataclass(frozen=True, slots=True)
class Habits:
    """What other writers do in one seed."""

    as_vectors: bool = False
    """Whether tables are created with deletion vectors."""
    upgrades: bool = False
    """Whether somebody upgrades tables to deletion vectors."""
    often: float = 0.0
    """How likely a procedure begins in a turn."""
    storm: float = 0.0
    """How likely somebody rewrites a data file just before a round reads it or marks its rows."""


NOBODY = Habits()


def draw_habits(seed: int) -> Habits:
    """Draws what others do to the primary-key tables of a seed."""
    rng = random.Random(f"others {seed}")
    form, storm = rng.random(), rng.random()
    return Habits(
        form < _VECTORS,
        _VECTORS <= form < _VECTORS + _UPGRADED,
        rng.choice((0.0, 0.02, 0.05)),
        0.8 if storm < 0.12 else 0.15 if storm < 0.5 else 0.0,
    )


@dataclass(frozen=True, slots=True)
class _Job:
    """A procedure that runs."""

    actor: Actor
    path: TablePath
    table: SimTable


@dataclass
class Maintenance:
    """The procedures of one simulation."""

    seed: int
    habits: Habits
    lake: SimLake
    note: Callable[[str], None]
    step: Callable[[Actor, str], None]
    may_expire: Callable[[TablePath], bool]
    """Whether snapshots of a table may expire now: not those that a repair may need."""

    def __post_init__(self) -> None:
        self._rng = random.Random(f"maintenance {self.seed}")
        self._running: list[Actor] = []

    def is_due(self) -> bool:
        """Whether a procedure begins in this turn."""
        self._running = [actor for actor in self._running if not actor.done]
        if not self.habits.often or len(self._running) >= _AT_ONCE_MAX:
            return False
        return self._rng.random() < self.habits.often

    def procedure(self, path: TablePath) -> Callable[[Actor], None]:
        """A procedure on a table, as an actor's body."""
        procedures = [self._rewrite] * 5
        procedures += [self._merge_positions, self._expire, self._update] * 2
        procedures += [self._upgrade] if self.habits.upgrades else []
        chosen = self._rng.choice(procedures)

        def body(actor: Actor) -> None:
            self._running.append(actor)
            self.step(actor, "others plan")
            table = self.lake.tables.get(path)
            if table is not None and table.main is not None:
                chosen(_Job(actor, path, table))

        return body

    def before_commit(self, path: TablePath, files: Sequence[DataFile]) -> None:
        """Perhaps rewrites a data file whose rows a round is about to delete by position."""
        table = self.lake.tables.get(path)
        named = sorted({mark.data_file for file in files for mark in file.marks})
        if table is None or not named or self._rng.random() >= self.habits.storm:
            return
        chosen = self._rng.choice(named)
        if chosen in table.paths():
            self.note("data file rewritten before a commit")
            if self._rng.random() >= _SLOW or not self._end_slow_rewrite(table, chosen):
                self._rewrite_now(table, chosen)

    def after_listing(self, path: TablePath, live: LiveFiles) -> None:
        """Perhaps rewrites a data file that a round is about to read, and expires all snapshots.

        The tag of the newest round protects its data files, so the file is another writer's.
        """
        table = self.lake.tables.get(path)
        often = self.habits.storm * _EXPIRES_LISTED
        if table is None or self._rng.random() >= often or not self.may_expire(path):
            return
        own = table.paths() - table.paths_at(table.tagged)
        listed = {file.path for bucket in live.buckets.values() for file in bucket.files}
        if chosen := sorted(own & listed):
            self.note("data file expired before it was read")
            self._rewrite_now(table, self._rng.choice(chosen))
            table.delete_files(table.expired_files(table.old_snapshots()))

    def _rewrite_now(self, table: SimTable, data_file: str) -> None:
        change = rewritten(table, group_of(table, [data_file]), keeps_number=True)
        table.change_files(change.removed, change.added, change.operation)

    def _end_slow_rewrite(self, table: SimTable, data_file: str) -> bool:
        """Ends a rewrite that began some snapshots ago; False if there is none that may land."""
        begun = [s for s in table.snapshots()[1:] if data_file in table.paths_at(s.snapshot_id)]
        if not begun:
            return False
        group = group_of(table, [data_file], self._rng.choice(begun))
        if rewrite_conflict(table, group, keeps_number=True):
            return False
        self.note("slow rewrite landed before a commit")
        change = rewritten(table, group, keeps_number=True)
        table.change_files(change.removed, change.added, change.operation)
        return True

    # ---- the procedures ----

    def _rewrite(self, job: _Job) -> None:
        """Spark's rewrite_data_files of some files of a bucket."""
        group = self._group(job.table)
        if group is None or not self._reads(job, group.beside):
            return
        keeps = self._rng.random() < _KEEPS_NUMBER
        change = rewritten(job.table, group, keeps_number=keeps)
        conflict = partial(rewrite_conflict, job.table, group, keeps_number=keeps)
        for _ in range(self._rng.choice(_WORK_STEPS)):
            self.step(job.actor, "others work")
        self._commit(job, "rewrite of data files", change, conflict)
        if self._rng.random() < _REMOVES_DANGLING:
            self._remove_dangling(job)
        if self._rng.random() < _EXPIRES:
            self._expire(job)

    def _merge_positions(self, job: _Job) -> None:
        """Spark's rewrite_position_delete_files of a bucket, into one file or one a data file."""
        table, main = job.table, job.table.main
        buckets: dict[tuple[str, ...], list[str]] = {}
        for one in sorted(table.paths() & table.keyed.keys()):
            if table.keyed[one].marks and not table.keyed[one].vector:
                buckets.setdefault(table.keyed[one].partition, []).append(one)
        if not buckets:
            return
        old, live = self._rng.choice(list(buckets.values())), table.paths()
        if not self._reads(job, old) or table.as_vectors:
            return
        merged = {k: v for k, v in sorted(table.marked(set(old)).items()) if k in live}
        apart = self._rng.random() < _APART
        owner, number = table.owners.get(old[0]), max(table.number_of(one) for one in old)
        added = [
            table.add_foreign([], owner, marks_file(table, old[0], group), number)
            for group in ([{k: v} for k, v in merged.items()] if apart else [merged])
            if group
        ]
        change = Change(frozenset(old), frozenset(added))
        self._commit(job, "merge of positions", change, partial(unknown_since, table, main))

    def _remove_dangling(self, job: _Job) -> None:
        """What rewrite_data_files with remove-dangling-deletes does after its own commit."""
        gone, conflict = dangling(job.table), partial(unknown_since, job.table, job.table.main)
        if gone:
            change = Change(gone, frozenset())
            self._commit(job, "removal of dangling deletes", change, conflict)

    def _update(self, job: _Job) -> None:
        """Spark's UPDATE of some rows to the values that they have, with merge-on-read."""
        table = job.table
        group = self._group(table)
        if group is None or not self._reads(job, group.beside):
            return
        one = group.files[0]
        rows = table.living(group.beside)[one]
        if rows:
            chosen = self._rng.sample(rows, self._rng.randint(1, len(rows)))
            change = updated(table, group, one, {position for position, _, _ in chosen})
            self._commit(job, "update", change, partial(update_conflict, table, group, one))

    def _expire(self, job: _Job) -> None:
        """Spark's expire_snapshots, which deletes the files one after another."""
        if not self.may_expire(job.path):
            return
        old = job.table.old_snapshots()
        old = old[: self._rng.randint(0, len(old))]
        if old:
            self.note("snapshots expired")
        for one in job.table.expired_files(old):
            self.step(job.actor, "expired file")
            job.table.delete_files([one])

    def _upgrade(self, job: _Job) -> None:
        """Sets format-version=3: from then on there are only deletion vectors."""
        if not job.table.as_vectors:
            self.note("upgraded to deletion vectors")
            job.table.upgrade()

    # ---- their steps ----

    def _group(self, table: SimTable) -> Group | None:
        """Some data files of a bucket."""
        data = [one for one in sorted(table.paths() & table.keyed.keys()) if table.keyed[one].rows]
        if not data:
            return None
        partition = table.keyed[self._rng.choice(data)].partition
        bucket = [one for one in data if table.keyed[one].partition == partition]
        return group_of(table, self._rng.sample(bucket, self._rng.randint(1, len(bucket))))

    def _reads(self, job: _Job, paths: Iterable[str]) -> bool:
        """Reads files; False if one was deleted before, because its snapshot has expired."""
        for one in sorted(paths):
            self.step(job.actor, "others read")
            if one not in job.table.files:
                self.note("others lost their files")
                return False
        return True

    def _commit(self, job: _Job, what: str, change: Change, conflict: Callable[[], str]) -> None:
        """:param conflict: why Iceberg refuses the commit; empty if it does not."""
        self.step(job.actor, "others commit")
        table = job.table
        is_there = self.lake.tables.get(job.path) is table and change.removed <= table.paths()
        if is_there and has_format(table, change) and not conflict():
            self.note(f"{what} landed")
            table.change_files(change.removed, change.added, change.operation)
            return
        self.note(f"{what} refused")
        table.delete_files(sorted(change.added))
