"""DAGs for the tests of the page: those that tier, by several connections, and others."""

from __future__ import annotations

from datetime import datetime

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG

from sluice_airflow.dag import lake_tiering_dag
from sluice_airflow.group import lake_tiering_group
from sluice_airflow.maintenance import lake_maintenance_dag

lake_tiering_dag(
    "tiering",
    spark_history_url="https://spark.example/",
    lake_table_url="https://catalog.example/{database}/{table}?at={snapshot_id}",
)
lake_tiering_dag("tiering.second", schedule=None)
lake_tiering_dag("missing", fluss_conn_id="not_there")
lake_tiering_dag("wrong", fluss_conn_id="wrong")
lake_tiering_dag("moved", fluss_conn_id="moved")
lake_tiering_dag(
    "sales",
    schedule=None,
    tables=["sales.*"],
    lake_table_url="javascript:alert('{table}')",
    health_url="catalog:{database}/{table}",
)
lake_maintenance_dag("maintenance")

with DAG("own", start_date=datetime(2026, 1, 1), schedule=None):
    lake_tiering_group() >> EmptyOperator(task_id="report")

with DAG("rendered", start_date=datetime(2026, 1, 1), schedule=None, params={"which": "sales.*"}):
    lake_tiering_group(tables="{{ params.which }}")

with DAG("else", start_date=datetime(2026, 1, 1), schedule=None, tags=["sluice"]):
    EmptyOperator(task_id="nothing")
