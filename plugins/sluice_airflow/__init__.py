"""Sluice inside Airflow: provider info, hook, operators and the DAG factory."""
