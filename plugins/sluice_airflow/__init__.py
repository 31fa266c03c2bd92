"""Sluice's Airflow provider: provider info, hook, operators and the DAG factory."""
