"""What becomes of clusters that the page has opened: `python -m tests.airflow.page_clusters`.

It prints what was as expected, as a JSON list.
"""

from __future__ import annotations

import json
import os
import threading
from typing import Any

from airflow import settings
from sqlalchemy import event

from sluice.clock import SystemClock
from sluice.errors import ConfigurationError
from sluice_airflow.page import clusters as page
from sluice_airflow.page.dag_states import DAGS_MAX, DagStates
from sluice_airflow.page.dag_states import KEPT_S as STATES_KEPT_S
from sluice_airflow.page.tiering_dags import KEPT_S, TieringDags
from tests.airflow import page_secrets
from tests.airflow.place import wait_until


class OwnClock(SystemClock):
    """Goes on only when it is told to."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic_s(self) -> float:
        return self.now_s


def is_closed(cluster: page.Cluster) -> bool:
    return not cluster.reader._thread.is_alive()


def idle(clusters: page.Clusters, clock: OwnClock) -> list[bool]:
    first, other = clusters.of("one", "d"), clusters.of("two", "d")
    clock.now_s += page.IDLE_S - 1
    kept = clusters.of("two", "d") is other
    clock.now_s += 2
    clusters.of("two", "d")
    wait_until(lambda: is_closed(first), 60, "the idle cluster to close")
    return [kept, not is_closed(other), clusters.of("one", "d") is not first]


def gone(clusters: page.Clusters, clock: OwnClock) -> list[bool]:
    first = clusters.of("one", "d")
    del os.environ["AIRFLOW_CONN_ONE"]
    clock.now_s += page.KEPT_S
    kept = clusters.of("one", "d") is first
    clock.now_s += page.GONE_S
    try:
        clusters.of("one", "d")
    except ConfigurationError as error:
        wait_until(lambda: is_closed(first), 60, "the cluster to close")
        return [kept, "no connection 'one'" in str(error)]
    return [False]


def meanwhile(clusters: page.Clusters, clock: OwnClock) -> list[bool]:
    """While one thread reads a connection again, others go on; its failure changes nothing."""
    first = clusters.of("one", "d")
    begun, goes_on = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        goes_on.wait(60)

    page_secrets.Waiting.before = wait
    clock.now_s += page.KEPT_S
    found: list[page.Cluster] = []
    reads = threading.Thread(target=lambda: found.append(clusters.of("one", "d")))
    reads.start()
    assert begun.wait(60)
    another = clusters.of("one", "d") is first
    goes_on.set()
    reads.join(60)
    return [another, found == [first]]


def dags(clusters: page.Clusters, clock: OwnClock) -> list[bool]:
    """While one thread reads the DAGs, the others do not wait for the database."""
    known = TieringDags(clock)
    first = known.all()
    clock.now_s += KEPT_S
    with known._lock:
        return [known.all() is first]


def states(clusters: page.Clusters, clock: OwnClock) -> list[bool]:
    """All viewers of a DAG ask the database once in two seconds, and after a change."""
    known, asked, changed = DagStates(clock), [], []

    @event.listens_for(settings.engine, "before_cursor_execute")
    def note(*args: Any) -> None:
        asked.append(args)
        if changed:
            known.forget(changed.pop())

    def queries(dag_id: str = "d") -> int:
        asked.clear()
        known.of(dag_id)
        return len(asked)

    found = [queries() > 0, queries() == 0]
    clock.now_s += STATES_KEPT_S
    found.append(queries() > 0)
    known.forget("d")
    found += [queries() > 0, queries() == 0]
    known.forget("d")
    changed.append("d")  # during the read, which may tell of the time before
    found += [queries() > 0, queries() > 0, queries() == 0]
    for number in range(DAGS_MAX):
        known.of(f"d{number}")
    found.append(queries() > 0)
    event.remove(settings.engine, "before_cursor_execute", note)
    return found


def ends(clusters: page.Clusters) -> None:
    """The end of the main thread closes what is open, before Python waits for other threads."""
    open_ = clusters.of("one", "d")

    def outlive() -> None:
        open_.reader._thread.join(60)
        print(json.dumps(["ends", is_closed(open_)]), flush=True)

    threading.Thread(target=outlive).start()


def main() -> None:
    for case in (idle, gone, meanwhile, dags, states):
        os.environ["AIRFLOW_CONN_ONE"] = os.environ["AIRFLOW_CONN_TWO"]
        clock = OwnClock()
        clusters = page.Clusters(clock)
        print(json.dumps([case.__name__, *case(clusters, clock)]), flush=True)
        clusters.close()
    ends(page.Clusters())


if __name__ == "__main__":
    main()
