"""Tiers Apache Fluss tables every minute; settings: section [sluice] of airflow.cfg."""

from sluice_airflow.dag import lake_tiering_dag

dag = lake_tiering_dag("sluice_lake_tiering")
