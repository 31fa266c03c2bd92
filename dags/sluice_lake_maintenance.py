"""Maintains lake tables once a day; settings: section [sluice] of airflow.cfg."""

from sluice_airflow.maintenance import lake_maintenance_dag

dag = lake_maintenance_dag("sluice_lake_maintenance")
