"""Sluice's Airflow provider: provider info, hook, operators and the DAG factory."""

from sluice_airflow.logs import mask_records

mask_records()
