"""Actors: ordinary blocking code that runs a piece at a time, when the simulation says so.

Each actor has a thread, but only one thread of all runs at any moment: the stage's own, or that of
the actor it has resumed. An actor gives the stage back at its steps (:meth:`Stage.hand_over`) and
at its end. So what happens depends on the stage's choices alone, not on the machine.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

ACTORS_MAX = 8
"""Most actors that are alive at once."""


class Killed(BaseException):
    """Ends an actor as SIGKILL ends a process: whatever it still tries has no effect."""


class Actor:
    """A driver, or whoever else acts on cluster and lake."""

    def __init__(self, name: str, body: Callable[[Actor], None], born: int) -> None:
        """:param born: at which step of the simulation it began."""
        self.name = name
        self.body = body
        self.born = born
        self.wake_ms = 0
        """Until when it is stopped (SIGSTOP)."""
        self.started = self.done = self.killed = False
        self.error: BaseException | None = None
        self.turn = threading.Lock()
        self.turn.acquire()


class Stage:
    """Lets one actor run at a time. Its own methods are called on the simulation's thread, but for
    :meth:`hand_over`, which is called on the actor's.
    """

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        """:param pool: has at least ``ACTORS_MAX`` threads, and nothing else to do."""
        self._pool = pool
        self._turn = threading.Lock()
        self._turn.acquire()

    def resume(self, actor: Actor) -> None:
        """Runs the actor to its next handing over, or to its end."""
        if actor.started:
            actor.turn.release()
        else:
            actor.started = True
            self._pool.submit(self._run, actor)
        self._turn.acquire()

    def hand_over(self, actor: Actor) -> None:
        """:raises Killed: the actor was killed while it waited."""
        self._turn.release()
        actor.turn.acquire()
        if actor.killed:
            raise Killed

    def kill(self, actor: Actor) -> None:
        """The actor is gone when this returns."""
        actor.killed = True
        if not actor.started:
            actor.done = True
        elif not actor.done:
            self.resume(actor)

    def _run(self, actor: Actor) -> None:
        try:
            actor.body(actor)
        except Killed:
            pass
        except BaseException as error:  # the simulation tells of it, under its seed
            actor.error = error
        finally:
            actor.done = True
            self._turn.release()
