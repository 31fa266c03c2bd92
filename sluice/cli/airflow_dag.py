"""`sluice airflow-dag`: the DAG file for Airflow's dags folder."""

from __future__ import annotations

import click

DAG_FILE = '''\
"""Tiers lake tables of Apache Fluss, every minute. The section [sluice] of airflow.cfg sets it."""

from sluice_airflow.dag import lake_tiering_dag

dag = lake_tiering_dag("sluice_lake_tiering")
'''
"""Airflow reads a file as a DAG file only if it holds the words "dag" and "airflow"."""


@click.command(
    "airflow-dag",
    short_help="Print the DAG file for Airflow's dags folder.",
    epilog="""
\b
Examples:
  sluice airflow-dag > "$AIRFLOW_HOME/dags/sluice_lake_tiering.py"
""",
)
def airflow_dag() -> None:
    """Print the DAG file that tiers all due tables.

    Put it into Airflow's dags folder. Airflow needs pip install 'fluss-sluice[airflow]'; the
    section [sluice] of airflow.cfg sets connections, schedule and retries (docs/airflow.md).
    """
    click.echo(DAG_FILE, nl=False)
