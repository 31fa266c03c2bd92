"""Who makes a call to the embedded server."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Caller:
    """A user of the server's users file."""

    name: str
    is_admin: bool
    may_write: bool = False
    """Whether this user may make calls that need the role write."""

    def may_change(self, owner: str) -> bool:
        """Whether this user may change what belongs to a user; what has no owner is everybody's."""
        return self.is_admin or owner in ("", self.name)


NOBODY = Caller("", is_admin=True, may_write=True)
"""Without a users file, all callers are the same nobody, who may change everything."""
