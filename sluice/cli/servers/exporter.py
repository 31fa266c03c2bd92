"""`sluice exporter`: the metrics of any cluster for Prometheus, in the foreground."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from sluice.cli.terminal.options import DURATION, Settings, examples, with_settings
from sluice.cli.terminal.output import say
from sluice.extras import require
from sluice.stop_signals import StopSignals

if TYPE_CHECKING:
    from sluice.client import Client
    from sluice.config import ClientConfig
    from sluice.metrics.readings import ClusterState


TIMEOUT_MIN_MS = 100


@click.command(
    short_help="Serve the metrics of a cluster for Prometheus.",
    epilog=examples(
        "sluice exporter",
        "sluice exporter --bootstrap fluss://fluss-coordinator:9123",
        "sluice exporter --listen 0.0.0.0:9249 --insecure --config sluice.toml",
    ),
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default="127.0.0.1:9249",
    show_default=True,
    help="Address of /metrics, over HTTP; port 0 is a free port.",
)
@click.option(
    "--insecure",
    is_flag=True,
    help="Allow an address other than loopback, without encryption or login.",
)
@click.option(
    "--allow-host",
    "hosts",
    metavar="NAME",
    multiple=True,
    help="A host name by which /metrics may be called; may be repeated. IP addresses, names without"
    " a dot, and names of Kubernetes services are allowed.",
)
@click.option(
    "--cache",
    type=DURATION,
    default="10s",
    show_default=True,
    help="Answer all scrapes from one read of the cluster for this long. 0s: read at each scrape.",
)
@click.option(
    "--timeout",
    type=DURATION,
    default="8s",
    show_default=True,
    help="Longest wait for one read of the cluster. Choose less than Prometheus's scrape_timeout.",
)
@with_settings
def exporter(
    listen: str,
    insecure: bool,
    hosts: tuple[str, ...],
    cache: int,
    timeout: int,
    settings: Settings,
) -> None:
    """Serve the metrics of a cluster for Prometheus until SIGTERM or Ctrl-C.

    The metrics are those of `sluice serve --metrics`, for any cluster, also Apache Fluss. A scrape
    reads the tiering status of all lake tables. When the exporter is ready, it prints one line with
    its address; for --listen with port 0, with the port that it got.

    If the cluster cannot be read, sluice_up is 0 and tables have no metrics until the cluster is
    back. The exporter counts the rounds that end while it runs.
    """
    if timeout < TIMEOUT_MIN_MS:
        raise click.UsageError("--timeout: use 100ms or more")
    config = settings.config().client
    require("prometheus_client", "exporter", "sluice exporter")
    stopping = StopSignals()
    bounds = {"cache_ms": cache, "timeout_ms": timeout}
    with served(config, listen, insecure=insecure, hosts=hosts, **bounds) as address:
        say(f"sluice: ready, metrics of {config.bootstrap} at {address}")
        stopping.wait()
    say("sluice: stopped")


@contextmanager
def served(
    config: ClientConfig,
    listen: str,
    *,
    insecure: bool,
    cache_ms: int,
    timeout_ms: int,
    hosts: Sequence[str] = (),
) -> Iterator[str]:
    """Serves the metrics of a cluster until the block ends; yields the URL.

    :raises ConfigurationError: an address cannot be bound, or is not valid or allowed.
    """
    from sluice.client import connect
    from sluice.metrics.endpoint import MetricsEndpoint
    from sluice.metrics.readings import CachedReadings, ClusterCollector
    from sluice.metrics.rounds import RoundMetrics, SeenRounds

    with connect(_bounded(config, timeout_ms)) as client:
        rounds = RoundMetrics()
        seen = SeenRounds(rounds, client.statuses.history)

        def read() -> ClusterState:
            state = _read(client)
            seen.seen(state.statuses)
            return state

        readings = CachedReadings(read, cache_s=cache_ms / 1000, timeout_s=timeout_ms / 1000)
        collectors = [ClusterCollector(readings.reading), rounds]
        endpoint = MetricsEndpoint(
            listen, "exporter", collectors, setting="--listen", insecure=insecure, hosts=hosts
        )
        endpoint.start()
        try:
            yield endpoint.address
        finally:
            endpoint.stop()


def _read(client: Client) -> ClusterState:
    from sluice.errors import UnsupportedVersion
    from sluice.metrics.readings import ClusterState

    statuses = client.statuses.list()
    try:
        leases = client.leases.all()
    except UnsupportedVersion:  # as on Apache Fluss
        return ClusterState(statuses, None, 0)
    return ClusterState(statuses, leases, leases[0].now_ms if leases else 0)


def _bounded(config: ClientConfig, timeout_ms: int) -> ClientConfig:
    """The configuration of the client, so that no call lasts longer than ``timeout_ms``."""
    return replace(
        config.within(timeout_ms),
        # one wait for the recorded statuses, and one for the lags
        tiering_status_timeout_ms=min(config.tiering_status_timeout_ms, timeout_ms // 3),
    )
