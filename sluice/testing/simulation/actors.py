"""Actors: ordinary blocking code that runs a piece at a time, when the simulation says so.

Each actor is a greenlet: it runs until it gives the stage back, at one of its steps
(:meth:`Stage.hand_over`) or at its end. So what happens depends on the stage's choices alone, not
on the machine. Threads that pass a baton do the same, at a third of the speed.
"""

from __future__ import annotations

from collections.abc import Callable

from greenlet import getcurrent, greenlet

ACTORS_MAX = 4
"""Most actors that are alive at once."""


class Killed(BaseException):
    """Ends an actor as SIGKILL ends a process: whatever it still tries has no effect."""


class Actor:
    """A driver, or whoever else acts on cluster and lake."""

    def __init__(self, name: str, body: Callable[[Actor], None], born: int) -> None:
        """:param born: counts the actors of a simulation."""
        self.name = name
        self.body = body
        self.born = born
        self.wake_ms = 0
        """Until when it is stopped (SIGSTOP)."""
        self.done = self.killed = False
        self.error: BaseException | None = None
        self.greenlet: greenlet | None = None


class Stage:
    """Lets one actor run at a time."""

    def __init__(self) -> None:
        self._here = getcurrent()

    def resume(self, actor: Actor) -> None:
        """Runs the actor to its next handing over, or to its end."""
        if actor.greenlet is None:
            actor.greenlet = greenlet(self._run, self._here)
        actor.greenlet.switch(actor)

    def hand_over(self, actor: Actor) -> None:
        """Called by the actor: others go on.

        :raises Killed: the actor was killed while it waited.
        """
        self._here.switch()
        if actor.killed:
            raise Killed

    def kill(self, actor: Actor) -> None:
        """The actor is gone when this returns."""
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
