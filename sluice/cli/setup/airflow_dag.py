"""`sluice airflow-dag`: the DAG files for Airflow's dags folder."""

from __future__ import annotations

import click

from sluice.cli.terminal.options import examples
from sluice.cli.terminal.output import print_file

DAG_FILE = '''\
"""Tiers Apache Fluss tables every minute; settings: section [sluice] of airflow.cfg."""

from sluice_airflow.dag import lake_tiering_dag

dag = lake_tiering_dag("sluice_lake_tiering")
'''
"""Airflow reads a file as a DAG file only if it has the words "dag" and "airflow"."""
MAINTENANCE_FILE = '''\
"""Maintains lake tables once a day; settings: section [sluice] of airflow.cfg."""

from sluice_airflow.maintenance import lake_maintenance_dag

dag = lake_maintenance_dag("sluice_lake_maintenance")
'''


@click.command(
    "airflow-dag",
    short_help="Print the DAG file for Airflow's dags folder.",
    epilog=examples(
        'sluice airflow-dag > "$AIRFLOW_HOME/dags/sluice_lake_tiering.py"',
        "sluice airflow-dag --maintenance > dags/sluice_lake_maintenance.py",
    ),
)
@click.option(
    "--maintenance", is_flag=True, help="Print the DAG file that maintains lake tables once a day."
)
def airflow_dag(maintenance: bool) -> None:
    """Print the DAG file that tiers all due tables.

    Save it in Airflow's dags folder. Airflow needs pip install 'fluss-sluice[airflow]'. The section
    [sluice] of airflow.cfg sets connections, schedule and retries.
    """
    print_file(MAINTENANCE_FILE if maintenance else DAG_FILE)
