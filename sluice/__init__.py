"""Sluice tiers Apache Fluss tables into a lakehouse: Airflow orchestrates, Spark executes."""

__version__ = "0.1.0"
