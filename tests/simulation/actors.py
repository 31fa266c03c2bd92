"""Actors: ordinary blocking code that the simulation runs step by step.

Each actor is a greenlet. It runs until it yields at one of its steps
(:meth:`ActorScheduler.yield_turn`) or ends. So a run depends on the scheduler's choices alone, not
on the machine. Threads that pass a token would do the same at a third of the speed.
"""

from __future__ import annotations

from collections.abc import Callable

from greenlet import getcurrent, greenlet

from sluice.model import LakeSnapshotInfo, TablePath

ACTORS_MAX = 4
"""Most actors that are alive at once."""


class Killed(BaseException):
    """Ends an actor as SIGKILL ends a process: nothing that it still tries has an effect."""


class Actor:
    """A driver, a clean-up or a user who repairs."""

    def __init__(self, name: str, body: Callable[[Actor], None], born: int) -> None:
        """:param born: the number of actors that the simulation started before this one."""
        self.name = name
        self.body = body
        self.born = born
        self.wake_ms = 0
        """The end of its stop (SIGSTOP), milliseconds."""
        self.steps_left: int | None = None
        """After so many more steps it is killed; None: only by chance."""
        self.done = self.killed = False
        self.error: BaseException | None = None
        self.faults: set[str] = set()
        """The faults of network and storage that hit it."""
        self.lake_faults: set[str] = set()
        """The faults of the lake's catalog that hit it."""
        self.registered: dict[TablePath, LakeSnapshotInfo | None] = {}
        """The last answer that it received about the lake snapshot of each table."""
        self.greenlet: greenlet | None = None


class ActorScheduler:
    """Lets one actor run at a time."""

    def __init__(self) -> None:
        self._here = getcurrent()

    def resume(self, actor: Actor) -> None:
        """Runs the actor until it yields or ends."""
        if actor.greenlet is None:
            actor.greenlet = greenlet(self._run, self._here)
        actor.greenlet.switch(actor)

    def yield_turn(self, actor: Actor) -> None:
        """Lets other actors run. Called by the actor itself.

        :raises Killed: the actor was killed while it waited.
        """
        self._here.switch()
        if actor.killed:
            raise Killed

    def kill(self, actor: Actor) -> None:
        """Kills the actor, and returns when it has ended."""
        actor.killed = True
        if actor.greenlet is None:
            actor.done = True
        elif not actor.done:
            self.resume(actor)

    def _run(self, actor: Actor) -> None:
        try:
            actor.body(actor)
        except Killed:
            pass
        except Exception as error:  # the simulation tells of it, under its seed
            actor.error = error
        finally:
            actor.done = True
