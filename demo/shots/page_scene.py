"""A server with lake tables to look at: most are well, three are stuck, each for its own reason.

The command prints the `sluice ui` command that shows them. New rounds go on until Ctrl-C.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import click

from demo.shots.page_holders import hold_leases, note_maintenance
from demo.shots.page_rounds import MINUTE_MS, OpenRound, Progress, Run, SceneClock, Worker
from demo.shots.page_tables import (
    LATE,
    LEASED,
    PAUSED,
    SPECIAL,
    TABLES_MIN,
    WAITING,
    create,
    scene_tables,
)
from sluice.cli.terminal.logs import configure
from sluice.client import Client
from sluice.client.tiering.heartbeats import Heartbeats
from sluice.config import ClientConfig, ServerConfig
from sluice.model import TablePath
from sluice.server.cluster import EmbeddedCluster
from sluice.stop_signals import StopSignals

TABLES = 200
BEGAN_MINUTES = 3 * 24 * 60
"""So long ago the tables were created."""
EVERY_MINUTES = 12
"""More than the shortest freshness, which begins at the end of a round."""
HISTORY = range(241, 0, -EVERY_MINUTES)
"""Minutes ago at which a run of the DAG tiered what was due."""
UNCLAIMED_FROM, LATE_FROM, PAUSED_FROM = 160, 110, 70
"""Of these runs, the first that leaves out a table, or does not end it."""
SLOW_MINUTES = 8
"""Two rounds take so much longer."""
TURN_S = 5.0
STOP_LIMIT_S = 20.0


@dataclass(frozen=True)
class Scene:
    """Where it is."""

    address: str
    work_uri: str
    """The work folder of the runs."""


class _Play:
    """Plays the history of the tables, and then goes on in real time."""

    def __init__(self, cluster: EmbeddedCluster, worker: Worker, stack: ExitStack) -> None:
        self.cluster, self.worker = cluster, worker
        self.clock = worker.clock
        self._stack = stack
        self._open: list[OpenRound] = []
        self._never = {WAITING, LATE, *PAUSED}
        self._paths = [table.path for table in worker.tables]

    def history(self) -> None:
        self.clock.behind_ms = BEGAN_MINUTES * MINUTE_MS
        for minutes in HISTORY:
            self._step(minutes)
        self.clock.behind_ms = 0
        waiting = [path for path in self._paths if path not in {WAITING, *LEASED}]
        self.worker.grow(waiting[::3], lambda of: of.chance.randint(1, of.table.rows))

    def _step(self, minutes: int) -> None:
        self.clock.behind_ms = minutes * MINUTE_MS
        if minutes <= PAUSED_FROM < minutes + EVERY_MINUTES:
            for path in PAUSED:
                self.worker.client.statuses.pause(path)
        late = minutes <= LATE_FROM
        given = [path for path in self._paths if not self._is_left_out(path, minutes)]
        opened = self.worker.claim(given)
        grown = {one.claim.path for one in opened} | ({LATE} if late else set())
        self.worker.grow(sorted(grown), _usual_rows)
        held = [one for one in opened if one.claim.path == LATE and late]
        for one in held:
            self._hold(one.run)
        ends = sorted((o for o in opened if o not in held), key=lambda one: one.ends_ms)
        if minutes == HISTORY[-1]:
            # Still in progress when somebody looks.
            slow = [one for one in ends if one.claim.path not in SPECIAL][-2:]
            slow_ms = SLOW_MINUTES * MINUTE_MS
            self._open = [replace(one, ends_ms=one.ends_ms + slow_ms) for one in slow]
            ends = [one for one in ends if one not in slow]
        self._end_all(ends)

    def _is_left_out(self, path: TablePath, minutes: int) -> bool:
        if path == WAITING:
            return minutes <= UNCLAIMED_FROM
        return path in PAUSED and minutes <= PAUSED_FROM

    def _end_all(self, ends: Sequence[OpenRound]) -> None:
        """Ends rounds in groups, each at the time of its last one."""
        for at in range(0, len(ends), 8):
            group = ends[at : at + 8]
            self.clock.behind_ms += self.clock.now_ms() - group[-1].ends_ms
            self.worker.end(group)

    def _hold(self, run: Run) -> None:
        """The run that does not end holds KV snapshots, and renews its lease."""
        self.cluster.take_kv_snapshots(LATE)
        lease = self.worker.client.snapshot_lease(run.lease_id, LATE, on_exit="keep")
        self._stack.enter_context(lease)

    def turn(self) -> None:
        """What became due is claimed, and what has taken its time ends."""
        now_ms = self.clock.now_ms()
        ended = [one for one in self._open if one.ends_ms <= now_ms]
        self._open = [one for one in self._open if one.ends_ms > now_ms]
        self.worker.end(ended)
        opened = self.worker.claim([path for path in self._paths if path not in self._never])
        self.worker.grow([one.claim.path for one in opened], _usual_rows)
        self._open += opened


def _usual_rows(of: Progress) -> int:
    if of.chance.random() < 0.08:
        return 0
    return round(of.table.rows * of.chance.lognormvariate(0, 0.5))


@contextmanager
def running_scene(
    folder: Path,
    tables: int = TABLES,
    port: int = 0,
    say: Callable[[str], None] = lambda _: None,
) -> Iterator[Scene]:
    """Starts the server, plays the history of four hours, and goes on until the block ends.

    :param folder: a new folder for data and the runs' work folder.
    :param tables: at least TABLES_MIN.
    :param port: of the server; 0: a free one.
    """
    clock = SceneClock()
    clock.behind_ms = BEGAN_MINUTES * MINUTE_MS
    config = ServerConfig(
        data_dir=str(folder / "data"), listen=f"grpc://127.0.0.1:{port}", kv_snapshot_interval_ms=0
    )
    work_uri = (folder / "work").as_uri()
    with ExitStack() as stack:
        cluster = stack.enter_context(EmbeddedCluster(config, clock))
        client = stack.enter_context(Client(ClientConfig(cluster.address), clock))
        heartbeats = stack.enter_context(Heartbeats(client.tiering))
        chosen = scene_tables(tables)
        say(f"creating {tables} tables")
        create(client, chosen)
        worker = Worker(client, clock, work_uri, chosen, heartbeats)
        play = _Play(cluster, worker, stack)
        hold_leases(cluster, worker)
        say("playing the rounds of four hours")
        play.history()
        note_maintenance(work_uri, client, chosen, clock.now_ms())
        stopping = threading.Event()
        going = threading.Thread(target=_go_on, args=(play, stopping), name="scene", daemon=True)
        going.start()
        try:
            yield Scene(cluster.address, work_uri)
        finally:
            stopping.set()
            going.join()


def _go_on(play: _Play, stopping: threading.Event) -> None:
    while not stopping.wait(TURN_S):
        play.turn()


def main(given: Sequence[str] | None = None) -> int:
    """Prints the address when all is there, and waits for Ctrl-C or SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m demo.shots.page_scene", description=__doc__)
    parser.add_argument(
        "--tables", type=int, default=TABLES, help=f"number of tables; {TABLES}", metavar="N"
    )
    parser.add_argument(
        "--port", type=int, default=0, help="port of the server; a free one", metavar="N"
    )
    options = parser.parse_args(given)
    if options.tables < TABLES_MIN:
        parser.error(f"--tables: {options.tables}: use at least {TABLES_MIN}")
    configure("console", "error")
    stopping = StopSignals(STOP_LIMIT_S)
    with tempfile.TemporaryDirectory(prefix="sluice-page-") as folder:
        say = partial(click.echo, err=True)
        with running_scene(Path(folder), options.tables, options.port, say) as scene:
            click.echo(f"sluice ui --bootstrap {scene.address} --work-uri {scene.work_uri}")
            stopping.wait()
    stopping.end()
    return 0


if __name__ == "__main__":
    sys.exit(main())
