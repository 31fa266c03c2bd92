"""`sluice ui`: the page "Lake tiering" in a browser, without Airflow."""

from __future__ import annotations

import os
import sys
import threading
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from sluice.cli.terminal.cluster import require_cluster
from sluice.cli.terminal.options import Settings, examples, with_settings
from sluice.cli.terminal.output import say, say_link
from sluice.errors import ConfigurationError, NetworkError
from sluice.extras import require
from sluice.stop_signals import StopSignals

if TYPE_CHECKING:
    import socket

    from sluice.config import ClientConfig

STOP_S = 1.4
"""Time to stop in; what still runs then ends with the process."""
STOP_LIMIT_S = 4.0
"""The system ends the process so long after the first signal."""
CALL_TIMEOUT_MS = 10_000
"""A person waits for the answer to each call of the page."""


@click.command(
    short_help="Show the page of lake tiering in a browser.",
    epilog=examples(
        "sluice ui",
        "sluice ui --open --read-only",
        "sluice ui --bootstrap fluss://fluss-coordinator:9123 --listen 127.0.0.1:0",
    ),
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default="127.0.0.1:8790",
    show_default=True,
    help="Address of the page, over HTTP; port 0 is a free port.",
)
@click.option(
    "--insecure",
    is_flag=True,
    help="Allow an address other than loopback, without encryption.",
)
@click.option(
    "--allow-host",
    "hosts",
    metavar="NAME",
    multiple=True,
    help="A host name by which browsers call the page, as through a proxy; may be repeated.",
)
@click.option("--read-only", is_flag=True, help="Show the page, and refuse all actions.")
@click.option("--open", "opens", is_flag=True, help="Open the link in the browser.")
@click.option(
    "--work-uri",
    metavar="URI",
    help="Work folder of Airflow's runs, for what only their files know: names of runs, leases on"
    " an Apache Fluss cluster, and what the maintenance did.",
)
@with_settings
def ui(
    listen: str,
    insecure: bool,
    hosts: tuple[str, ...],
    read_only: bool,
    opens: bool,
    work_uri: str | None,
    settings: Settings,
) -> None:
    """Serve the page "Lake tiering" until SIGTERM or Ctrl-C.

    When the page is ready, the command prints one line with a link. The link logs in one browser,
    once; then the next link is printed, for another browser. Whoever has logged in acts with this
    command's own access to the cluster. A login ends when the command ends.

    If the cluster cannot be reached, the page says so, and shows the tables when it is back.
    """
    config = settings.config().client.within(CALL_TIMEOUT_MS)
    require("uvicorn", "ui", "sluice ui")
    require("sluice.page.app", "ui", "sluice ui")
    from sluice.client import connect
    from sluice.page.local.http_server import PageServer
    from sluice.page.local.place import LocalPlace
    from sluice.page.local.serving import Access, behind, local_app

    bound, host, port = _bound(listen, insecure=insecure)

    def tell() -> None:
        say_link("sluice: link for one more:", access.link)

    access = Access(host, port, tell, hosts)
    client = connect(config)  # its first call connects, and not before
    stopping = StopSignals(STOP_LIMIT_S)
    place = LocalPlace(client, work_uri=work_uri)
    place.reader.start()
    app = behind(access, local_app(place, read_only=read_only))
    server = PageServer(app, bound, access.is_logged_in)
    server.start()
    link = access.link
    say_link("sluice: ready, log in once at", link)
    threading.Thread(target=_warn_if_away, args=(config,), daemon=True).start()
    if opens and not webbrowser.open(link):
        say("sluice: no browser was found: open the link yourself", err=True)
    stopping.wait()
    server.stop(STOP_S)
    _ends(place.reader.stop)
    _ends(client.close)
    with suppress(OSError):  # nobody reads it any more
        say("sluice: stopped")
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(0)  # Python would wait for threads that read the cluster or the work folder


def _bound(listen: str, *, insecure: bool) -> tuple[socket.socket, str, int]:
    """The socket of --listen, its host and port.

    :raises ConfigurationError: it is not valid or allowed, or cannot be bound.
    """
    from sluice.wire.listeners.http_places import bound_socket, http_place

    host, port = http_place(listen, "--listen", insecure=insecure, without="encryption")
    try:
        bound = bound_socket(host, port)
    except OSError as error:
        why = (error.strerror or str(error)).partition(" (while")[0]
        raise ConfigurationError(
            f"--listen: {listen}: {why}; `sluice ui --listen 127.0.0.1:0` takes a free port"
        ) from error
    return bound, host, int(bound.getsockname()[1])


def _warn_if_away(config: ClientConfig) -> None:
    try:
        require_cluster(config)
    except NetworkError as error:
        text = f"{error.message}; the page shows the tables when the cluster answers"
        say(f"sluice: {text}", err=True)


def _ends(work: Callable[[], None]) -> None:
    """Waits a moment for the end of a call."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(STOP_S / 8)
