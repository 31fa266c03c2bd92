"""`sluice ui`: the page "Lake tiering" in a browser, without Airflow."""

from __future__ import annotations

import click

from sluice.cli.options import Settings, examples, with_settings
from sluice.extras import require


@click.command(
    short_help="Show the page of lake tiering in a browser.",
    epilog=examples("sluice ui", "sluice ui --bootstrap fluss://fluss-coordinator:9123"),
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default="127.0.0.1:8790",
    show_default=True,
    help="Address of the page, over HTTP; port 0 is a free port.",
)
@with_settings
def ui(listen: str, settings: Settings) -> None:
    """Serve the page "Lake tiering" until SIGTERM or Ctrl-C."""
    uvicorn = require("uvicorn", "ui", "sluice ui")
    from sluice.page.local_place import LocalPlace
    from sluice.page.serving import local_app

    host, _, port = listen.rpartition(":")
    with settings.connect() as client:
        place = LocalPlace(client)
        place.reader.start()
        click.echo(f"sluice: ready at http://{host}:{port}/")
        uvicorn.run(local_app(place), host=host, port=int(port), log_level="warning")
        place.reader.stop()
