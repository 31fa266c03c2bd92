"""Pages without data and scripts, where the page itself has nothing to show."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from fastapi.responses import HTMLResponse

ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24" fill="none" stroke="#0e9384"'
    ' stroke-width="2" stroke-linecap="round" stroke-linejoin="round"><path d="M3 7c3 0 3 2 6 2s3-2'
    ' 6-2 3 2 6 2M3 13c3 0 3 2 6 2s3-2 6-2 3 2 6 2M12 3v3M3 20h18"/></svg>'
)
"""Waves behind a gate, for Airflow's navigation."""


def plain_page(
    title: str, text: str, links: Mapping[str, str] | None = None, status: int = 200
) -> HTMLResponse:
    """A heading, a text and links, in the colors of the browser.

    :param links: name to address.
    """
    listed = "".join(
        f'<li><a href="{escape(url)}">{escape(name)}</a></li>'
        for name, url in (links or {}).items()
    )
    return HTMLResponse(
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><title>{escape(title)}</title></head>'
        f"<body><main><h1>{escape(title)}</h1>"
        + "".join(f"<p>{escape(part)}</p>" for part in text.split("\n"))
        + (f"<ul>{listed}</ul>" if listed else "")
        + "</main></body></html>",
        status,
    )
