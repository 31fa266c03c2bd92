"""Triggers of the provider. They run in Airflow's triggerer."""
