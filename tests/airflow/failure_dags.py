"""The DAGs of the failure matrix, and the Airflow that runs them, as fixtures."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from demo.airflow import DAG_ID
from tests.airflow.beside import Together, chosen_tests
from tests.airflow.live import DATABASES, Live, running_live
from tests.airflow.place import Place
from tests.airflow.row_dags import RowDag, connections_of, servers_of, wait_for_dags, write_dags

AT_ONCE = 4
MAP_MAX = 4
INTERVAL_S = 10
STOPPED = ("settled", "dropped")
"""DAGs whose settle task is stopped while their clusters end."""
SERVED = (
    *("down", "down_for_long", "killed", "gone", "scheduled", "scheduled_twice"),
    *STOPPED,
)
"""DAGs whose clusters are processes of their own."""
TWICE = "tier_retries=1, max_active_runs=20"
OVERLAPPING = f"schedule='* * * * * */{INTERVAL_S}', is_paused_upon_creation=True"
GROUPED = """
with DAG({dag_id!r}, schedule=None):
    lake_tiering_group("first", tables=["shop.*_grouped"], force=True) >> lake_tiering_group(
        "second", tables=["shop.*_grouped_too"], force=True
    )
"""
ROWS = DAG_ID
DAGS = [
    RowDag(ROWS, "max_active_runs=20"),
    RowDag("retried", TWICE),
    RowDag("acquired_once", "default_args={'retries': 0}", is_armed=True),
    RowDag(
        "acquired_twice",
        "default_args={'retries': 1, 'retry_delay': timedelta(seconds=1)}",
        is_armed=True,
    ),
    RowDag("marked_early", is_armed=True),
    RowDag("settled_once", "default_args={'retries': 0}", is_armed=True),
    RowDag("narrow", "tables_per_application=1, pool_slots=100"),
    RowDag("timed_out", "dagrun_timeout=timedelta(hours=1)"),
    RowDag("timed_out_early", "dagrun_timeout=timedelta(hours=1)", is_armed=True),
    RowDag("grouped", source=GROUPED),
    RowDag("unwritable", "fluss_conn_id='fluss_unwritable'"),
    *(RowDag(name, f"fluss_conn_id='fluss_{name}'") for name in ("down", "down_for_long")),
    *(RowDag(name, f"fluss_conn_id='fluss_{name}'") for name in ("killed", "gone")),
    *(RowDag(name, f"fluss_conn_id='fluss_{name}'", is_armed=True) for name in STOPPED),
    RowDag("scheduled", f"fluss_conn_id='fluss_scheduled', {OVERLAPPING}"),
    RowDag(
        "scheduled_twice",
        f"fluss_conn_id='fluss_scheduled_twice', max_active_runs=2, {OVERLAPPING}",
    ),
]


@pytest.fixture(scope="module", params=DATABASES)
def live(
    airflow_environment: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("live")
    servers = servers_of(folder, SERVED)
    with running_live(
        folder,
        airflow_environment,
        triggerer=True,
        database=request.param,
        **write_dags(folder / "dags", DAGS),
        connections=lambda place: connections_of(servers) | unwritable(place),
        AIRFLOW__CORE__PARALLELISM="12",
        AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL="10",
        AIRFLOW__CORE__MAX_MAP_LENGTH=str(MAP_MAX),
        AIRFLOW__SLUICE__POOL="default_pool",
    ) as running:
        running.servers = servers
        wait_for_dags(running, DAGS)
        yield running
    for server in servers.values():
        server.kill()


def unwritable(place: Place) -> dict[str, str]:
    """A connection whose lake is below a file, where nobody can write, root neither."""
    file = place.work.with_name("file")
    file.touch()
    lake = {"iceberg.type": "hadoop", "iceberg.warehouse": str(file / "lake")}
    [value] = place.connection(datalake=lake).values()
    return {"AIRFLOW_CONN_FLUSS_UNWRITABLE": value}


@pytest.fixture(scope="module")
def together(live: Live, request: pytest.FixtureRequest) -> Iterator[Together]:
    found = Together(live, chosen_tests(request), AT_ONCE)
    yield found
    found.close()
