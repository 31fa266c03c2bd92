"""`sluice ui`: the page for one person, on this machine."""

from __future__ import annotations

from fastapi import Depends, FastAPI, Request

from sluice.page.app import page_app
from sluice.page.local_place import LocalPlace
from sluice.page.ports import Viewer, serve


def local_app(place: LocalPlace) -> FastAPI:
    """The application of `sluice ui`."""

    def viewer(request: Request) -> None:
        serve(request, place, Viewer(None, True))

    return page_app("", [Depends(viewer)], [])
