"""Answers as new as a change of the caller, though another process of the server has made it.

Each process reads the cluster by itself, so it may know an older status for some seconds.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Header

from sluice.model import TablePath
from sluice.page.requests.ports import AtPlace

CHANGED_MAX = 8
"""Tables of one request."""
_TABLE = r"[A-Za-z0-9_-]{1,200}\.[A-Za-z0-9_-]{1,200}@[0-9]{1,14}"

Changed = Annotated[
    str | None,
    Header(
        alias="X-Sluice-Changed",
        pattern=f"^{_TABLE}(,{_TABLE}){{0,{CHANGED_MAX - 1}}}$",
        description="Tables that the caller has acted on, each with the `changed_ms` of the answer:"
        f" DATABASE.TABLE@MS, at most {CHANGED_MAX}, separated by commas. What is answered of them"
        " is as new, if the cluster answers within a second, and few callers wait for it",
    ),
]


def _as_new(place: AtPlace, changed: Changed = None) -> None:
    if changed is None:
        return
    changes: dict[TablePath, int] = {}
    for each in changed.split(","):
        name, _, at_ms = each.partition("@")
        path = TablePath(*name.split("."))
        changes[path] = max(changes.get(path, 0), int(at_ms))
    place.reader.read_changed(changes)


AS_NEW = Depends(_as_new)
"""For each path that answers from what the reader has seen."""
