"""What the history of rounds costs a round: one more row when its end is recorded.

On the embedded server the row is part of the transaction of the status. On an Apache Fluss cluster
it is a write of its own, at the same time as that of the status.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from bench.measure import Line, report
from sluice.client.statuses.recorded import RecordedStatuses
from sluice.client.statuses.round_table import RoundTable
from sluice.client.statuses.status_table import StatusTable
from sluice.config import ClientConfig
from sluice.model import Claim, TablePath, TieringRound
from sluice.model.round_record import ROUNDS_KEPT
from sluice.server.coordinator.tiering.rounds import TieringRounds
from sluice.server.coordinator.tiering.rows import TieringRows
from sluice.server.storage.database import Database
from sluice.statuses import TableStatus
from tests.support.fluss.real_fluss import RealFluss

ROUNDS = 2 * ROUNDS_KEPT
TABLE_ID = 1_000_000
ROUND = TieringRound(
    table_id=TABLE_ID, tiering_epoch=7, coordinator_epoch=1, started_ms=1, ended_ms=2,
    outcome="committed", rows_written=10, keys_deleted=0, files_written=2, bytes_read=1_000,
    bytes_written=900, lag_rows_before=10, lag_rows_after=0, lake_snapshot_id=1 << 60, recover_ms=1,
    plan_ms=1, copy_ms=1, prepare_ms=1, lake_commit_ms=1, fluss_commit_ms=1, worker="a run",
    deletes_as="positions", lookup_files=20, lookup_bytes=1 << 26, lookup_ms=100,
)  # fmt: skip


def run(rows: int) -> None:  # noqa: ARG001  (a round's history is one row)
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as tmp:
        _embedded(Path(tmp))
        with RealFluss(Path(tmp) / "fluss") as fluss:
            _apache_fluss(fluss.bootstrap)


def _embedded(home: Path) -> None:
    with closing(Database(home / "metadata.sqlite")) as database:
        statuses, rounds = TieringRows(database), TieringRounds(database)
        status = TableStatus(TABLE_ID, TablePath("bench", "t"), 60_000, 0)
        with database.transaction() as connection:
            connection.execute("INSERT INTO databases VALUES ('bench', x'', 0, 0)")
            row = (TABLE_ID, "bench", "t", b"", 1, 0, 0)
            connection.execute("INSERT INTO tables VALUES (?, ?, ?, ?, ?, ?, ?)", row)

        def end(number: int, with_history: bool) -> None:
            with database.transaction() as connection:
                statuses.store(connection, [replace(status, rounds=number)])
                if with_history:
                    rounds.store(connection, [replace(ROUND, round_number=number)])

        _measure("round_history", "the status", lambda n: end(n, False), lambda n: end(n, True))


class _NoRounds(RoundTable):
    """Records no round."""

    def write(self, ended: Sequence[TieringRound], is_late: Callable[[], bool]) -> None:
        pass


def _apache_fluss(bootstrap: str) -> None:
    config = ClientConfig(bootstrap, tiering_status_timeout_ms=60_000)
    claim = Claim(TABLE_ID, TablePath("bench", "t"), 7, 1)
    with (
        closing(RecordedStatuses(config)) as recorded,
        closing(RecordedStatuses(config)) as without,
        closing(StatusTable(config)) as table,
    ):
        without._table.rounds = _NoRounds(table.rounds._table)

        def end(statuses: RecordedStatuses, number: int) -> None:
            statuses.finished_many([(replace(claim, tiering_epoch=number), ROUND)], forced=True)

        for each in (recorded, without):  # creates the tables
            end(each, 0)
        _measure(
            "real_round_history", "the end", lambda n: end(without, n), lambda n: end(recorded, n)
        )
        assert len(table.rounds.newest(TABLE_ID, ROUNDS)) == ROUNDS_KEPT


def _measure(
    name: str, reference: str, without: Callable[[int], None], with_it: Callable[[int], None]
) -> None:
    """Measures both in turns, so that they see the same machine."""
    spent: dict[bool, list[float]] = {False: [], True: []}
    for number in range(1, ROUNDS + 1):
        for is_with, do in ((False, without), (True, with_it)):
            started = time.perf_counter()
            do(number)
            spent[is_with].append((time.perf_counter() - started) * 1000)
    before, after = (statistics.median(spent[key]) for key in (False, True))
    text = f"{reference} alone, {before:.2f} ms; medians of {ROUNDS}"
    report(Line(name, after - before, "ms a round", after / before, text))
