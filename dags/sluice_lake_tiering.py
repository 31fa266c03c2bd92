"""Tiers lake tables of Apache Fluss, every minute. The section [sluice] of airflow.cfg sets it."""

from sluice_airflow.dag import lake_tiering_dag

dag = lake_tiering_dag("sluice_lake_tiering")
