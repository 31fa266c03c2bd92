"""`sluice serve`: the embedded, Fluss-compatible server in the foreground."""

from __future__ import annotations

import os
import re
import resource
import sys
from contextlib import suppress

import click

from sluice.cli.terminal.options import (
    check_warehouse,
    config_option,
    configuration,
    examples,
    lake_overrides,
)
from sluice.cli.terminal.output import say
from sluice.config import DatalakeConfig
from sluice.errors import ConfigurationError
from sluice.extras import require
from sluice.stop_signals import StopSignals
from sluice.wire.listeners.start_marker import starting

STOP_GRACE_S = 4.0
"""Time for calls in progress at a stop."""

STOP_S = 8.5
"""Time to stop in; what is not closed by then is recovered at the next start."""

STOP_LIMIT_S = 9.5
"""The system ends the process so long after the first signal."""

OPEN_FILES_MAX = 65_536
"""Most files that the process may open; connections and stores need them."""

_TWO_LAKES = (
    "--warehouse names a lake, and datalake.format=none is a server without one: leave out one of"
    " the two (SLUICE_DATALAKE_FORMAT or [datalake] in --config FILE)"
)


@click.command(
    short_help="Run the embedded Fluss server.",
    epilog=examples(
        "sluice serve --data-dir ./data",
        "sluice serve --data-dir ./data --listen grpc://127.0.0.1:0",
        "sluice serve --data-dir ./data --listen fluss://127.0.0.1:9124 \\\n"
        "      --warehouse ./lake",
        "sluice serve --data-dir ./data --listen grpc://0.0.0.0:9123 \\\n"
        "      --tls-certificate server.pem --tls-key server.key --users-file users",
        "sluice serve --config sluice.toml --log-format json",
    ),
)
@click.option(
    "--data-dir", metavar="DIR", help="Folder for all data of the server; created if missing."
)
@click.option(
    "--listen",
    metavar="ADDRESS",
    multiple=True,
    help="Address to listen on: grpc://HOST:PORT, or fluss://HOST:PORT for Fluss's own protocol,"
    " whose tablet server uses the next port, or ?tablet=PORT. Port 0 is a free port. Can be"
    " repeated.  [default: grpc://127.0.0.1:9123]",
)
@click.option(
    "--advertised-listeners",
    metavar="ADDRESS",
    multiple=True,
    help="Address to report to clients in place of --listen, where they reach the server by another"
    " name or port, as behind a container's port mapping. Can be repeated.",
)
@click.option(
    "--insecure",
    is_flag=True,
    default=None,
    help="Allow an address other than loopback, without encryption or login.",
)
@click.option(
    "--tls-certificate",
    metavar="FILE",
    help="Certificate chain of the server (PEM), for TLS on grpc://: its own certificate first.",
)
@click.option("--tls-key", metavar="FILE", help="Private key of the certificate (PEM).")
@click.option(
    "--users-file",
    metavar="FILE",
    help="Users, one NAME ROLE SHA256 a line: the role is read, write or admin, SHA256 the digest"
    " of the user's token. Clients send the token over grpc://, or name and token over fluss://.",
)
@click.option(
    "--metrics",
    metavar="HOST:PORT",
    help="Address of /metrics for Prometheus, over HTTP; port 0 is a free port.",
)
@click.option(
    "--warehouse",
    metavar="PATH",
    help="Folder of the lake, as an Iceberg catalog of type hadoop. Replaces [datalake]. Clients"
    " such as Flink get it with each tiered table; the server itself does not use it.",
)
@config_option
@click.option(
    "--log-format",
    type=click.Choice(["console", "json"]),
    default="console",
    show_default=True,
    help="Format of the log on standard error.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    help="Lowest level to log.  [default: info; warning for the format console on a terminal]",
)
def serve(
    data_dir: str | None,
    listen: tuple[str, ...],
    advertised_listeners: tuple[str, ...],
    insecure: bool | None,
    tls_certificate: str | None,
    tls_key: str | None,
    users_file: str | None,
    metrics: str | None,
    warehouse: str | None,
    config_file: str | None,
    log_format: str,
    log_level: str | None,
) -> None:
    """Run the embedded Fluss server until SIGTERM or Ctrl-C.

    One process is coordinator and tablet server. When the server is ready, it prints one line with
    its addresses, and with free ports in place of port 0. Acknowledged rows survive a kill of the
    process. A power loss can lose the rows of the last 5 seconds (server.sync_interval_ms).

    A stop takes at most 10 seconds; a second signal ends the process at once.
    """
    check_warehouse(warehouse, must_exist=False)
    if warehouse is not None and configuration(config_file).datalake.format == "none":
        raise click.UsageError(_TWO_LAKES)
    config = configuration(
        config_file,
        {
            **lake_overrides(warehouse),
            "server.data_dir": data_dir,
            "server.listen": ",".join(listen) or None,
            "server.advertised_listeners": ",".join(advertised_listeners) or None,
            "server.insecure": insecure,
            "server.tls_certificate": tls_certificate,
            "server.tls_key": tls_key,
            "server.users_file": users_file,
            "server.metrics": metrics,
        },
    )
    server = config.server
    if not server.data_dir:
        raise click.UsageError("give --data-dir DIR (or server.data_dir in the configuration)")
    _check_lake(config.datalake)
    with starting(_ports(server.listen)):
        require("sluice.server.cluster", "server", "sluice serve")
        from sluice.cli.terminal.logs import configure, default_level
        from sluice.server.cluster import EmbeddedCluster

        configure(log_format, log_level or default_level(log_format))
        _allow_open_files()
        stopping = StopSignals(STOP_LIMIT_S)
        cluster = EmbeddedCluster(server, datalake=config.datalake)
        cluster.start()
    try:
        read = f", metrics at {cluster.metrics_address}" if cluster.metrics_address else ""
        places = ", ".join(cluster.addresses)
        say(f"sluice: ready at {places}, data in {server.data_dir}{read}")
        stopping.wait()
    finally:
        ended = cluster.stop(STOP_GRACE_S, STOP_S)
        stopping.end()
    say("sluice: stopped")
    if not ended:
        # Python would wait for threads that have not ended.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def _check_lake(datalake: DatalakeConfig) -> None:
    """Checks the lake's options, which the server itself does not use: clients get them.

    :raises ConfigurationError: no catalog of Iceberg has these options.
    """
    from sluice.checks import iceberg_options

    options = datalake.iceberg
    if options and (why := iceberg_options.wrong(options) or iceberg_options.missing(options)):
        raise ConfigurationError(why)


def _allow_open_files() -> None:
    """Raises the process's limit of open files, as far as the system lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = OPEN_FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES_MAX)
    if soft != resource.RLIM_INFINITY and soft < most:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _ports(listen: str) -> list[int]:
    """The fixed ports of --listen; whether the text is right is seen later."""
    return [int(found) for found in re.findall(r":(\d{1,5})(?=$|[/?,\s])", listen) if int(found)]
